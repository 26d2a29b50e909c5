"""Formulas are drawn when the site is built, with words for those who listen.

A page then needs no MathJax: no 265 kB of script, no fonts, no shift when they come.
One run of `formulas.js` draws all that is new. The TeX stays in the page, unseen, so
that a formula that is selected and copied arrives as TeX.
"""

import json
import re
import shutil
import subprocess
from html import escape, unescape
from pathlib import Path

from sphinx.errors import ExtensionError
from sphinx.ext import mathjax

from quiet_parts.settings import ASSETS

SCRIPT = Path(__file__).with_suffix(".js")
FOLDER = ASSETS / "vendor" / ".build"
# What Sphinx writes for a formula, and what has been set already holds a drawing. With
# it comes the punctuation that must not begin a line.
FORMULA = re.compile(
    r'(<(span|div) class="[^"]*\bmath\b[^"]*"[^>]*>)([^<]+)(</\2>)([,.;:!?)]*)', re.S
)
CAPTION = re.compile(r"<figcaption\b.*?</figcaption>", re.S)
INLINE = re.compile(r"\\\((.+?)\\\)|(?<![\\$])\$([^$<]+)\$", re.S)
GLYPH = re.compile(r'href="#([^"]+)"')
TOKEN = re.compile(r"\\(?:begin|end)\{\w+\*?\}|\\(?:[A-Za-z]+|.)|.", re.S)
OPENS, CLOSES = {"{", r"\left"}, {"}", r"\right"}
# MathJax measures in ex. Here an ex is always that of Source Serif, in em, so that a
# formula is as large before the font has come as after.
EX = 0.475


def setup(app):
    # Sphinx's own places for formulas, but without the script that would fill them.
    app.setup_extension("sphinx.ext.mathjax")
    places = [(mathjax.html_visit_math, None), (mathjax.html_visit_displaymath, None)]
    app.add_html_math_renderer("drawn", *places)
    app.connect("config-inited", use_drawings)
    app.connect("build-finished", set_formulas, priority=400)


def use_drawings(app, config):
    config.html_math_renderer = "drawn"


def set_formulas(app, error):
    if error is not None or app.builder.name not in ("html", "singlehtml"):
        return
    pages = {}
    for path in Path(app.outdir).rglob("*.html"):
        text = path.read_text("utf-8")
        marked = mark_captions(text)
        if FORMULA.search(marked):
            pages[path] = marked
    for path, text in zip(pages, typeset(list(pages.values()))):
        path.write_text(text, "utf-8", newline="\n")


def mark_captions(page: str) -> str:
    """Captions of outputs are HTML that a chapter printed; their dollars count, too."""

    def mark(caption):
        return INLINE.sub(
            lambda tex: f'<span class="math">\\({tex[1] or tex[2]}\\)</span>',
            caption[0],
        )

    def unless_marked(caption):
        return caption[0] if 'class="math' in caption[0] else mark(caption)

    return CAPTION.sub(unless_marked, page)


def typeset(pages: list[str]) -> list[str]:
    """The pages with every formula drawn; all are set by one process."""
    found = {source(m): None for page in pages for m in FORMULA.finditer(page)}
    if not found:
        return pages
    wanted = found | {part: None for whole in found for part in parts(*whole)}
    answer = run(list(wanted))
    drawn = dict(zip(wanted, answer["set"]))
    return [draw(page, drawn, answer["glyphs"]) for page in pages]


def source(found: re.Match) -> tuple[str, bool]:
    """The TeX of a formula without its delimiters, and whether it has its own line."""
    tex = unescape(found[3]).strip()
    if tex.startswith((r"\(", r"\[")):
        return tex[2:-2].strip(), tex.startswith(r"\[")
    return tex, True


def parts(tex: str, own_line: bool) -> list[tuple[str, bool]]:
    r"""A formula cut where its line may break: at each \qquad outside of all braces."""
    if not own_line:
        return [(tex, own_line)]
    found, depth = [""], 0
    for token in TOKEN.findall(tex):
        if token == r"\qquad" and depth == 0:
            found.append("")
            continue
        depth += token in OPENS or token.startswith(r"\begin")
        depth -= token in CLOSES or token.startswith(r"\end{")
        found[-1] += token
    return [(part.strip(), own_line) for part in found]


def run(formulas: list[tuple[str, bool]]) -> dict:
    node = shutil.which("node")
    if node is None:
        raise ExtensionError("the formulas need Node.js 18 or newer: install it")
    asked = json.dumps([{"tex": tex, "display": own} for tex, own in formulas])
    done = subprocess.run(
        [node, str(SCRIPT), str(FOLDER)],
        input=asked,
        capture_output=True,
        encoding="utf-8",
    )
    if done.returncode:
        raise ExtensionError(f"the formulas could not be set: {done.stderr[-2000:]}")
    return json.loads(done.stdout)


def draw(page: str, drawn: dict, glyphs: dict[str, str]) -> str:
    """Replace the TeX; the first formula that draws a glyph brings its path."""
    brought, body = set(), page.find("<template ")

    def one(found):
        tex, own_line = source(found)
        words = drawn[tex, own_line]["speech"]
        svgs = [drawn[part]["svg"] for part in parts(tex, own_line)]
        if any("data-mjx-error" in svg for svg in svgs):
            raise ExtensionError(f"a formula is wrong: {tex}: {words}")
        glyphs_in = dict.fromkeys(GLYPH.findall("".join(svgs)))
        new = [g for g in glyphs_in if g not in brought]
        if found.start() < body or body < 0:  # a template's ids are not in the page
            brought.update(new)
        paths = "".join(f'<path id="{short(g)}" d="{glyphs[g]}"/>' for g in new)
        shown = " ".join(
            plain(svg, paths if n == 0 else "") for n, svg in enumerate(svgs)
        )
        mark = "$$" if own_line else "$"
        formula = (
            f'{found[1]}<span class="qp-formula" role="img" '
            f'aria-roledescription="formula" aria-label="{escape(words, quote=True)}">'
            f"{shown}"
            f'<span class="qp-tex" aria-hidden="true">{mark}{escape(tex)}{mark}</span>'
            f"</span>{found[4]}{found[5]}"
        )
        return f'<span class="qp-keep">{formula}</span>' if found[5] else formula

    return FORMULA.sub(one, page)


def short(glyph: str) -> str:
    return glyph.replace("MJX-", "g-").replace("TEX-", "")


def plain(svg: str, paths: str) -> str:
    """MathJax's drawing without what only MathJax reads, in em, with its new paths."""
    svg = re.sub(r' (?:data-[\w-]+|xmlns(?::xlink)?|role)="[^"]*"', "", svg)
    svg = re.sub(r'xlink:href="#([^"]+)"', lambda m: f'href="#{short(m[1])}"', svg)
    svg = re.sub(r"<(use|path|rect|line)\b([^>]*)></\1>", r"<\1\2/>", svg)
    svg = re.sub(r"(-?[\d.]+)ex", lambda m: f"{float(m[1]) * EX:.3f}em", svg)
    svg = re.sub(r"<g>(<(?:use|path)\b[^>]*/>)</g>", r"\1", svg)
    svg = svg.replace("<svg ", '<svg aria-hidden="true" ', 1)
    return svg.replace(">", f"><defs>{paths}</defs>", 1) if paths else svg
