"""The printed book: `make pdf`. BOOK_PDF names one that is already there."""

import os
import re
import subprocess
import sys
from pathlib import Path

import nbformat
import pikepdf
import pypdfium2
import pytest
from conftest import ROOT, chapters, documents, notebooks

from tools.browser import chromium

FOLD = re.compile(
    r"<details>\s*<summary>(Solution|Hint)[^<]*</summary>(.*?)</details>", re.DOTALL
)
MARK = "↩"  # of a line that was wrapped


@pytest.fixture(scope="module")
def path(site, tmp_path_factory) -> Path:
    """The PDF of the site that the other tests open, made once."""
    if os.environ.get("BOOK_PDF"):
        return Path(os.environ["BOOK_PDF"])
    if chromium() is None:
        pytest.skip("needs chromium, which is not installed: apt-get install chromium")
    out = ROOT / "_build" / "pdf" / "the-quiet-parts.pdf"
    command = [sys.executable, str(ROOT / "tools" / "pdf.py"), "--site", str(site)]
    done = subprocess.run(command, capture_output=True, text=True, encoding="utf-8")
    assert done.returncode == 0, done.stdout + done.stderr
    return out


@pytest.fixture(scope="module")
def pdf(path):
    with pikepdf.open(path) as found:
        yield found


@pytest.fixture(scope="module")
def texts(path) -> list[str]:
    """The text of each page, in the order in which it is printed."""
    document = pypdfium2.PdfDocument(path)
    return [page.get_textpage().get_text_bounded() for page in document]


def order(pdf) -> dict:
    return {page.objgen: i for i, page in enumerate(pdf.pages, 1)}


def anchors(pdf) -> dict[str, int]:
    number = order(pdf)
    return {str(k)[1:]: number[v[0].objgen] for k, v in pdf.Root.Dests.items()}


def letters(text: str) -> str:
    """Without what a line break, a hyphen or a sign of print may change."""
    return re.sub(r"[\W_]+", "", text).lower()


def test_pages_and_size(pdf, path):
    """A book: a few hundred pages, on A4, and light enough to send."""
    assert 250 < len(pdf.pages) < 700
    assert path.stat().st_size < 25e6
    for page in pdf.pages:
        width, height = (float(v) / 72 * 25.4 for v in page.mediabox[2:])
        assert (round(width), round(height)) == (210, 297)


def test_what_it_says_of_itself(pdf):
    assert str(pdf.docinfo["/Title"]) == "The Quiet Parts"
    assert str(pdf.docinfo["/Author"]) == "The Quiet Parts authors"
    assert str(pdf.Root.Lang) == "en"
    assert bool(pdf.Root.MarkInfo.Marked), "tagged, for screen readers"
    assert pdf.Root.StructTreeRoot is not None
    assert bool(pdf.Root.ViewerPreferences.DisplayDocTitle)


def test_each_chapter_starts_where_the_contents_say(pdf, texts):
    """The number printed in the contents is that of the page with the title."""
    where = anchors(pdf)
    first = where["index"]
    contents = letters("".join(texts[: first - 1]))
    for name in notebooks():
        title = letters(outline_title(name))
        assert title in letters(texts[where[name] - 1]), name
        said = re.findall(rf"{re.escape(title)}(\d+)", contents)
        assert said and said[0] == str(where[name]), (name, said)


def outline_title(name: str) -> str:
    cell = nbformat.read(ROOT / f"{name}.ipynb", as_version=4).cells[0].source
    return re.sub(r"[`*]", "", cell.splitlines()[0].removeprefix("# "))


def test_the_page_prints_its_own_number(texts):
    """Below each page but the first two stands its number, as viewers count."""
    wrong = [
        number
        for number, text in enumerate(texts, 1)
        if number > 2 and not re.search(rf"(^|\s){number}\s*$", footer(text, number))
    ]
    assert not wrong


def footer(text: str, number: int) -> str:
    """The last line; some readers put the head and foot of a page first."""
    lines = [line.strip() for line in text.strip().splitlines()]
    return next((line for line in lines if line == str(number)), lines[-1])


def test_links_lead_somewhere(pdf):
    named = {str(k) for k in pdf.Root.Dests}
    pages = set(order(pdf))
    dead, inside, outside = [], 0, []
    for number, page in enumerate(pdf.pages, 1):
        for link in page.get("/Annots", []):
            if link.get("/Subtype") != "/Link":
                continue
            action = link.get("/A", {})
            if "/URI" in action:
                outside.append(str(action.URI))
                continue
            target = link.get("/Dest", action.get("/D"))
            inside += 1
            if isinstance(target, pikepdf.Array):
                found = target[0].objgen in pages
            else:
                found = str(target) in named or f"/{target}" in named
            dead += [] if found else [f"page {number}: {target}"]
    assert inside > 1000 and not dead, dead[:20]
    assert all(u.startswith(("https://", "http://")) for u in outside)
    assert not [u for u in outside if ".invalid" in u], (
        "the site's address stands there"
    )


