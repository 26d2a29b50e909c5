"""The marked claims: each has evidence, and a broken mark is named."""

import json
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "_ext"))

from quiet_parts.claims import Chapter, ClaimError, claims_of, read  # noqa: E402

CHAPTERS = sorted(ROOT.glob("chapters/[0-9]*.ipynb"))
BIB = """@article{ba2016layer, author={Ba, Jimmy}, title={LN}, year={2016},
url={https://arxiv.org/abs/1607.06450}}"""


def test_every_claim_of_the_book_has_its_evidence():
    assert read(ROOT)


@pytest.mark.parametrize("path", CHAPTERS, ids=lambda path: path.stem)
def test_every_chapter_marks_claims_and_measures_most_of_them(path):
    found = claims_of(Chapter(path))
    assert len(found) >= 5, f"{path.stem} marks {len(found)} claims"
    assert sum(claim.measured for claim in found) >= len(found) / 2


@pytest.mark.parametrize("path", CHAPTERS, ids=lambda path: path.stem)
def test_a_claim_reads_on_its_own(path):
    """On the page of claims no sentence stands before it."""
    leaning = re.compile(r"(So|And|But|It|They|This|That|Here|Now|Yet|Thus)\b(?! is)")
    for claim in claims_of(Chapter(path)):
        assert not leaning.match(claim.text), f"claim-{claim.name}: {claim.text}"
        assert len(claim.text.split()) >= 4, f"claim-{claim.name}: {claim.text}"


def test_no_mark_is_overlooked():
    """A span that opens like a claim is one: not broken over a paragraph's end."""
    for path in CHAPTERS:
        text = "".join("".join(c["source"]) for c in Chapter(path).cells)
        assert text.count('id="claim-') == len(claims_of(Chapter(path))), path.stem


def book(tmp_path: Path, mark: str, output: str = "all three seeds: True\n") -> Path:
    """A book of one chapter with one claim."""
    code = {"cell_type": "code", "id": "verdict", "source": ["SEEDS = book.seeds(3)"]}
    code["outputs"] = [
        {"output_type": "stream", "name": "stdout", "text": [output]},
        {"output_type": "stream", "name": "stdout", "text": ["12 of them\n"]},
    ]
    text = {"cell_type": "markdown", "id": "t", "source": ["# One: what?\n\n", mark]}
    (tmp_path / "chapters").mkdir()
    path = tmp_path / "chapters" / "01_one.ipynb"
    path.write_text(json.dumps({"cells": [text, code]}), "utf-8")
    (tmp_path / "references.bib").write_text(BIB, "utf-8")
    return tmp_path


GOOD = '<span id="claim-a" data-cell="verdict" data-spread="verdict">It holds.</span>'


def test_a_measured_claim_finds_its_verdict(tmp_path):
    (claim,) = read(book(tmp_path, GOOD))
    assert claim.name == "a" and claim.text == "It holds."
    assert claim.verdicts == ["all three seeds: True"]
    assert claim.n_seeds == 3


def test_a_cited_claim_finds_its_source(tmp_path):
    mark = (
        '<span id="claim-a" data-cite="ba2016layer, §3, eq. 4" '
        'data-says="mean &amp; variance">It is so.</span>'
    )
    (claim,) = read(book(tmp_path, mark))
    assert claim.source == ("ba2016layer", "§3, eq. 4")
    assert claim.marks["data-says"] == "mean & variance"


@pytest.mark.parametrize(
    "mark, says",
    [
        ('<span id="claim-a">It is so.</span>', "no evidence"),
        (GOOD.replace('"verdict" data-spread', '"gone" data-spread'), "no code cell"),
        (GOOD.replace("data-spread", "data-spred"), "unknown data-spred"),
        ('<span id="claim-a" data-cell="verdict">It holds.</span>', "speaks of seeds"),
        (GOOD.replace(">It", ' data-verdict="none">It'), "0 fit"),
        (GOOD + "\n\n" + GOOD, "two claims have the name claim-a"),
        ('<span id="claim-a" data-cite="ba2016layer">X.</span>', "needs a place"),
        ('<span id="claim-a" data-cite="ba2016layer, §3">X.</span>', "data-says"),
        (
            '<span id="claim-a" data-cite="no, §3" data-says="x">X.</span>',
            "has no 'no'",
        ),
    ],
)
def test_a_broken_mark_is_named(tmp_path, mark, says):
    with pytest.raises(ClaimError, match=re.escape(says)) as error:
        read(book(tmp_path, mark))
    assert "01_one, claim-a" in str(error.value) or "claim-a" in str(error.value)


def test_a_verdict_that_is_false_is_no_evidence(tmp_path):
    with pytest.raises(ClaimError, match="its verdict is 'all three seeds: False'"):
        read(book(tmp_path, GOOD, "all three seeds: False\n"))


def test_two_verdicts_need_a_choice(tmp_path):
    output = "first: True\nsecond: True\n"
    with pytest.raises(ClaimError, match="2 fit"):
        read(book(tmp_path, GOOD, output))
    chosen = GOOD.replace(">It", ' data-verdict="second">It')
    (tmp_path / "other").mkdir()
    (claim,) = read(book(tmp_path / "other", chosen, output))
    assert claim.verdicts == ["second: True"]


def test_an_indented_verdict_is_shown_with_the_line_above_it(tmp_path):
    output = "every seed:\n  small: True\nevery layer:\n  small: True\n"
    mark = GOOD.replace(">It", ' data-verdict="every layer: small">It')
    (claim,) = read(book(tmp_path, mark, output))
    assert claim.verdicts == ["every layer: small: True"]


def test_a_verdict_under_another_one_continues_it(tmp_path):
    output = "without warm-up it fails: True\n           with it, not: True\n"
    mark = GOOD.replace(">It", ' data-verdict="with it, not">It')
    (claim,) = read(book(tmp_path, mark, output))
    assert claim.verdicts == ["without warm-up it fails; with it, not: True"]


def test_a_heading_that_speaks_of_seeds_asks_for_the_spread(tmp_path):
    mark = '<span id="claim-a" data-cell="verdict">It holds.</span>'
    with pytest.raises(ClaimError, match="speaks of seeds"):
        read(book(tmp_path, mark, "every seed:\n  small: True\n"))


def test_a_cell_with_seeds_of_its_own_says_how_many(tmp_path):
    root = book(tmp_path, GOOD)
    path = root / "chapters" / "01_one.ipynb"
    text = path.read_text("utf-8")
    path.write_text(
        text.replace("SEEDS = book.seeds(3)", "for seed in range(5): f"), "utf-8"
    )
    (claim,) = read(root)
    assert claim.n_seeds == 5


def test_a_spread_without_seeds_is_none(tmp_path):
    root = book(tmp_path, GOOD)
    path = root / "chapters" / "01_one.ipynb"
    text = path.read_text("utf-8")
    path.write_text(text.replace("SEEDS = book.seeds(3)", "f()"), "utf-8")
    with pytest.raises(ClaimError, match="how many seeds"):
        read(root)
