"""The claims of the book: where each is made, and what stands behind it.

A chapter marks a claim in its prose with a span, which Colab and JupyterLab show as the
plain sentence:

    <span id="claim-rms-scale" data-cell="invariance">RMSNorm does not notice how long
    its input is.</span>

    id            "claim-" and a name, unique in the book
    data-cell     a code cell of the chapter whose verdict, a line ending in True,
                  shows it
    data-verdict  how that line begins, where the cell prints more than one; a line that
                  is indented may be named with the line that it stands under
    data-spread   the cell that shows all seeds; needed when the verdict speaks of seeds
    data-cite     key of references.bib, a comma, and the place in it: "ba2016layer, §3"
    data-says     what the source says there, in our words; goes with data-cite

A claim is measured (data-cell), cited (data-cite and data-says), or both. A claim
without evidence, or whose verdict is not True, stops the build.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from html.parser import HTMLParser
from pathlib import Path

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.util.docutils import SphinxDirective

from quiet_parts.sources import entries, family, notebooks

MARK = re.compile(r'(<span\b[^>]*\bid="claim-[^>]*>)(.*?)</span>', re.DOTALL)
ALLOWED = {
    "id",
    "data-cell",
    "data-verdict",
    "data-spread",
    "data-cite",
    "data-says",
}
SEEDS = re.compile(r"\bbook\.seeds\((\d+)\)")
OWN_SEEDS = re.compile(r"\bfor (?:seed|s) in range\((\d+)\)")
PAGE = "claims"


class ClaimError(ValueError):
    """Everything that is wrong with the claims, one line each."""


@dataclass(frozen=True)
class Chapter:
    """What is needed of a notebook: its cells by id, and its seeds."""

    path: Path

    @cached_property
    def cells(self) -> list[dict]:
        return json.loads(self.path.read_text("utf-8"))["cells"]

    @cached_property
    def code(self) -> dict[str, dict]:
        return {c["id"]: c for c in self.cells if c["cell_type"] == "code"}

    @cached_property
    def title(self) -> str:
        return "".join(self.cells[0]["source"]).splitlines()[0].removeprefix("# ")

    @property
    def name(self) -> str:
        return self.path.stem

    def n_seeds(self, cell: str) -> int | None:
        """How many seeds a cell shows: its own number of them, or the chapter's."""
        sources = ["".join(c["source"]) for c in self.code.values()]
        found = [OWN_SEEDS.search("".join(self.code[cell]["source"]))]
        found += [SEEDS.search(source) for source in sources]
        return next((int(match[1]) for match in found if match), None)

    def printed(self, cell: str) -> list[str]:
        """The lines that a cell printed, as they are stored."""
        streams = (
            out for out in self.code[cell]["outputs"] if out["output_type"] == "stream"
        )
        return "".join("".join(out["text"]) for out in streams).splitlines()


@dataclass(frozen=True)
class Claim:
    """A marked sentence: its Markdown, and the evidence that its mark names."""

    chapter: Chapter
    name: str
    text: str
    marks: dict[str, str] = field(default_factory=dict)

    @property
    def measured(self) -> bool:
        return "data-cell" in self.marks

    @property
    def cited(self) -> bool:
        return "data-cite" in self.marks

    @property
    def source(self) -> tuple[str, str]:
        """Key of the bibliography, and the place in that work."""
        key, _, place = self.marks["data-cite"].partition(",")
        return key.strip(), place.strip()

    @cached_property
    def verdicts(self) -> list[str]:
        """The printed lines that the mark may mean: it must be exactly one."""
        start = self.marks.get("data-verdict", "")
        lines = self.chapter.printed(self.marks["data-cell"])
        return [
            whole
            for line, whole in in_context(lines)
            if line.startswith(start) or whole.startswith(start)
        ]

    @property
    def n_seeds(self) -> int | None:
        return self.chapter.n_seeds(self.marks["data-spread"])

    def problems(self, known: set[str]) -> list[str]:
        """What keeps the claim from being one; `known` are the bibliography's keys."""
        unknown = set(self.marks) - ALLOWED
        found = [f"unknown {word}" for word in sorted(unknown)]
        if not (self.measured or self.cited):
            found.append("no evidence: give data-cell, or data-cite with data-says")
        found += self._problems_of_the_measurement() if self.measured else []
        found += self._problems_of_the_source(known) if self.cited else []
        return [f"{self.chapter.name}, claim-{self.name}: {what}" for what in found]

    def _problems_of_the_measurement(self) -> list[str]:
        cells = [self.marks[m] for m in ("data-cell", "data-spread") if m in self.marks]
        missing = [cell for cell in cells if cell not in self.chapter.code]
        if missing:
            return [f"the chapter has no code cell {cell!r}" for cell in missing]
        if len(self.verdicts) != 1:
            return [
                f"data-verdict must choose one line of cell {cells[0]!r}; "
                f"{len(self.verdicts)} fit: {self.verdicts}"
            ]
        line = self.verdicts[0]
        found = [] if line.endswith("True") else [f"its verdict is {line!r}"]
        of_seeds = "seed" in line.replace("same seed", "")
        if of_seeds and "data-spread" not in self.marks:
            found.append("its verdict speaks of seeds: data-spread must show them")
        if "data-spread" in self.marks and not self.n_seeds:
            found.append(f"cell {cells[1]!r} does not say over how many seeds")
        return found

    def _problems_of_the_source(self, known: set[str]) -> list[str]:
        key, place = self.source
        found = [] if key in known else [f"references.bib has no {key!r}"]
        if not place:
            found.append("data-cite needs a place: 'key, §2'")
        if not self.marks.get("data-says"):
            found.append("data-says must tell what the source says there")
        return found


