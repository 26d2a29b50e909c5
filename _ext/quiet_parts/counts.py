"""Numbers of the book that its pages may state: counted when it is built, never typed.

    {number}`claims` sentences are marked.

The words are the keys of `COUNTS`. The verse below `{verse}` comes from a record.
"""

import json
import re
from collections.abc import Callable, Iterator
from typing import ClassVar

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.util.docutils import SphinxDirective

from minigpt.book import records
from quiet_parts import claims
from quiet_parts.settings import ROOT
from quiet_parts.sources import notebooks

SPEECH = ROOT / "minigpt" / "book" / "records" / "speech.json"


def setup(app):
    app.add_role("number", number)
    app.add_directive("verse", VerseDirective)


def chapters() -> list[dict]:
    """The numbered chapters, each as what its file holds."""
    paths = [path for path in notebooks(ROOT) if path.stem[0].isdigit()]
    return [json.loads(path.read_text("utf-8")) for path in paths]


def cells(kind: str) -> Iterator[dict]:
    for chapter in chapters():
        yield from (cell for cell in chapter["cells"] if cell["cell_type"] == kind)


def outputs() -> int:
    """Stored outputs with text, which a test run compares; images are not compared."""
    found = 0
    for cell in cells("code"):
        for output in cell["outputs"]:
            data = output.get("data", {})
            found += any(k.startswith("text/") for k in data) if data else 1
    return found


def questions() -> int:
    """Each question's folds share a name, which is unique in its chapter."""
    found = 0
    for chapter in chapters():
        text = "".join("".join(cell["source"]) for cell in chapter["cells"])
        found += len(set(re.findall(r'<details name="(quiz-\d+)">', text)))
    return found


def checks() -> int:
    """Cells that judge what the reader wrote in the cell above."""
    names = (cell["id"] for cell in cells("code"))
    return sum(n.startswith("exercise-") and n.endswith("-check") for n in names)


COUNTS: dict[str, Callable[[], int]] = {
    "claims": lambda: len(claims.read(ROOT)),
    "measured": lambda: sum(claim.measured for claim in claims.read(ROOT)),
    "cited": lambda: sum(claim.cited for claim in claims.read(ROOT)),
    "chapters": lambda: len(chapters()),
    "outputs": outputs,
    "questions": questions,
    "checks": checks,
}


def number(name, rawtext, text, lineno, inliner, options=None, content=None):
    """The role: a count of the book, under its name."""
    if text not in COUNTS:
        known = ", ".join(COUNTS)
        message = f"number {text!r} is unknown; choose one of {known}"
        return [], [inliner.reporter.error(message, line=lineno)]
    env = inliner.document.settings.env
    for path in [ROOT / "references.bib", *notebooks(ROOT)]:
        env.note_dependency(str(path))
    return [nodes.Text(f"{COUNTS[text]():,}")], []


class VerseDirective(SphinxDirective):
    """The first lines of a recorded sample, as the model wrote them.

    Its options choose the sample; how it was drawn is said below it.
    """

    option_spec: ClassVar = {
        "temperature": float,
        "seed": directives.nonnegative_int,
        "lines": directives.positive_int,
    }

    def run(self):
        self.env.note_dependency(str(SPEECH))
        speech, want = records.speech(), self.options
        sample = next(
            s
            for s in speech["samples"]
            if (s["temperature"], s["seed"]) == (want["temperature"], want["seed"])
            and s["top_k"] is s["top_p"] is None
        )
        lines = sample["text"].strip().splitlines()[: want["lines"]]
        poem = nodes.line_block(classes=["qp-verse"])
        poem += [nodes.line("", line) for line in lines]
        how = (
            f"Temperature {want['temperature']:g}, seed {want['seed']}, not edited. "
            f"Loss of the model on unseen text: {speech['val_loss']:.2f} nats."
        )
        return [poem, nodes.paragraph("", how, classes=["qp-how"])]
