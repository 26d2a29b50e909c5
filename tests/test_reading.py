"""Reading aids without a browser: the stated times are fair, and are counted so."""

import json
import re
import statistics
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "_ext"))

from quiet_parts.claims import read as read_claims  # noqa: E402
from quiet_parts.onepage import (  # noqa: E402
    PageError,
    check,
    difference,
    opening,
    read_page,
)
from quiet_parts.outline import after  # noqa: E402
from quiet_parts.reading import count, estimate, spoken, stated  # noqa: E402

from minigpt import ladder  # noqa: E402
from tools.reading_time import FAIR  # noqa: E402

CHAPTERS = sorted(ROOT.glob("chapters/[0-9]*.ipynb"))


@pytest.mark.parametrize("path", CHAPTERS, ids=lambda path: path.stem)
def test_stated_time_is_fair(path):
    """python tools/reading_time.py shows what was counted."""
    says, needs = stated(path), estimate(path)
    assert says, "the first cell states no time: *Reading 35 min · ...*"
    assert says % 5 == 0, "five minutes are as exact as this can be"
    assert needs / FAIR <= says <= needs * FAIR, f"says {says} min, needs {needs:.0f}"


def notebook(tmp_path: Path, *cells: tuple) -> Path:
    """A notebook of cells: (kind, source, tags, outputs), the last two if wanted."""
    made = []
    for kind, source, *rest in cells:
        tags, outputs = [*rest, [], []][:2]
        cell = {"cell_type": kind, "source": [source], "metadata": {"tags": tags}}
        made.append(cell | ({"outputs": outputs} if kind == "code" else {}))
    path = tmp_path / "01_one.ipynb"
    path.write_text(json.dumps({"cells": made}), "utf-8")
    return path


def test_what_is_read_is_counted(tmp_path):
    stream = {"output_type": "stream", "name": "stdout", "text": ["a\n", "b\n"]}
    figure = {
        "output_type": "display_data",
        "data": {"text/html": ['<figure class="qp-figure">']},
    }
    path = notebook(
        tmp_path,
        ("markdown", "# One: what?\n\n*Reading 10 min · x*"),
        ("markdown", "one [two](https://a.b/c) $x + y + z$ three\n\n$$a + b$$"),
        ("markdown", "<details><summary>Four five</summary>\n\nnot this\n</details>"),
        ("markdown", "## Next\n\n```\nnot this\n```"),
        ("code", "a = 1\n\nb = 2", [], [stream, figure]),
        ("code", "c = 3", ["hide-input"], [figure]),
        ("code", "d = 4", ["hide-cell"], [figure]),
        ("code", "e = 5", ["remove-cell"]),
        ("markdown", "## Exercises\n\nwith a time of its own"),
        ("code", "f = 6"),
        ("markdown", "## What we know now"),
    )
    assert stated(path) == 10
    # title, its line, one two (x x) three, the summary, ## Next, ## What we know now
    words = 3 + 5 + 5 + 2 + 2 + 5
    assert count(path) == {
        "words": words,
        "formulas": 1,
        "code": 2,
        "printed": 2,
        "figures": 2,
    }


def test_a_time_that_is_not_stated_is_none(tmp_path):
    assert stated(notebook(tmp_path, ("markdown", "# One: what?"))) is None


@pytest.mark.parametrize(
    "total, words",
    [(0, "0 min"), (35, "35 min"), (60, "1 h"), (130, "2 h 10 min")],
)
def test_times_are_said_in_words(total, words):
    assert spoken(total) == words


def part(name: str, *times: int | None, here: int | None = None) -> dict:
    pages = [{"current": i == here, "minutes": time} for i, time in enumerate(times)]
    total = sum(time or 0 for time in times)
    return {"caption": f"{name} · x", "pages": pages, "time": total and spoken(total)}


@pytest.mark.parametrize(
    "here, words",
    [
        ((0, 0), "After this chapter, 50 min of Part I are left."),
        ((0, 2), "Part I ends here. Part II takes 1 h."),
        ((1, 0), "The book's chapters end here."),
        ((0, 1), ""),  # a page without a time is no chapter
        ((2, 0), ""),
    ],
)
def test_a_chapter_ends_with_what_is_left(here, words):
    times = {"Part I": [40, None, 50], "Part II": [60], "Appendix": [None]}
    parts = [
        part(name, *own, here=here[1] if i == here[0] else None)
        for i, (name, own) in enumerate(times.items())
    ]
    assert after(parts) == words


# One page -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def known():
    return {claim.name: claim for claim in read_claims(ROOT)}


def test_the_page_agrees_with_package_and_claims(known):
    check(read_page()["parts"], known)


@pytest.mark.parametrize(
    "key, value, words",
    [
        ("code", "x = x + self.attn(x) + x", "no line of residual.py"),
        ("code", "x = x + self.attn", "no line of residual.py"),  # a piece of a line
        ("claims", ["nobody-said-so"], "no claim 'nobody-said-so'"),
        ("but", "nobody-said-so", "no claim 'nobody-said-so'"),
    ],
)
def test_what_does_not_stand_in_the_book_stops_the_page(known, key, value, words):
    part = read_page()["parts"][0] | {key: value}
    with pytest.raises(PageError, match=words):
        check([part], known)


def test_numbers_of_the_page_come_from_the_record():
    """The paired difference of the residual rung, from the record without our code."""
    path = ROOT / "minigpt" / "book" / "records" / "ladder.json"
    rows = json.loads(path.read_text("utf-8"))["runs"]
    losses = {
        (row["rung"], row["seed"]): row["val_loss"]
        for row in rows
        if row["part"] == "ladder" and row["n_layers"] == 12
    }
    seeds = {seed for _, seed in losses}
    changed = [losses["residual", s] - losses["plain", s] for s in seeds]
    mean, spread = statistics.fmean(changed), statistics.stdev(changed)
    text = difference("residual")
    assert text == f"**−{abs(mean):.3f} ± {spread:.3f}** against the plain stack."
    assert f"{len(seeds)} seeds" in opening(read_page()["opening"])


def test_no_result_is_typed_by_hand():
    """Beside the page's own formulas, no decimal number stands in its source."""
    text = (ROOT / "_ext" / "onepage.yml").read_text("utf-8")
    prose = re.sub(r"^\s*(formula|code|#).*$", "", text, flags=re.MULTILINE)
    assert not re.findall(r"\d+\.\d+", prose)


def test_every_quiet_part_has_its_place():
    """One for each rung above the ground, and no chapter that does not exist."""
    parts = read_page()["parts"]
    chapters = {path.stem.split("_")[1] for path in CHAPTERS}
    assert {part["chapter"] for part in parts} <= chapters
    shown = {r for part in parts for r in part.get("ladder", ()) if isinstance(r, str)}
    assert shown == set(ladder.RUNGS) - {"plain"}
