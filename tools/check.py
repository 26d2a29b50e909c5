"""Everything CI runs, in order: `make test`. Prints what passed and how long it took.

A check whose program is missing (Chromium, npm) is left out, with the way to install
it; in CI (`CI` set in the environment) that is a failure. As root on Debian,
Chromium is installed.
"""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
from tools import browser as browsers  # noqa: E402
from tools import results  # noqa: E402
from tools.environment import notebook_environment  # noqa: E402

NEED_NPM = (
    "npm, which comes with Node.js 18 or newer (nodejs.org or your package manager)"
)


class LeftOut(Exception):
    """A check cannot run here; says what to install."""


def main() -> int:
    os.environ.update(notebook_environment())
    os.chdir(ROOT)
    for kind in ("run", "reseed", "checks"):
        results.forget(kind)
    rows = [run(name, check) for name, check in CHECKS.items()]
    print(
        "\n"
        + "\n".join(
            f"{state:9} {seconds:5.0f} s  {name}" for name, state, seconds in rows
        )
    )
    states = [state for _, state, _ in rows]
    total = sum(seconds for _, _, seconds in rows)
    bad = "FAILED" in states or ("left out" in states and bool(os.environ.get("CI")))
    print(f"{'FAILED' if bad else 'passed'} in {total / 60:.1f} minutes")
    return int(bad)


def run(name: str, check: Callable[[], int | None]) -> tuple[str, str, float]:
    print(f"\n=== {name}", flush=True)
    start = time.perf_counter()
    try:
        state = "FAILED" if check() else "passed"
    except LeftOut as missing:
        print(f"Left out. To run this check, install {missing}")
        state = "left out"
    print(f"=== {name}: {state}", flush=True)
    seconds = time.perf_counter() - start
    results.keep("checks", name, state.lower(), seconds=round(seconds, 1))
    return name, state, seconds


def python(*arguments: str) -> int:
    return subprocess.run([sys.executable, *arguments]).returncode


def export() -> int:
    checks = ("tools/export.py", "tools/models.py", "tools/stamp.py")
    return next((code for tool in checks if (code := python(tool, "--check"))), 0)


def style() -> int:
    return python("-m", "ruff", "check", ".") or python(
        "-m", "ruff", "format", "--check", "."
    )


def data() -> int:
    return python("tools/data.py")


def package() -> int:
    return python(
        *("-m", "pytest", "tests", "--ignore", "tests/site", "-q"),
        *("-n", "2", "--dist", "loadfile", "--durations", "8"),
    )


def chapters() -> int:
    return python("tools/chapters.py")


def reseed() -> int:
    return python("tools/reseed.py")


def site() -> int:
    if not shutil.which("npm"):
        raise LeftOut(NEED_NPM)
    return python("tools/site.py", "build")


def browser() -> int:
    if not (ROOT / "_build" / "html" / "index.html").exists():
        raise LeftOut(
            "what the site build needs, first; there is no built site to open"
        )
    if not chromium():
        raise LeftOut(browsers.NEEDED)
    return python("-m", "pytest", "tests/site", "-q", "--durations", "5")


def chromium() -> str | None:
    """A Chromium to test with; installed here if this is Debian and we may."""
    found = browsers.chromium()
    if (
        not found
        and shutil.which("apt-get")
        and getattr(os, "geteuid", lambda: 1)() == 0
    ):
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        environ = dict(os.environ, DEBIAN_FRONTEND="noninteractive")
        subprocess.run(["apt-get", "update"], env=environ, **quiet)
        subprocess.run(["apt-get", "install", "-y", "chromium"], env=environ, **quiet)
        found = shutil.which("chromium")
    return found


CHECKS: dict[str, Callable[[], int | None]] = {
    "the package is what the chapters export": export,
    "style": style,
    "data for the tests": data,
    "package and notebook rules": package,
    "chapters, each alone with only the wheel": chapters,
    "verdicts under other seeds": reseed,
    "site, warnings as errors": site,
    "site in a browser": browser,
}

if __name__ == "__main__":
    sys.exit(main())