def is_verdict(line: str) -> bool:
    return line.rstrip().endswith(("True", "False"))


def in_context(lines: list[str]) -> Iterator[tuple[str, str]]:
    """Each verdict alone, and together with the lines that it is indented under."""
    for number, line in enumerate(lines):
        if not is_verdict(line):
            continue
        whole, depth = " ".join(line.split()), indent(line)
        for above in reversed(lines[:number]):
            if above.strip() and indent(above) < depth:
                depth = indent(above)
                heading = re.sub(r":\s*(True|False)$", ";", above.strip())
                whole = f"{heading} {whole}"
        yield line.strip(), whole


def indent(line: str) -> int:
    return len(line) - len(line.lstrip())


class Marks(HTMLParser):
    """The attributes of one opening tag."""

    def __init__(self, tag: str):
        super().__init__()
        self.found: dict[str, str] = {}
        self.feed(tag)

    def handle_starttag(self, tag, attrs):
        self.found = {name: value or "" for name, value in attrs}


def claims_of(chapter: Chapter) -> list[Claim]:
    """The claims of a chapter in the order of its text."""
    found = []
    for cell in chapter.cells:
        if cell["cell_type"] != "markdown":
            continue
        for tag, text in MARK.findall("".join(cell["source"])):
            marks = Marks(tag).found
            name = marks["id"].removeprefix("claim-")
            found.append(Claim(chapter, name, " ".join(text.split()), marks))
    return found


def read(root: Path) -> list[Claim]:
    """Every claim of the book, checked. Raises ClaimError with all that is wrong."""
    chapters = [Chapter(path) for path in notebooks(root)]
    found = [claim for chapter in chapters for claim in claims_of(chapter)]
    known = set(entries(root / "references.bib"))
    problems = [problem for claim in found for problem in claim.problems(known)]
    names = [claim.name for claim in found]
    twice = sorted({name for name in names if names.count(name) > 1})
    problems += [f"two claims have the name claim-{name}" for name in twice]
    if problems:
        raise ClaimError("\n".join(problems))
    return found


# On the site -------------------------------------------------------------------------


def setup(app):
    app.add_directive("claims", ClaimsDirective)
    app.connect("doctree-read", name_cells)
    app.connect("doctree-read", mark_claims)


def name_cells(app, doctree):
    """Give every code cell an address, so that a claim can point at its evidence."""
    path = Path(app.env.doc2path(app.env.docname))
    if path.suffix != ".ipynb":
        return
    cells = Chapter(path).cells
    for node in doctree.findall(nodes.container):
        if node.get("nb_element") == "cell_code":
            node["ids"].append(f"cell-{cells[node['cell_index']]['id']}")


