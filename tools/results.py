"""What a run found, kept as small files in `_build/status` for the status page.

    _build/status/run/04_depth.json        a chapter's run (tools/chapters.py)
    _build/status/reseed/04_depth.json     its verdicts, other seeds (tools/reseed.py)
    _build/status/colab/04_depth.json      its run with Colab's packages (weekly)
    _build/status/checks/NAME.json         one of the checks of `make test`

Needs only Python: the weekly run writes from an environment that has little else.

    python tools/results.py colab 04_depth passed --seconds 63
"""

import argparse
import json
import os
import platform
import re
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
KINDS = ("run", "reseed", "colab", "checks")
RESULTS = ("passed", "failed", "left out")


def folder() -> Path:
    """Where results go: `_build/status`, or what BOOK_STATUS names."""
    return Path(os.environ.get("BOOK_STATUS") or ROOT / "_build" / "status")


def keep(kind: str, name: str, result: str, **found) -> Path:
    """Write one result, whole or not at all, with when and where it was found."""
    if kind not in KINDS or result not in RESULTS:
        raise ValueError(
            f"a result is one of {KINDS} and {RESULTS}, not {kind} {result}"
        )
    path = folder() / kind / f"{slug(name)}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"name": name, "result": result} | found | stamp(), indent=1)
    temporary = path.with_suffix(".tmp")
    temporary.write_text(text + "\n", "utf-8", newline="\n")
    os.replace(temporary, path)
    return path


def forget(kind: str, names: list[str] | None = None) -> None:
    """Before a run: what an earlier one found is no longer so."""
    paths = sorted((folder() / kind).glob("*.json"))
    for path in paths:
        if names is None or path.stem in names:
            path.unlink()


def stamp() -> dict:
    """The date in UTC, the commit, and the run of the workflow if this is one."""
    now = datetime.now(UTC).replace(microsecond=0)
    found = {"date": now.isoformat().replace("+00:00", "Z"), "commit": commit()}
    server, repository = map(os.environ.get, ("GITHUB_SERVER_URL", "GITHUB_REPOSITORY"))
    run = os.environ.get("GITHUB_RUN_ID")
    if server and repository and run:
        found["workflow"] = f"{server}/{repository}/actions/runs/{run}"
    return found


def commit() -> str:
    """The commit that is checked out; with + behind it if files have changed since."""
    if os.environ.get("GITHUB_SHA"):
        return os.environ["GITHUB_SHA"]
    try:
        head = git("rev-parse", "HEAD")
        return head + ("+" if git("status", "--porcelain", "-uno") else "")
    except (OSError, subprocess.CalledProcessError):
        return ""


def git(*words: str) -> str:
    done = subprocess.run(
        ["git", *words], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def machine() -> dict:
    """The kind of machine, without its name."""
    system = f"{platform.system()} {platform.machine()}"
    return {"system": system, "cpu": processor(), "cores": os.cpu_count() or 0}


def processor() -> str:
    """What the processor calls itself."""
    try:
        text = Path("/proc/cpuinfo").read_text("utf-8")
        found = re.search(r"^model name\s*:\s*(.+)$", text, re.M)
        return " ".join(found[1].split()) if found else platform.processor()
    except OSError:
        return platform.processor()


def plain(message: str, limit: int = 300) -> str:
    """A message for the public page: no folders of the machine, no colours."""
    message = re.sub(r"\x1b\[[0-9;]*m", "", message)
    message = re.sub(r"(?<![\w:/])(?:[A-Za-z]:)?(?:[\\/][\w.@ +-]+)+[\\/]", "", message)
    message = " ".join(message.split())
    return message if len(message) <= limit else message[: limit - 1] + "…"


def slug(name: str) -> str:
    return re.sub(r"[^\w.-]+", "-", name).strip("-")


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("name")
    parser.add_argument("result", choices=RESULTS)
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--message", default="")
    args = parser.parse_args(argv)
    found = {} if args.seconds is None else {"seconds": args.seconds}
    if args.message:
        found["failed"] = [{"where": "", "message": plain(args.message)}]
    print(keep(args.kind, args.name, args.result, **found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
