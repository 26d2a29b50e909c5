"""What is left to mend in the finished pages, and what the site does not publish."""

import itertools
import re
from pathlib import Path

TABLE = re.compile(r'<div class="pst-scrollable-table-container">(.*?</table>)', re.S)
# Most words of code are not coloured: their marks are a third of a page's nodes.
PLAIN = re.compile(
    r'<span class="(?:n|p|o|w|nn|nb|bp|nd|ne|na|nv|nt|ni|nl|no|py|go|pm|vm|sx|dl)">'
    r"([^<]*)</span>"
)
CODE = re.compile(r'<div class="highlight"><pre>.*?</pre>', re.S)
UNUSED = [
    "**/*.map",
    "scripts/*",  # of the theme; page.js does what of it the book uses
    "doctools.js",
    "language_data.js",
    "searchtools.js",
    "sphinx_highlight.js",
    "webpack-macros.html",
    "sbt-webpack-macros.html",
]


def setup(app):
    app.connect("build-finished", finish)


def finish(app, error):
    if error is not None or app.builder.name != "html":
        return
    out = Path(app.outdir)
    for pattern in UNUSED:
        for path in (out / "_static").glob(pattern):
            path.unlink()
    for path in out.rglob("*.html"):
        if "_static" in path.relative_to(out).parts:
            continue
        text = path.read_text("utf-8")
        mended = mend(text)
        if mended != text:
            path.write_text(mended, "utf-8", newline="\n")
    # Without it GitHub Pages drops every folder whose name begins with an underscore.
    (out / ".nojekyll").touch()


def mend(text: str) -> str:
    return tables(CODE.sub(lambda code: PLAIN.sub(r"\1", code[0]), text))


def tables(text: str) -> str:
    """Make every Markdown table a named region that scrolls in itself."""
    count = itertools.count(1)

    def region(found):
        name = re.search(
            r'<span class="caption-text">.*?</span>|<thead>.*?</thead>', found[1], re.S
        )
        words = re.sub(r"<[^>]+>", " ", name[0]) if name else ""
        words = re.sub(r"[\\$(){}^_\s]+", " ", words).strip().replace('"', "'")
        label = f"Table {next(count)}" + (f": {words}" if words else "")
        start = (
            f'<div class="qp-table" role="region" aria-label="{label}" tabindex="0">'
        )
        return start + found[1]

    return TABLE.sub(region, text)
