"""Chromium reads the pages of the site, puts the book together and prints it.

It is printed until the page numbers in it are right. That takes two rounds: on which
page an anchor stands is known from a PDF only. Filling the numbers in moves nothing.
"""

import io
import mimetypes
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pikepdf

from tools.browser import FLAGS
from tools.printing import contents

HOST = "http://book.invalid"  # no such host: the answers come from the site's folder
HERE = Path(__file__).resolve().parent
PAPERS = {"a4": (210, 297), "letter": (215.9, 279.4)}  # millimetres
MARGINS = 42  # left and right together, as in book.css
ROUNDS = 4


class PrintError(Exception):
    """What keeps the book from being printed, and what to do about it."""


@dataclass(frozen=True)
class Printed:
    data: bytes
    pages: int


def print_book(
    site: Path, program: str, paper: str = "a4", all_code: bool = False
) -> Printed:
    """The site's pages as one PDF on `paper`, with the program of a Chromium."""
    try:
        from playwright.sync_api import sync_playwright
    except ModuleNotFoundError:
        raise PrintError("playwright is missing: pip install playwright") from None
    book = contents.settings(all_code)
    width = round((PAPERS[paper][0] - MARGINS) / 25.4 * 96)
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=program, args=FLAGS)
        try:
            page = chromium.new_page(
                viewport={"width": width, "height": 1000},
                color_scheme="light",
                reduced_motion="reduce",
            )
            page.set_default_timeout(180_000)
            library = Library(site)
            page.route("**/*", library.answer)
            assemble(page, book, library, paper, all_code)
            return in_rounds(page)
        finally:
            chromium.close()


class Library:
    """Answers what Chromium asks for, from the site's folder and from nowhere else."""

    def __init__(self, site: Path):
        self.site, self.own = site, {}

    def answer(self, route):
        parts = urlsplit(route.request.url)
        path = unquote(parts.path)
        if path in self.own:
            return route.fulfill(body=self.own[path], content_type="text/html")
        file = self.site / path.lstrip("/")
        if f"{parts.scheme}://{parts.netloc}" != HOST or not file.is_file():
            return route.abort()
        kind = mimetypes.guess_type(file.name)[0] or "application/octet-stream"
        return route.fulfill(body=file.read_bytes(), content_type=kind)


def assemble(page, book: dict, library: Library, paper: str, all_code: bool) -> None:
    """Load the book's document and bring it into its final form."""
    library.own["/book.html"] = document(book, paper, all_code)
    page.emulate_media(media="print", color_scheme="light")
    page.goto(f"{HOST}/book.html", wait_until="load")
    for name in ("page.js", "book.js", "fit.js"):
        page.add_script_tag(content=(HERE / name).read_text("utf-8"))
    wrong = page.evaluate("book => buildBook(book)", book)
    if wrong:
        raise PrintError("\n".join(dict.fromkeys(wrong)))
    page.evaluate(SETTLE)
    fitted = page.evaluate("fitBook()")
    if fitted["cut"]:
        raise PrintError("wider than the paper:\n" + "\n".join(fitted["cut"][:20]))


# Pictures and letters are there.
SETTLE = """async () => {
    await Promise.all([...document.images].map(i => i.decode().catch(() => 0)));
    await document.fonts.ready;
}"""


def document(book: dict, paper: str, all_code: bool) -> str:
    """The frame of the book, without its chapters."""
    width, height = PAPERS[paper]
    style = (HERE / "book.css").read_text("utf-8")
    return f"""<!doctype html>
<html lang="en" data-theme="light" data-mode="light"><head><meta charset="utf-8">
<title>{book["title"]}</title>
<style id="book-style">{style}
@page {{ size: {width}mm {height}mm; }}</style>
</head><body>{contents.front(all_code)}<main></main></body></html>"""


def in_rounds(page) -> Printed:
    """Print, fill in the page numbers, and print again until they stay the same."""
    before = None
    for _ in range(ROUNDS):
        # The structure for screen readers takes time; a round without it comes first.
        last = {"tagged": True, "outline": True} if before else {}
        data = page.pdf(prefer_css_page_size=True, print_background=True, **last)
        pdf = pikepdf.open(io.BytesIO(data))
        numbers = anchors(pdf)
        if numbers == before:
            return Printed(finished(pdf), len(pdf.pages))
        missing = page.evaluate("numbers => numberPages(numbers)", numbers)
        if missing:
            raise PrintError(f"not on any page: {', '.join(sorted(set(missing))[:10])}")
        before = numbers
    raise PrintError(f"the page numbers still changed in round {ROUNDS}")


def anchors(pdf) -> dict[str, int]:
    """The number of the page of each anchor that a link leads to."""
    order = {page.objgen: i for i, page in enumerate(pdf.pages, 1)}
    named = pdf.Root.get("/Dests", {})
    return {
        unquote(name.lstrip("/")): order[place[0].objgen]
        for name, place in named.items()
    }


def finished(pdf) -> bytes:
    """The PDF with the data about itself that Chromium does not write, compressed."""
    mode = pikepdf.ObjectStreamMode.generate
    with pdf.open_metadata() as data:
        data["dc:title"] = str(pdf.docinfo["/Title"])
        data["dc:creator"] = [contents.author()]
        data["dc:description"] = contents.SUBJECT
        data["dc:language"] = ["en"]
    pdf.docinfo["/Author"] = contents.author()
    pdf.docinfo["/Subject"] = contents.SUBJECT
    pdf.Root.ViewerPreferences = pikepdf.Dictionary(DisplayDocTitle=True)
    out = io.BytesIO()
    # Most of what Chromium writes is the structure for screen readers, uncompressed.
    pdf.save(out, object_stream_mode=mode, compress_streams=True)
    return out.getvalue()
