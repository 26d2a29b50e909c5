"""Print the book: the site's pages as one PDF, set by Chromium.

    python tools/pdf.py                       _build/pdf/the-quiet-parts.pdf, on A4
    python tools/pdf.py --paper letter
    python tools/pdf.py --all-code            with the code that draws the figures

`tools/printing/` has the parts: what goes into the book, how a page of the site is
read, how the pages become one document, and the style of the paper.
"""

import argparse
import os
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
from tools import browser, site  # noqa: E402
from tools.printing import press  # noqa: E402

OUT = ROOT / "_build" / "pdf" / "the-quiet-parts.pdf"


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--paper", choices=press.PAPERS, default="a4")
    parser.add_argument("--out", type=Path, default=OUT, help="the file to write")
    parser.add_argument("--site", type=Path, help="a site that is already built")
    parser.add_argument(
        "--all-code", action="store_true", help="print what draws the figures, too"
    )
    args = parser.parse_args(argv)
    start = time.perf_counter()
    try:
        program = browser.chromium()
        if not program:
            raise press.PrintError(f"the browser is missing. Install {browser.NEEDED}")
        folder = args.site or site.build()
        printed = press.print_book(folder, program, args.paper, args.all_code)
    except (press.PrintError, site.SiteError, site.vendor.VendorError) as error:
        print(f"pdf: {error}", file=sys.stderr)
        return 1
    args.out.parent.mkdir(parents=True, exist_ok=True)
    temporary = args.out.with_suffix(".tmp")
    temporary.write_bytes(printed.data)
    os.replace(temporary, args.out)
    size, seconds = len(printed.data) / 1e6, time.perf_counter() - start
    print(f"pdf: {printed.pages} pages, {size:.1f} MB, {seconds:.0f} s: {args.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
