"""Compare the time to read that each chapter states with its length.

    python tools/reading_time.py

One line for each chapter: the stated minutes, the estimate, and what there is to read.
`tests/test_reading.py` fails when the two are further apart than `FAIR`.
"""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "_ext"))

from quiet_parts.reading import count, estimate, spoken, stated  # noqa: E402

FAIR = 1.3  # readers differ by more than this; a chapter that grew does not stay below


def main() -> int:
    total = 0
    for path in sorted(ROOT.glob("chapters/[0-9]*.ipynb")):
        says, needs = stated(path), estimate(path)
        if says is None:
            print(f"{path.stem}: its first cell states no time to read")
            return 1
        total += says
        kinds = ", ".join(f"{number} {kind}" for kind, number in count(path).items())
        sign = "" if needs / FAIR <= says <= needs * FAIR else "  <- not fair"
        print(f"{path.stem:14} says {says:2}, needs {needs:2.0f}: {kinds}{sign}")
    print(f"the whole book: {spoken(total)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
