"""All mutants, and what is said to each: `python tests/check/table.py [check]`."""

import importlib
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1])]

FILES = sorted(path.stem for path in HERE.glob("mutants_*.py"))


def mutants() -> dict:
    """The mutants of every check."""
    return _all("MUTANTS")


def right() -> dict:
    """The right answers of every check, by style."""
    return _all("RIGHT")


def as_modules() -> dict:
    """Mutants that are functions, with a module around each."""
    return _all("AS_MODULES")


def _all(name: str) -> dict:
    found = {}
    for file in FILES:
        found |= getattr(importlib.import_module(file), name, {})
    return found


def main(names: list[str]) -> None:
    from minigpt.book import check

    for name, planted in mutants().items():
        if names and name not in names:
            continue
        print(f"\n{name}\n{'=' * len(name)}")
        for mutant in planted:
            result = getattr(check, name)(mutant.answer)
            print(f"\n{mutant.name} -> {result.mechanism}")
            print("   ", "\n    ".join(result.message.splitlines()))


if __name__ == "__main__":
    main(sys.argv[1:])
