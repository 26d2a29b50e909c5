"""The rules of style that a page uses, in the page; the letters that the site uses.

The themes bring 480 kB of rules for parts that the book does not have. What a page asks
for is read from it and from the scripts, as PurgeCSS does: a rule stays if every class
and id in its selector occurs somewhere. What is left stands in the page: a sheet of its
own comes after the page itself on a slow line, and nothing is shown before it is there.
Of the Korean font's 11172 syllables those stay that a page shows.
"""

import os
import re
from dataclasses import dataclass
from pathlib import Path

import tinycss2
from fontTools import subset

from quiet_parts.settings import ASSETS

KOREAN_FONT = ASSETS / (
    "vendor/.build/nanum-gothic/files/nanum-gothic-korean-400-normal.woff"
)
KOREAN = re.compile("[\u1100-\u11ff\u3130-\u318f\uac00-\ud7a3]")
LINK = re.compile(r'[ \t]*<link\b[^>]*\brel="stylesheet"[^>]*/?>\n?')
PLACE = re.compile(rf'{LINK.pattern}|<style id="qp-style">.*?</style>\n?', re.S)
HREF = re.compile(r'href="([^"]+)"')
URL = re.compile(r"url\(\s*(['\"]?)(?!data:|#|https?:)([^'\")]+)\1\s*\)")
IMPORT = re.compile(r"""@import\s+["']([^"']+)["']\s*;""")
HOME = re.compile(r'href="([^"]*_static)/favicon')  # 404.html stands at no one place
USED = re.compile(r'\b(?:class|id)="([^"]*)"')
SOURCE = re.compile(r'<script\b[^>]*\bsrc="(?:\.\./)*_static/([^"?]+)')
INLINE_SCRIPT = re.compile(r"<script\b[^>]*>(.*?)</script>", re.S)
VARIABLE = re.compile(r"var\(\s*(--[\w-]+)")
OWN = re.compile(
    r"(?<=[{;])\s*(--[\w-]+)\s*:((?:[^;{}\"']|\"[^\"]*\"|'[^']*')*)(?:;|(?=\}))"
)
EMPTY = re.compile(r"^[^{}\n]+\{\s*\}\n", re.M)
KEYFRAMES = re.compile(
    r"@(?:-webkit-)?keyframes ([\w-]+)\{(?:[^{}]*\{[^{}]*\})*[^{}]*\}\n?"
)
NAME = re.compile(r"[.#](-?[A-Za-z_][\w-]*)")


def setup(app):
    app.connect("build-finished", gather, priority=600)


def gather(app, error):
    if error is not None or app.builder.name != "html":
        return
    out = Path(app.outdir)
    static = out / "_static"
    pages = {
        path: path.read_text("utf-8")
        for path in sorted(out.rglob("*.html"))
        if "_static" not in path.relative_to(out).parts
    }
    sheets = named_sheets(pages, static, Path(app.doctreedir) / "style-sheets.txt")
    rules = [rule for sheet in sheets for rule in parse(read_sheet(sheet, static))]
    scripts = script_words(static)
    for path, text in pages.items():
        used = names(text).union(
            *(scripts.get(name, ()) for name in SOURCE.findall(text))
        )
        css = "".join(kept(rule, used) for rule in rules)
        css = without_idle(css, PLACE.sub("", text))
        home = HOME.search(text)[1]
        mended = with_style(text, URL.sub(rf'url("{home}/\2")', css))
        path.write_text(mended, "utf-8", newline="\n")
    write_korean(static / "korean.woff", pages.values())
    for sheet in static.rglob("*.css"):  # the next build copies them again
        sheet.unlink()


def named_sheets(pages: dict[Path, str], static: Path, memory: Path) -> list[Path]:
    """What new pages link, in order; if no page is new, what they linked last."""
    found = {}
    for text in pages.values():
        for link in LINK.finditer(text):
            href = HREF.search(link[0])[1].partition("?")[0]
            found[href.partition("_static/")[2]] = None
    if found:
        memory.write_text("\n".join(found), "utf-8")
    return [static / name for name in memory.read_text("utf-8").splitlines()]


