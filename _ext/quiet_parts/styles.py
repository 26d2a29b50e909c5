"""One style sheet for the site, without the rules and letters that no page uses.

The themes bring 480 kB of rules for parts that the book does not have. What pages ask
for is read from them and from their scripts, as PurgeCSS does: a rule stays if every
class and id in its selector occurs somewhere. Of the Korean font's 11172 syllables
those stay that a page shows.
"""

import hashlib
import os
import re
from pathlib import Path

import tinycss2
from fontTools import subset

from quiet_parts.settings import ASSETS

KOREAN_FONT = ASSETS / (
    "vendor/.build/nanum-gothic/files/nanum-gothic-korean-400-normal.woff"
)
KOREAN = re.compile("[\u1100-\u11ff\u3130-\u318f\uac00-\ud7a3]")
LINK = re.compile(r'[ \t]*<link\b[^>]*\brel="stylesheet"[^>]*/?>\n?')
HREF = re.compile(r'href="([^"]+)"')
URL = re.compile(r"url\(\s*(['\"]?)(?!data:|#|https?:)([^'\")]+)\1\s*\)")
IMPORT = re.compile(r"""@import\s+["']([^"']+)["']\s*;""")
USED = re.compile(r'\b(?:class|id)="([^"]*)"')
INLINE_SCRIPT = re.compile(r"<script\b[^>]*>(.*?)</script>", re.S)
NAME = re.compile(r"[.#](-?[A-Za-z_][\w-]*)")


def setup(app):
    app.connect("build-finished", gather, priority=600)


def gather(app, error):
    if error is not None or app.builder.name != "html":
        return
    out = Path(app.outdir)
    pages = {
        path: path.read_text("utf-8")
        for path in sorted(out.rglob("*.html"))
        if "_static" not in path.relative_to(out).parts
    }
    sheets = named_sheets(
        pages, out / "_static", Path(app.doctreedir) / "style-sheets.txt"
    )
    names = used_names(pages.values(), out / "_static")
    rules = "".join(purge(read_sheet(s, out / "_static"), names) for s in sheets)
    (out / "_static" / "book.css").write_text(rules, "utf-8", newline="\n")
    write_korean(out / "_static" / "korean.woff", pages.values())
    digest = hashlib.sha256(rules.encode()).hexdigest()[:8]
    for path, text in pages.items():
        first = LINK.search(text)
        start = HREF.search(first[0])[1].partition("_static/")[0] if first else ""
        link = f'<link rel="stylesheet" href="{start}_static/book.css?v={digest}"/>\n'
        mended = LINK.sub("\0", text, count=1)
        mended = LINK.sub("", mended).replace("\0", link)
        path.write_text(mended, "utf-8", newline="\n")
    for sheet in (out / "_static").rglob("*.css"):  # the next build copies them again
        if sheet.name != "book.css":
            sheet.unlink()


def named_sheets(pages: dict[Path, str], static: Path, memory: Path) -> list[Path]:
    """What new pages link, in order; if no page is new, what they linked last."""
    found = {}
    for text in pages.values():
        for link in LINK.finditer(text):
            href = HREF.search(link[0])[1].partition("?")[0]
            found[href.partition("_static/")[2]] = None
    found.pop("book.css", None)
    if found:
        memory.write_text("\n".join(found), "utf-8")
    return [static / name for name in memory.read_text("utf-8").splitlines()]


def used_names(pages, static: Path) -> set[str]:
    """Every class and id in the pages, and every word of a script that could be one."""
    names = set()
    for page in pages:
        for value in set(USED.findall(page)):
            names.update(value.split())
        for script in INLINE_SCRIPT.findall(page):
            names.update(re.findall(r"[\w-]+", script))
    for script in static.rglob("*.js"):
        if "vendor" not in script.relative_to(static).parts:
            names.update(re.findall(r"[\w-]+", script.read_text("utf-8")))
    return names


def read_sheet(path: Path, home: Path) -> str:
    """A style sheet with what it imports, its addresses counted from `home`."""

    def from_home(found):
        target = os.path.relpath(path.parent / found[2], home)
        return f'url("{Path(target).as_posix()}")'

    def imported(found):
        return read_sheet(path.parent / found[1], home)

    text = IMPORT.sub("\0\\1\0", path.read_text("utf-8"))
    return re.sub("\0(.*?)\0", imported, URL.sub(from_home, text))


def purge(sheet: str, names: set[str]) -> str:
    return "".join(
        kept(rule, names)
        for rule in tinycss2.parse_stylesheet(
            sheet, skip_comments=True, skip_whitespace=True
        )
    )


def kept(rule, names: set[str]) -> str:
    """The rule as text, without selectors that match nothing; "" if none is left."""
    if rule.type == "error":
        raise ValueError(f"a style sheet is wrong: {rule.message}")
    if rule.type == "at-rule":
        if rule.lower_at_keyword not in ("media", "supports", "layer"):
            return rule.serialize() + "\n"
        inner = purge(tinycss2.serialize(rule.content or []), names)
        head = f"@{rule.at_keyword}{tinycss2.serialize(rule.prelude).rstrip()}"
        return f"{head}{{{inner}}}\n" if inner else ""
    selectors = [s for s in split(rule.prelude) if names >= asked(s)]
    if not selectors:
        return ""
    body = tinycss2.serialize(rule.content)
    body = re.sub(r"\s+", " ", re.sub(r"/\*.*?\*/", "", body, flags=re.S)).strip()
    head = ",".join(tinycss2.serialize(s).strip() for s in selectors)
    return f"{head}{{{body}}}\n"


def split(prelude) -> list[list]:
    """A list of selectors at its commas; commas within brackets are inside a token."""
    parts = [[]]
    for token in prelude:
        if token == ",":
            parts.append([])
        else:
            parts[-1].append(token)
    return parts


def asked(selector) -> set[str]:
    """The classes and ids that must occur; those in `:is()` or `:not()` need not."""
    outside = [t for t in selector if t.type not in ("function", "[] block", "comment")]
    return set(NAME.findall(tinycss2.serialize(outside)))


def write_korean(path: Path, pages) -> None:
    """The font with the syllables that the pages show, under a name of its own."""
    letters = {ord(c) for page in pages for c in KOREAN.findall(page)}
    options = subset.Options(flavor="woff", hinting=False, notdef_outline=True)
    font = subset.load_font(str(KOREAN_FONT), options)
    tool = subset.Subsetter(options)
    tool.populate(unicodes=letters)
    tool.subset(font)
    for record in font["name"].names:  # its licence keeps the old name for the whole
        if record.nameID in (1, 3, 4, 6, 16):
            record.string = "Quiet Parts Korean"
    subset.save_font(font, str(path), options)
