"""Terms in English and Korean, and the link from a term's first use in each chapter.

```{terms}
- term: residual connection
  korean: 잔차 연결
  ours: "`x + f(x)`"
  chapter: residual
  text: One sentence; Markdown and $math$ are set.
  forms: [residual connection, residual]
  only: [residual, block]
```

`forms` are the words that stand for the term in a chapter; without them it is the term
itself and what stands behind it in brackets. `only` names the chapters in which they
mean this term, `except` those in which they mean another thing. A chapter's text knows
nothing of the glossary: the links are made here, so the notebooks stay as they are, in
Colab too.
"""

import re
from functools import lru_cache
from html import escape
from pathlib import Path

import yaml
from docutils import nodes
from docutils.statemachine import StringList
from sphinx.util.docutils import SphinxDirective

from quiet_parts.outline import OUTLINE, chapter_numbers

PAGE = "glossary"
NEEDED = {"term", "text"}
KEYS = NEEDED | {"korean", "ours", "chapter", "forms", "only", "except"}
BLOCK = re.compile(r"^```\{terms\}\n(.*?)^```", re.DOTALL | re.MULTILINE)
# Where no term is linked: headings, code, formulas, links, outputs, tables, quotes.
APART = (
    nodes.title,
    nodes.literal,
    nodes.literal_block,
    nodes.math,
    nodes.math_block,
    nodes.reference,
    nodes.table,
    nodes.block_quote,
    nodes.caption,
)


def setup(app):
    app.add_directive("terms", TermsDirective)
    app.connect("doctree-read", depend)
    app.connect("doctree-resolved", link_first_uses)


class TermsDirective(SphinxDirective):
    has_content = True

    def run(self):
        entries = yaml.safe_load("\n".join(self.content))
        for entry in entries:
            if not NEEDED <= entry.keys() <= KEYS:
                raise self.error(
                    f"a term needs term and text, and knows {sorted(KEYS)}: {entry}"
                )
        self.env.note_dependency(str(OUTLINE))
        listing = nodes.definition_list(classes=["qp-terms"])
        for entry in sorted(entries, key=lambda e: e["term"].lower()):
            listing += self.item(entry)
        return [listing]

    def item(self, entry: dict) -> nodes.definition_list_item:
        term = nodes.term("", entry["term"])
        term["ids"].append(anchor(entry))
        if entry.get("korean"):
            korean = (
                f' <span class="qp-korean" lang="ko">{escape(entry["korean"])}</span>'
            )
            term += nodes.raw("", korean, format="html")
        definition = nodes.definition()
        self.parse(entry["text"], definition)
        notes = [entry["ours"]] if entry.get("ours") else []
        notes += [self.chapter(entry["chapter"])] if entry.get("chapter") else []
        if notes:
            self.parse(" · ".join(notes), definition, "qp-ours")
        return nodes.definition_list_item("", term, definition)

    def chapter(self, name: str) -> str:
        """The chapter that builds it, linked when it is written."""
        number = chapter_numbers().get(name)
        if number is None:
            raise self.error(f"no chapter is called {name!r} in {OUTLINE.name}")
        page = f"chapters/{number:02}_{name}"
        words = f"chapter {number}"
        return f"[{words}]({page}.ipynb)" if page in self.env.found_docs else words

    def parse(self, text: str, parent: nodes.Element, *classes: str) -> None:
        start = len(parent)
        lines = StringList(text.splitlines(), source=self.get_source_info()[0])
        self.state.nested_parse(lines, self.content_offset, parent)
        for node in parent[start:]:
            node["classes"] += classes


# First uses -------------------------------------------------------------------------


def anchor(entry: dict) -> str:
    """The id of a term on the glossary's page."""
    return nodes.make_id(f"term-{entry['term']}")


def forms(entry: dict) -> list[str]:
    """The words that stand for a term in a chapter."""
    if "forms" in entry:
        return entry["forms"]
    base, _, inner = entry["term"].partition(" (")
    return [base, inner.rstrip(")")] if inner else [base]


def read_terms(page: Path) -> list[dict]:
    """The entries of a page, as its `terms` blocks give them."""
    return _read_terms(page, page.stat().st_mtime_ns)


@lru_cache(maxsize=4)
def _read_terms(page: Path, changed: int) -> list[dict]:
    blocks = BLOCK.findall(page.read_text("utf-8"))
    return [entry for block in blocks for entry in yaml.safe_load(block)]


