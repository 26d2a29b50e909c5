r"""What the search page searches: one record for each section, read from the pages.

Sphinx's own index knows the stems of English words and the pages that hold them. It
finds no part of a name, no Korean word with its particle and no section, and it loads
every page found to show a line of it. `search.json` holds the text itself. In it
MiniSearch finds, and `_assets/quiet-parts/search.js` shows the line and leads to the
section. Only the search page loads any of this.
"""

import json
import re
from pathlib import Path

from bs4 import BeautifulSoup

from quiet_parts.glossary import PAGE as GLOSSARY
from quiet_parts.glossary import read_terms
from quiet_parts.outline import written

INDEX = "_static/search.json"
HEAVY = re.compile(r"<(svg|script|style)\b.*?</\1>", re.S)
ARTICLE = re.compile(r'<article class="bd-article.*?</article>', re.S)
# Beside the text of a page: marks, controls, the words on folds, and the claims of the
# page *Claims*, which stand in the chapters.
APART = ".headerlink, .qp-controls, .qp-export-note, .qp-badges, nav, form, summary"
APART += ", li[id^=claim-], .qp-uses"
# Folded code draws figures and prepares; what enters the package is kept.
FOLDED = ":is(.tag_hide-input, .tag_hide-cell):not(.qp-export) pre"
# Every one is a record, at its own anchor.
RECORDS = "section[id], dt[id], .qp-sources li[id]"
BLOCKS = "p, li, dt, dd, tr, figcaption, h1, h2, h3, h4, h5, h6"
DEFINED = re.compile(r"^(?:class|def) ([^\W_]\w*)|^([A-Z][A-Z_]+)(?:: [^=]+)? = ", re.M)
SIGNS = {"times": "×", "cdot": "·", "le": "≤", "ge": "≥", "approx": "≈", "to": "→"}
SIGNS |= {"gamma": "γ", "beta": "β", "sigma": "σ", "mu": "μ", "alpha": "α"}
SIGNS |= {"epsilon": "ε", "varepsilon": "ε", "lambda": "λ", "ln": "ln", "log": "log"}


def setup(app):
    app.connect("builder-inited", leave_out_sphinx_index)
    app.connect("html-collect-pages", search_page)
    app.connect("build-finished", write_index)


def leave_out_sphinx_index(app):
    app.builder.search = False


def search_page(app):
    return [("search", {"title": "Search"}, "search.html")]


def write_index(app, error):
    if error is not None or app.builder.name != "html":
        return
    taught = terms_of_pages(app)
    pages, records = [], []
    for name in in_order(app):
        number = re.fullmatch(r"chapters/(\d+)_\w+", name)
        title = app.env.titles[name].astext()
        pages.append([f"{name}.html", title, number[1] if number else ""])
        text = (Path(app.outdir) / f"{name}.html").read_text("utf-8")
        for place, record in enumerate(sections(text)):
            terms = taught.get(name, "") if place == 0 else ""
            records.append([len(pages) - 1, *record, terms])
    data = json.dumps([pages, records], ensure_ascii=False, separators=(",", ":"))
    (Path(app.outdir) / INDEX).write_text(data, "utf-8", newline="\n")


def in_order(app) -> list[str]:
    """Every page, as the table of contents orders them."""
    trees = app.config.external_site_map.root.subtrees
    return [app.config.root_doc] + [str(page) for tree in trees for page in tree.items]


def terms_of_pages(app) -> dict[str, str]:
    """The glossary's terms, in both languages, by the page that builds them."""
    taught, pages = {}, written(app)
    glossary = Path(app.srcdir) / f"{GLOSSARY}.md"
    for entry in read_terms(glossary) if glossary.is_file() else ():
        words = " ".join(filter(None, (entry["term"], entry.get("korean"))))
        taught.setdefault(pages.get(entry.get("chapter")), []).append(words)
    return {page: " · ".join(words) for page, words in taught.items()}


def sections(page: str) -> list[list[str]]:
    """Anchor, heading, text, code and defined names of each section of a page."""
    soup = BeautifulSoup(ARTICLE.search(HEAVY.sub("", page))[0], "html.parser")
    for formula in soup.select(".math"):
        tex = formula.select_one(".qp-tex") or formula
        formula.replace_with(readable(tex.get_text()))
    for part in soup.select(f"{APART}, {FOLDED}"):
        part.decompose()
    for output in soup.select(".cell_output"):  # what a cell printed is not searched
        output.replace_with(*[c.extract() for c in output.select("figcaption")])
    records = []
    # The inner sections come out first, so that no text stands in two records.
    for section in reversed(soup.select(RECORDS)):
        record = [section["id"], *take(section)]
        if any(record[1:]):
            records.append(record)
    return records[::-1]


def take(section) -> tuple[str, str, str, str]:
    """Remove a section from its page and return what it holds."""
    if section.name == "dt":
        definition = section.find_next_sibling("dd").extract()
        return plain(section.extract()), plain(definition), "", ""
    section.extract()
    heading = section.find(re.compile("h[1-3]"))
    heading = plain(heading.extract()) if heading else ""
    names, code = [], []
    for cell in section.select("pre"):
        code.append(cell.get_text().strip())
        if cell.find_parent(class_="qp-export"):
            names += [a or b for a, b in DEFINED.findall(code[-1])]
        cell.extract()
    return heading, plain(section), "\n".join(code), " ".join(names)


def plain(element) -> str:
    """The words of an element; what stands in blocks of its own is kept apart."""
    for block in element.select(BLOCKS):
        block.append(" ")
    for cell in element.select("td, th"):
        cell.append(" · ")
    return re.sub(r"\s+", " ", element.get_text()).strip(" ·")


def readable(tex: str) -> str:
    """A formula as it can stand in a line of text; dots for one that cannot."""
    tex = re.sub(r"^(\$\$?|\\\(|\\\[)|(\$\$?|\\\)|\\\])$", "", tex.strip()).strip()
    tex = re.sub(r"\\(?:text|mathrm)\{([^{}]*)\}", r"\1", tex)
    tex = re.sub(r"\\([A-Za-z]+) ?", lambda m: SIGNS.get(m[1], m[0]), tex)
    tex = tex.replace("\\,", " ").replace("{,}", ",")
    return tex if len(tex) <= 40 and not re.search(r"[\\^_{}&]", tex) else "…"