def with_style(text: str, css: str) -> str:
    """The page with its rules where it named its sheets, or had its rules before."""
    style = f'<style id="qp-style">\n{css}</style>\n'
    return LINK.sub("", PLACE.sub(lambda _: style, text, count=1))


def names(page: str) -> set[str]:
    """Every class and id of a page, and every word of its scripts that could be one."""
    found = set()
    for value in set(USED.findall(page)):
        found.update(value.split())
    for script in INLINE_SCRIPT.findall(page):
        found.update(re.findall(r"[\w-]+", script))
    return found


def script_words(static: Path) -> dict[str, set[str]]:
    """Of each of the book's scripts every word that could be a class or an id."""
    found = {}
    for script in static.rglob("*.js"):
        name = script.relative_to(static).as_posix()
        if not name.startswith("vendor/"):
            found[name] = set(re.findall(r"[\w-]+", script.read_text("utf-8")))
    return found


def read_sheet(path: Path, home: Path) -> str:
    """A style sheet with what it imports, its addresses counted from `home`."""

    def from_home(found):
        target = os.path.relpath(path.parent / found[2], home)
        return f'url("{Path(target).as_posix()}")'

    def imported(found):
        return read_sheet(path.parent / found[1], home)

    text = IMPORT.sub("\0\\1\0", path.read_text("utf-8"))
    return re.sub("\0(.*?)\0", imported, URL.sub(from_home, text))


@dataclass(frozen=True)
class Rule:
    """A rule with the names that each of its selectors asks for; or rules in a group.

    `heads`: (selector, names) pairs, the body to follow; of a group its one head.
    """

    heads: list[tuple[str, set[str]]]
    body: str = ""
    inner: list["Rule"] | None = None


def parse(sheet: str) -> list[Rule]:
    rules = tinycss2.parse_stylesheet(sheet, skip_comments=True, skip_whitespace=True)
    return [parsed(rule) for rule in rules]


def parsed(rule) -> Rule:
    if rule.type == "error":
        raise ValueError(f"a style sheet is wrong: {rule.message}")
    if rule.type == "at-rule":
        if rule.lower_at_keyword not in ("media", "supports", "layer"):
            return Rule([], rule.serialize())
        head = f"@{rule.at_keyword}{tinycss2.serialize(rule.prelude).rstrip()}"
        return Rule([(head, set())], "", parse(tinycss2.serialize(rule.content or [])))
    body = tinycss2.serialize(rule.content)
    body = re.sub(r"\s+", " ", re.sub(r"/\*.*?\*/", "", body, flags=re.S)).strip()
    heads = [(tinycss2.serialize(s).strip(), asked(s)) for s in split(rule.prelude)]
    return Rule(heads, body)


def kept(rule: Rule, used: set[str]) -> str:
    """The rule as text, without selectors that match nothing; "" if none is left."""
    if not rule.heads:
        return rule.body + "\n"
    body = rule.body
    if rule.inner is not None:
        body = "".join(kept(inner, used) for inner in rule.inner)
    head = ",".join(selector for selector, names in rule.heads if used >= names)
    return f"{head}{{{body}}}\n" if head and body else ""


def without_idle(css: str, page: str) -> str:
    """Without properties of their own (`--x`) and keyframes that nothing asks for."""
    before = None
    while css != before:  # what only an idle property asked for is idle then
        before = css
        css = EMPTY.sub("", OWN.sub(asked_for(css + page), css))
    return KEYFRAMES.sub(lambda m: m[0] if css.count(m[1]) > 1 else "", css)


def asked_for(text: str):
    """Keeps a declaration if the text asks for its property."""
    wanted = set(VARIABLE.findall(text))
    return lambda found: found[0] if found[1] in wanted else ""


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
