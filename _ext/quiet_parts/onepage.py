"""The quiet parts on one page, from `_ext/onepage.yml`: it prints on one sheet.

Nothing on it is typed twice: a line of code must stand in the package, a measured
sentence is a claim of its chapter, a number comes from the record of chapter 13.
"""

import re
from pathlib import Path
from statistics import fmean

import yaml
from docutils import nodes
from docutils.statemachine import StringList
from sphinx.util.docutils import SphinxDirective

from minigpt import ladder
from minigpt.book import diagram, records
from quiet_parts import claims
from quiet_parts.ladder import signed
from quiet_parts.outline import chapter_numbers
from quiet_parts.settings import ROOT

PARTS = ROOT / "_ext" / "onepage.yml"
RECORD = "book/records/ladder.json"
NAMES = {
    "plain": "the plain stack",
    "residual": "no norm",
    "post": "the norm after the addition",
    "pre": "LayerNorm",
    "rmsnorm": "the same without",
}
BLOCKS = 12  # the deeper of the two depths that were recorded


class PageError(ValueError):
    """What of the page does not agree with the book."""


def setup(app):
    app.add_directive("onepage", OnePageDirective)


def read_page() -> dict:
    """The page's "opening" and its "parts"."""
    return yaml.safe_load(PARTS.read_text("utf-8"))


def check(parts: list[dict], known: dict[str, claims.Claim]) -> None:
    """Raise PageError with every line of code and every claim that is not there."""
    wrong = []
    for part in parts:
        module = ROOT / "minigpt" / f"{part['module']}.py"
        lines = [line.split("  #")[0].strip() for line in module.open(encoding="utf-8")]
        if part["code"] not in lines:
            wrong.append(f"{part['name']}: no line of {module.name}: {part['code']}")
        named = [*part.get("claims", ()), *filter(None, [part.get("but")])]
        wrong += [f"{part['name']}: no claim {n!r}" for n in named if n not in known]
    if wrong:
        raise PageError("\n".join(wrong))


def runs(part: str, depth: int = BLOCKS) -> dict[str, list[ladder.Run]]:
    return ladder.by_rung(records.ladder()["runs"], part=part, n_layers=depth)


def difference(
    rung: str, part: str = "ladder", depth: int = BLOCKS, words: str = ""
) -> str:
    """What a rung changed: mean and spread over seeds of the loss minus that below."""
    rows = {row["rung"]: row for row in ladder.summary(runs(part, depth))}
    found = rows[rung]["difference"]
    where = (
        f" {words}, with {depth} blocks"
        if words
        else f" against {NAMES[rows[rung]['below']]}"
    )
    return f"**{signed(found.mean)} ± {found.spread:.3f}**{where}."


def opening(text: str) -> str:
    """What stands above the parts, with its numbers from the record."""
    plain = runs("ladder")["plain"]
    frequencies = records.ladder()["setting"]["frequencies_only"]
    return text % {
        "blocks": BLOCKS,
        "loss": f"{fmean(run.val_loss for run in plain):.2f}",
        "frequencies": f"{frequencies:.2f}",
        "seeds": len(plain),
    }


class OnePageDirective(SphinxDirective):
    def run(self):
        root = Path(self.env.srcdir)
        text = read_page()
        modules = [f"{part['module']}.py" for part in text["parts"]]
        package = [ROOT / "minigpt" / name for name in [*modules, RECORD]]
        for path in [PARTS, *package, *claims.notebooks(root)]:
            self.env.note_dependency(str(path))
        self.known = {claim.name: claim for claim in claims.read(root)}
        check(text["parts"], self.known)
        page = nodes.container(classes=["qp-onepage"])
        self.parse(opening(text["opening"]), page)
        grid = nodes.container(classes=["qp-parts"])
        for part in text["parts"]:
            grid += self.card(part)
        page += grid
        return [page]

    def card(self, part: dict) -> nodes.section:
        card = nodes.section(ids=[nodes.make_id(f"part-{part['name']}")])
        card["classes"].append("qp-part")
        number = chapter_numbers()[part["chapter"]]
        card += nodes.title("", part["name"])
        if "drawing" in part:
            kinds = dict(part["drawing"])
            svg = diagram.rung(kinds.pop("order"), **kinds).svg(hidden=True)
            card += nodes.raw("", f'<div class="qp-small">{svg}</div>', format="html")
        path = f"chapters/{number:02}_{part['chapter']}.ipynb"
        self.parse(f"{part['formula']} · [chapter {number}]({path})", card)
        code = nodes.literal_block(part["code"], part["code"], language="python")
        card += code
        for word, text in self.lines(part):
            self.parse(f"*{word}* {text}", card)
        return card

    def lines(self, part: dict) -> list[tuple[str, str]]:
        """What stands below a part's code: a word, and sentences in Markdown."""
        found = []
        for rung in part.get("ladder", ()):
            rung = {"rung": rung} if isinstance(rung, str) else rung
            found.append(difference(**rung))
        found += [self.sentence(name) for name in part["claims"]]
        refuted = self.evidence(part["but"]) if "but" in part else ""
        denied = part["not"][0].lower() + part["not"][1:]
        return [
            ("Fixes.", part["fixes"]),
            ("Costs.", part["costs"]),
            ("Measured.", " ".join(found)),
            ("Does not", denied + refuted),
        ]

    def sentence(self, name: str) -> str:
        claim = self.known[name]
        text = re.sub(r"\]\((\d\d_\w+\.ipynb)", r"](chapters/\1", claim.text)
        text = text[0].upper() + text[1:].rstrip(".") + "."
        return f"{text}{self.evidence(name)}"  # no space: no line of its own

    def evidence(self, name: str) -> str:
        page = self.env.app.builder.get_relative_uri(self.env.docname, claims.PAGE)
        return (
            f'<a class="qp-evidence qp-measured" href="{page}#claim-{name}" '
            'title="measured" aria-label="Evidence: measured"></a>'
        )

    def parse(self, text: str, parent: nodes.Element) -> None:
        lines = StringList([text], source=self.get_source_info()[0])
        self.state.nested_parse(lines, self.content_offset, parent)