def test_outline_names_every_chapter(pdf):
    with pdf.open_outline() as outline:
        titles = [letters(item.title) for item in outline.root]
    for name in notebooks():
        assert letters(outline_title(name)) in titles
    for title in ("Hints", "Answers to the quizzes", "Solutions", "References"):
        assert letters(title) in titles


def folds(kind: str) -> list[tuple[str, str]]:
    """Every hint or solution of the notebooks: its longest stretch of plain words."""
    found = []
    for name in chapters():
        for cell in nbformat.read(ROOT / f"{name}.ipynb", as_version=4).cells:
            for word, text in FOLD.findall(cell.source):
                plain = re.sub(r"`[^`]*`|\$[^$]*\$|\]\([^)]*\)|<[^>]+>", "\0", text)
                pieces = [letters(piece) for piece in re.split(r"\0|\n\n", plain)]
                if word == kind and cell.cell_type == "markdown":
                    found.append((name, max(pieces, key=len)[:60]))
    return found


@pytest.mark.parametrize("kind", ["Solution", "Hint"])
def test_each_is_printed_once_and_at_the_end(pdf, texts, kind):
    """Also where two chapters say the same: then each of them once."""
    start = anchors(pdf)["solutions" if kind == "Solution" else "hints"]
    body = letters("".join(texts[: start - 1]))
    end = letters("".join(texts[start - 1 :]))
    found = [text for _, text in folds(kind)]
    long = {text for text in found if len(text) > 25}
    assert len(long) > 25 and len(long) > 0.8 * len(set(found))
    lost = {
        text: (end.count(text), body.count(text))
        for text in long
        if end.count(text) != sum(text in other for other in found) or text in body
    }
    assert not lost


def test_code_is_all_there(texts):
    """Whatever is wrapped: the definitions that enter the package, letter by letter."""
    printed = re.sub(rf"\s|{MARK}", "", "".join(texts))
    lost = []
    for name in chapters():
        for cell in nbformat.read(ROOT / f"{name}.ipynb", as_version=4).cells:
            if cell.cell_type == "code" and cell.source.startswith("#| export"):
                lines = cell.source.splitlines()[1:]
                lost += [
                    f"{name} [{cell.id}]: {line}"
                    for line in lines
                    if re.sub(r"\s", "", line) not in printed
                ]
    assert not lost, lost[:20]


def test_nothing_is_outside_of_the_paper(path):
    """No letter of any page beyond its edge, or in the margin where printers do not."""
    outside = []
    for number, page in enumerate(pypdfium2.PdfDocument(path), 1):
        width, height = page.get_size()
        for thing in page.get_objects(max_depth=4):
            if thing.type != pypdfium2.raw.FPDF_PAGEOBJ_TEXT:
                continue
            left, bottom, right, top = thing.get_bounds()
            if left < 20 or right > width - 20 or bottom < 10 or top > height - 10:
                outside.append((number, round(left), round(right)))
    assert not outside, outside[:20]


def test_fonts_are_embedded(pdf):
    """Also the Korean ones: a reader's machine need not have them."""
    bare, names = set(), set()
    for thing in pdf.objects:
        if isinstance(thing, pikepdf.Dictionary) and thing.get("/Type") == "/Font":
            names.add(str(thing.get("/BaseFont", "")))
            inner = thing.get("/DescendantFonts", [thing])[0]
            data = inner.get("/FontDescriptor", {})
            files = {"/FontFile", "/FontFile2", "/FontFile3"} & set(data.keys())
            if not files and thing.get("/Subtype") != "/Type3":
                bare.add(str(thing.get("/BaseFont")))
    assert not bare
    # Nanum Gothic, under the name that the cut font has (quiet_parts/styles.py).
    assert any(re.search("Quiet.*Parts.*Korean", name) for name in names), sorted(names)


def test_korean_is_drawn(texts):
    """Seed sentence of chapter 11, and the glossary."""
    text = "".join(texts)
    assert "잔차" in text and "고양이" in text


def test_no_heading_is_alone_at_the_foot(pdf, path):
    """What the outline names has text below it on the same page."""
    number, document, alone = order(pdf), pypdfium2.PdfDocument(path), []
    with pdf.open_outline() as outline:
        pending = list(outline.root)
        while pending:
            item = pending.pop()
            pending += item.children
            place = item.destination or item.action.D
            top = float(place[3])
            if top > 57 + 70:  # the lower margin, and some lines
                continue
            page = document[number[place[0].objgen] - 1].get_textpage()
            if not page.get_text_bounded(bottom=57, top=top - 20).strip():
                alone.append(item.title)
    assert not alone


def test_every_page_of_the_book_is_in_it(pdf):
    assert {n for n in documents() if n != "status"} <= anchors(pdf).keys()


def test_without_chromium_it_says_so(monkeypatch, capsys):
    from tools import pdf as command

    monkeypatch.setenv("CHROMIUM", "no-such-browser")
    assert command.main([]) == 1
    said = capsys.readouterr().err
    assert "pdf: the browser is missing" in said and "apt-get install chromium" in said
