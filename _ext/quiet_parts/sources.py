"""The list of references: `references.bib`, and where the book links to each entry.

Chapters cite by plain links, so that they read the same on the site, in Colab and in
JupyterLab. An entry's `url` is the address that they link to.
"""

import json
import re
from html import escape
from pathlib import Path

from docutils import nodes
from pybtex.database import Entry, parse_string
from pybtex.richtext import Text
from sphinx.util.docutils import SphinxDirective

# Addresses of works: a link to one of these must have an entry.
WORK = re.compile(
    r"https?://(?:www\.)?(?:arxiv\.org|(?:dx\.)?doi\.org|aclanthology\.org|openreview\.net"
    r"|(?:papers\.nips\.cc|proceedings\.neurips\.cc)|proceedings\.mlr\.press|jmlr\.org)"
    r"/[^\s)>\"'\]`\\]+"
)


def setup(app):
    app.add_directive("sources", SourcesDirective)


def same(url: str) -> str:
    """The part of an address that names the work: no scheme, fragment, version."""
    url = (
        re.sub(r"^https?://(www\.)?", "", url.strip()).partition("#")[0].rstrip("/.,;")
    )
    if url.startswith("arxiv.org/"):
        url = re.sub(r"^arxiv\.org/(pdf|html|abs)/", "arxiv.org/abs/", url)
        url = re.sub(r"(v\d+)?(\.pdf)?$", "", url)
    return url


def entries(path: Path) -> dict[str, Entry]:
    """Key -> entry of the bibliography."""
    return dict(parse_string(path.read_text("utf-8"), "bibtex").entries)


def notebooks(root: Path) -> list[Path]:
    """The chapters' notebooks, in order."""
    return sorted(root.glob("chapters/[0-9]*.ipynb"))


def pages(root: Path) -> dict[str, str]:
    """Page -> its text (Markdown only), for the chapters and pages that can cite."""
    found = {}
    for path in notebooks(root):
        cells = json.loads(path.read_text("utf-8"))["cells"]
        text = "\n\n".join(
            "".join(c["source"]) for c in cells if c["cell_type"] == "markdown"
        )
        found[f"chapters/{path.stem}"] = text
    for path in sorted(root.glob("*.md")):
        if path.stem.islower():  # README and the like are no pages of the book
            found[path.stem] = path.read_text("utf-8")
    return found


def used_in(root: Path) -> dict[str, list[str]]:
    """Every address in a page, by what it names -> the pages that link to it."""
    uses: dict[str, list[str]] = {}
    for page, text in pages(root).items():
        for url in sorted(
            {same(u) for u in re.findall(r"https?://[^\s)>\"'\]`]+", text)}
        ):
            uses.setdefault(url, []).append(page)
    return uses


class SourcesDirective(SphinxDirective):
    required_arguments = 1

    def run(self):
        _, path = self.env.relfn2path(self.arguments[0])
        root = Path(self.env.srcdir)
        self.env.note_dependency(path)
        for page in pages(root):
            suffix = ".ipynb" if page.startswith("chapters/") else ".md"
            self.env.note_dependency(str(root / (page + suffix)))
        uses = used_in(root)
        found = entries(Path(path))
        listing = nodes.bullet_list(classes=["qp-sources"])
        for key in sorted(found, key=lambda key: order(found[key])):
            listing += self.item(key, found[key], uses)
        return [listing] if found else []

    def item(
        self, key: str, entry: Entry, uses: dict[str, list[str]]
    ) -> nodes.list_item:
        fields = {name: plain(value) for name, value in entry.fields.items()}
        url = fields.get("url") or f"https://doi.org/{fields['doi']}"
        place = (
            fields.get("booktitle")
            or fields.get("journal")
            or fields.get("howpublished")
        )
        line = nodes.paragraph("", f"{authors(entry)}, {fields['year']}. ")
        line += nodes.reference("", fields["title"].rstrip("."), refuri=url)
        stop = "" if fields["title"].rstrip(".")[-1] in "?!" else "."
        line += nodes.Text(stop if not place else f"{stop} ")
        if place:
            line += nodes.emphasis("", place)
            line += nodes.Text(".")
        item = nodes.list_item("", line)
        item["ids"].append(nodes.make_id(key))
        where = [p for p in uses.get(same(url), ()) if p in self.env.found_docs]
        if where:
            links = ", ".join(self.link(page) for page in where)
            item += nodes.raw(
                "", f'<p class="qp-uses">Used in {links}</p>', format="html"
            )
        return item

    def link(self, page: str) -> str:
        number = re.fullmatch(r"chapters/(\d+)_(\w+)", page)
        title = self.env.titles[page].astext().partition(": ")[0]
        words = f"{number[1]} {title}" if number else title
        href = self.env.app.builder.get_relative_uri(self.env.docname, page)
        return f'<a href="{escape(href, quote=True)}">{escape(words)}</a>'


def authors(entry: Entry) -> str:
    """Names in reading order; of more than three the first and "et al."."""
    people = entry.persons.get("author") or entry.persons.get("editor") or []
    names = [" ".join([*given(p), family(p)]) for p in people]
    if len(names) > 3:
        return f"{names[0]} et al."
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def given(person) -> list[str]:
    return [plain(name) for name in person.first_names + person.middle_names]


def family(person) -> str:
    return plain(" ".join(person.prelast_names + person.last_names))


def order(entry: Entry) -> tuple:
    people = entry.persons.get("author") or entry.persons.get("editor") or []
    return ([family(p).lower() for p in people[:1]], entry.fields["year"])


def plain(text: str) -> str:
    """BibTeX markup away: braces, accents, dashes, ties."""
    return str(Text.from_latex(text)).replace("--", "–").replace("\xa0", " ")
