"""What a chapter's kernel finds in its environment while the book runs it."""

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "_build"


def notebook_environment() -> dict[str, str]:
    """Variables for kernels and tests: one thread, silent progress, cached data.

    One thread, because results then do not depend on how many cores a machine has, and
    because two threads on a busy machine are far slower than one.
    """
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
    return {name: "1" for name in names} | {
        "MINIGPT_STATIC": "1",
        "PYTHONHASHSEED": "0",
        "PYTHONUTF8": "1",
        "TIKTOKEN_CACHE_DIR": os.environ.get("TIKTOKEN_CACHE_DIR")
        or str(BUILD / "tiktoken"),
    }


def environment_python(folder: Path) -> Path:
    """The Python of a virtual environment, on any system."""
    windows = folder / "Scripts" / "python.exe"
    return windows if os.name == "nt" else folder / "bin" / "python"
