"""Make `.venv` and install what the book is built with. The second time takes no time.

Runs with any Python 3.11 to 3.13 and needs only its standard library.
"""

import hashlib
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
from tools.environment import environment_python  # noqa: E402

OLDEST, NEWEST = (3, 11), (3, 13)
INPUTS = ("requirements.txt", "requirements-lock.txt", "pyproject.toml")


def main() -> int:
    version = sys.version_info[:2]
    if not OLDEST <= version <= NEWEST:
        print(
            f"bootstrap: this is Python {version[0]}.{version[1]}; the book is built "
            "with 3.11 to 3.13. Name one of them: make PYTHON=python3.12 ..."
        )
        return 1
    folder = ROOT / ".venv"
    python, stamp = environment_python(folder), folder / f"installed-{fingerprint()}"
    if stamp.exists() and python.exists():
        return 0
    if not python.exists():
        print("bootstrap: creating .venv", flush=True)
        venv.create(folder, with_pip=True)
    print(
        "bootstrap: installing requirements.txt; this takes a few minutes", flush=True
    )
    pip = [str(python), "-m", "pip", "install", "-qq", "--disable-pip-version-check"]
    lock = str(ROOT / "requirements-lock.txt")
    for what in (
        ["-r", str(ROOT / "requirements.txt"), "-c", lock],
        ["--no-deps", "-e", str(ROOT)],
    ):
        done = subprocess.run(pip + what)
        if done.returncode:
            print(
                "bootstrap: pip could not install; its message is above. Run it again."
            )
            return done.returncode
    for old in folder.glob("installed-*"):
        old.unlink()
    stamp.touch()
    return 0


def fingerprint() -> str:
    """Changes when a requirement does, or Python's version."""
    digest = hashlib.sha256(repr(sys.version_info[:2]).encode())
    for name in INPUTS:
        digest.update((ROOT / name).read_bytes())
    return digest.hexdigest()[:16]


if __name__ == "__main__":
    sys.exit(main())