class FirstUses:
    """Finds each term of a chapter once, where it comes first; the longest form wins.

    Args:
        entries: the glossary's entries.
        chapter: the chapter's name, for entries with `only` or `except`.
    """

    def __init__(self, entries: list[dict], chapter: str):
        self.entry = {
            fold(form): entry
            for entry in entries
            if chapter in entry.get("only", [chapter])
            and chapter not in entry.get("except", ())
            for form in forms(entry)
        }
        words = sorted(self.entry, key=lambda word: (-len(word), word))
        any_form = "|".join(pattern(word) for word in words)
        self.search = re.compile(rf"(?<![\w-])(?:{any_form})(?![\w-])").finditer
        self.seen: set[str] = set()

    def pieces(self, text: str) -> list[str | tuple[str, dict]]:
        """The text cut up: what stays as it is, and (words, entry) for a first use."""
        found, end = [], 0
        for match in self.search(text):
            entry = self.lookup(match[0])
            if entry["term"] in self.seen:
                continue
            self.seen.add(entry["term"])
            found += [text[end : match.start()], (match[0], entry)]
            end = match.end()
        return [piece for piece in [*found, text[end:]] if piece]

    def lookup(self, words: str) -> dict:
        """The entry of words as they stand in the text, perhaps in the plural."""
        folded = fold(" ".join(words.split()))
        return next(
            self.entry[word]
            for word in (folded, folded.removesuffix("s"), folded.removesuffix("es"))
            if word in self.entry
        )


def fold(form: str) -> str:
    """Lower case for an ordinary word; a name with capitals inside stays as it is."""
    return form[:1].lower() + form[1:] if form[1:].islower() or not form[1:] else form


def pattern(form: str) -> str:
    """Matches a form, with a capital at the start of a sentence, and its plural."""
    words = r"\s+".join(map(re.escape, form.split(" ")))
    if form[0].islower():
        words = f"[{form[0]}{form[0].upper()}]{words[1:]}"
    return words if form.endswith("s") else f"{words}(?:s|es)?"


def depend(app, doctree):
    """A chapter is read anew when the glossary changes."""
    if is_chapter(app.env.docname):
        app.env.note_dependency(str(Path(app.srcdir) / f"{PAGE}.md"))


def is_chapter(docname: str) -> bool:
    return docname.startswith("chapters/")


def link_first_uses(app, doctree, docname):
    """Turn the first use of each term of a chapter into a link to the glossary."""
    if not is_chapter(docname) or PAGE not in app.env.found_docs:
        return
    if app.builder.format != "html":
        return
    terms = read_terms(Path(app.srcdir) / f"{PAGE}.md")
    uses = FirstUses(terms, re.sub(r"^\d+_", "", Path(docname).name))
    page = app.builder.get_relative_uri(docname, PAGE)
    for text in prose(doctree):
        pieces = uses.pieces(text.astext())
        if any(not isinstance(piece, str) for piece in pieces):
            new = [as_node(piece, page) for piece in pieces]
            text.parent.replace(text, new)


def as_node(piece: str | tuple[str, dict], page: str) -> nodes.Node:
    if isinstance(piece, str):
        return nodes.Text(piece)
    words, entry = piece
    link = nodes.reference("", words, internal=True, classes=["qp-term"])
    link["refuri"] = f"{page}#{anchor(entry)}"
    if not set("$`[") & set(entry["text"]):  # a tooltip is plain text
        link["reftitle"] = entry["text"]
    return link


def prose(doctree) -> list[nodes.Text]:
    """The text of paragraphs that a reader sees at once, in order."""
    found, folds = [], 0
    for node in doctree.findall():
        if isinstance(node, nodes.raw):
            folds += node.astext().count("<details") - node.astext().count("</details")
        elif isinstance(node, nodes.Text) and not folds and is_prose(node):
            found.append(node)
    return found


def is_prose(text: nodes.Text) -> bool:
    in_paragraph, node = False, text.parent
    while node is not None:
        if isinstance(node, APART) or node.get("nb_element") == "cell_code":
            return False
        if "qp-badges" in node.get("classes", ()):
            return False
        in_paragraph |= isinstance(node, nodes.paragraph)
        node = node.parent
    return in_paragraph
