"""Gather what the last runs found into one `_build/status/status.json`.

    python tools/status.py             write it, and print a line for each chapter
    python tools/status.py --strict    and fail unless every chapter has passed

`tools/chapters.py`, `tools/reseed.py` and `tools/check.py` leave the results;
`tools/results.py` says where. The site shows them on its status page.
"""

import argparse
import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
from tools import results  # noqa: E402

STAMP = ("date", "commit", "workflow")
MACHINE = ("system", "cpu", "cores")


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--strict", action="store_true", help="fail unless every chapter passed"
    )
    args = parser.parse_args(argv)
    found = gather(ROOT)
    path = results.folder() / "status.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(found, indent=1) + "\n", "utf-8", newline="\n")
    for row in found["chapters"]:
        print(f"{row['name']:16} {row['result']}")
    for name in found["damaged"]:
        print(f"damaged: {name}")
    bad = found["damaged"] or any(r["result"] != "passed" for r in found["chapters"])
    return int(bool(args.strict and bad))


def gather(root: Path) -> dict:
    """Everything that the status page shows."""
    damaged: list[str] = []
    run, reseed, colab, checks = (read(kind, damaged) for kind in results.KINDS)
    machine = checks.pop("machine", {})
    claims = count_claims(root)
    names = sorted(path.stem for path in (root / "chapters").glob("*.ipynb"))
    rows = [
        chapter(name, run.get(name), reseed.get(name), colab.get(name))
        | claims.get(name, {"measured": 0, "cited": 0})
        for name in names
    ]
    newest = max(run.values(), key=lambda row: row.get("date", ""), default={})
    known = {k: v for k, v in machine.items() if k in MACHINE}
    skip = {"name", "result", *STAMP, *MACHINE}
    return {
        "ran": bool(run),
        **{key: newest[key] for key in STAMP if key in newest},
        "machine": "{cpu} ({system}, {cores} cores)".format(**known) if known else "",
        "versions": {k: v for k, v in machine.items() if k not in skip},
        "chapters": rows,
        "checks": [{"failed": []} | checks[name] for name in sorted(checks)],
        "damaged": damaged,
    }


def chapter(
    name: str, run: dict | None, reseed: dict | None, colab: dict | None
) -> dict:
    """One row: its run, what other seeds changed, its last run as on Colab."""
    row = {"name": name, "result": "missing", "failed": []} | (run or {})
    if reseed:
        row["verdicts"], row["seeds"] = reseed.get("verdicts"), reseed.get("seeds")
        if reseed["result"] == "failed":
            row["result"] = "failed"
            row["failed"] = row["failed"] + reseed.get("failed", [])
            row.setdefault("workflow", reseed.get("workflow"))
    row["colab"] = colab["result"] if colab else None
    if colab and colab["result"] == "failed":
        row["failed"] = row["failed"] + [
            {"where": "", "message": "failed with Colab's packages"}
        ]
    return row


def read(kind: str, damaged: list[str]) -> dict[str, dict]:
    """The results of one kind by name; what cannot be read is named in `damaged`."""
    found = {}
    for path in sorted((results.folder() / kind).glob("*.json")):
        try:
            row = json.loads(path.read_text("utf-8"))
            found[path.stem] = row | {"name": str(row["name"]), "result": known(row)}
        except (ValueError, KeyError, TypeError, OSError):
            damaged.append(f"{kind}/{path.name}")
    return found


def known(row: dict) -> str:
    if row["result"] not in results.RESULTS:
        raise ValueError(row["result"])
    return row["result"]


def count_claims(root: Path) -> dict[str, dict[str, int]]:
    """How many claims each chapter makes, measured and cited."""
    sys.path.insert(0, str(ROOT / "_ext"))
    from quiet_parts import claims

    found: dict[str, dict[str, int]] = {}
    for claim in claims.read(root):
        row = found.setdefault(claim.chapter.name, {"measured": 0, "cited": 0})
        row["measured"] += claim.measured
        row["cited"] += claim.cited
    return found


if __name__ == "__main__":
    sys.exit(main())