def mark_claims(app, doctree):
    """Behind each marked sentence, a small link to its evidence."""
    if PAGE not in app.env.found_docs:
        return
    page = app.builder.get_relative_uri(app.env.docname, PAGE)
    for opening in list(doctree.findall(nodes.raw)):
        marks = Marks(opening.astext()).found
        if not marks.get("id", "").startswith("claim-"):
            continue
        siblings = opening.parent.children
        after = siblings[siblings.index(opening) :]
        closing = next(
            n for n in after if isinstance(n, nodes.raw) and n.astext() == "</span>"
        )
        kind = "measured" if "data-cell" in marks else "cited"
        link = (
            f'<a class="qp-evidence qp-{kind}" href="{page}#{marks["id"]}" '
            f'title="{kind}" aria-label="Evidence: {kind}"></a>'
        )
        place = siblings.index(closing) + 1
        if place < len(siblings) and isinstance(siblings[place], nodes.Text):
            # Behind the punctuation, as a footnote's number.
            text = siblings[place].astext()
            rest = text.lstrip(",.;:")
            opening.parent[place] = nodes.Text(text[: len(text) - len(rest)])
            opening.parent.insert(place + 1, nodes.Text(rest))
            place += 1
        opening.parent.insert(place, nodes.raw("", link, format="html"))


class ClaimsDirective(SphinxDirective):
    """All claims, a section for each chapter."""

    def run(self):
        root = Path(self.env.srcdir)
        for path in [root / "references.bib", *notebooks(root)]:
            self.env.note_dependency(str(path))
        found = read(root)
        self.works = entries(root / "references.bib")
        measured = sum(claim.measured for claim in found)
        cited = sum(claim.cited for claim in found)
        both = measured + cited - len(found)
        total = f"{len(found)} claims: {measured} measured, {cited} cited, {both} of "
        total += "them both."
        sections = [nodes.paragraph("", total)]
        for chapter in dict.fromkeys(claim.chapter for claim in found):
            own = [claim for claim in found if claim.chapter == chapter]
            sections.append(self.section(chapter, own))
        return sections

    def section(self, chapter: Chapter, found: list[Claim]) -> nodes.section:
        number = int(chapter.name.split("_")[0])
        title = f"{number} · {chapter.title.split(':')[0]}"
        section = nodes.section(ids=[nodes.make_id(f"chapter-{number}")])
        section += nodes.title("", title)
        listing = nodes.bullet_list(classes=["qp-claims"])
        for claim in found:
            listing += self.item(claim)
        section += listing
        return section

    def item(self, claim: Claim) -> nodes.list_item:
        item = nodes.list_item("", ids=[f"claim-{claim.name}"])
        text = re.sub(r"\]\((\d\d_\w+\.ipynb)", r"](chapters/\1", claim.text)
        text = text[0].upper() + text[1:].rstrip(".") + "."
        self.state.nested_parse(StringList([text], self.env.docname), 0, item)
        sentence = next(item.findall(nodes.paragraph))
        sentence += nodes.Text(" ")
        sentence += self.link(claim, f"claim-{claim.name}", "in its place")
        sentence[-1]["classes"].append("qp-place")
        if claim.measured:
            item += self.measurement(claim)
        if claim.cited:
            item += self.citation(claim)
        return item

    def link(self, claim: Claim, anchor: str, words: str) -> nodes.reference:
        page = f"chapters/{claim.chapter.name}"
        uri = self.env.app.builder.get_relative_uri(self.env.docname, page)
        return nodes.reference("", words, refuri=f"{uri}#{anchor}", internal=True)

    def measurement(self, claim: Claim) -> nodes.paragraph:
        line = nodes.paragraph("", "Measured: ", classes=["qp-measured"])
        line += nodes.literal("", claim.verdicts[0])
        line += nodes.Text(" (")
        line += self.link(claim, f"cell-{claim.marks['data-cell']}", "cell")
        spread = claim.marks.get("data-spread")
        if spread:
            line += nodes.Text(f", {claim.n_seeds} seeds")
        if spread and spread != claim.marks["data-cell"]:
            line += nodes.Text(", their ")
            line += self.link(claim, f"cell-{spread}", "spread")
        line += nodes.Text(")")
        return line

    def citation(self, claim: Claim) -> nodes.paragraph:
        key, place = claim.source
        entry = self.works[key]
        people = entry.persons["author"]
        names = [family(person) for person in people]
        who = " & ".join(names) if len(names) < 3 else f"{names[0]} et al."
        line = nodes.paragraph("", "Cited: ", classes=["qp-cited"])
        words = f"{who}, {entry.fields['year']}, {place}"
        line += nodes.reference("", words, refuri=entry.fields["url"])
        line += nodes.Text(f": {claim.marks['data-says']}")
        return line
