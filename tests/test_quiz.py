"""The quiz of each chapter: its form, and that what it computes is computed here.

A quiz is Markdown, so that it works on the site, in Colab, on paper, by keyboard and
with a screen reader: an option is a summary that opens to say whether it is right.
"""

import json
import math
import re
from pathlib import Path

import pytest
import torch

from minigpt.attention import CausalSelfAttention
from minigpt.mlp import MLP

ROOT = Path(__file__).resolve().parents[1]
CHAPTERS = sorted(ROOT.glob("chapters/[0-9]*.ipynb"))
OPTION = re.compile(
    r'<details name="quiz-(\d+)"><summary>(.+?)</summary>\n\n(.+?)\n\n</details>',
    re.DOTALL,
)
QUESTION = re.compile(r"^\*\*(\d+)\.\*\* (.+\?)$", re.MULTILINE)
LINK = re.compile(r"\[[^\]]*\]\([^)]*\)")


def quiz(path: Path) -> str:
    cells = json.loads(path.read_text("utf-8"))["cells"]
    found = [c for c in cells if c["id"] == "quiz"]
    assert len(found) == 1, f"{path.stem} needs one cell with the id quiz"
    return "".join(found[0]["source"])


def options(text: str) -> dict[int, list[tuple[str, str]]]:
    """Question -> (option, what it says when opened)."""
    found: dict[int, list[tuple[str, str]]] = {}
    for number, option, says in OPTION.findall(text):
        found.setdefault(int(number), []).append((option, says))
    return found


@pytest.mark.parametrize("path", CHAPTERS, ids=lambda path: path.stem)
def test_quiz_has_its_form(path):
    text = quiz(path)
    assert text.startswith("## Quiz\n") and text.rstrip().endswith("</div>")
    asked = [int(number) for number, _ in QUESTION.findall(text)]
    assert 4 <= len(asked) <= 6 and asked == list(range(1, len(asked) + 1))
    assert list(options(text)) == asked, "every question has options under its number"
    assert text.count("<details") == sum(len(o) for o in options(text).values())


@pytest.mark.parametrize("path", CHAPTERS, ids=lambda path: path.stem)
def test_every_choice_is_explained_and_one_is_right(path):
    places = []
    for number, choices in options(quiz(path)).items():
        assert 3 <= len(choices) <= 5, f"question {number}"
        right = [says.startswith("Right.") for _, says in choices]
        assert sum(right) == 1, f"question {number}: {sum(right)} right answers"
        places.append(right.index(True))
        for option, says in choices:
            assert re.match(r"(Right\.|Wrong[.,:])", says), f"question {number}: {says}"
            assert len(says.split()) >= 8, f"question {number}: {option}: say why"
            assert option[0].isupper() or not option[0].isalpha(), option
            # A summary is HTML: no Markdown and no formula is set in it.
            assert not re.search(r"[$`]|\*\w", option), f"HTML, please: {option}"
    assert len(set(places)) > 1, "the right answer always stands at the same place"


def computed(path: Path) -> set[int]:
    """Questions whose explanation states a number or a formula of its own."""
    needed = set()
    for number, choices in options(quiz(path)).items():
        says = LINK.sub("", " ".join(says for _, says in choices))
        if re.search(r"\$[^$]*\d|(?<!chapter )(?<![\w§])\d", says):
            needed.add(number)
    return needed


@pytest.mark.parametrize("path", CHAPTERS, ids=lambda path: path.stem)
def test_what_an_answer_computes_is_computed_by_a_test(path):
    """A test whose docstring says `quiz: 3` computes question 3 of its chapter."""
    tests = (ROOT / "tests" / f"test_{path.stem[3:]}.py").read_text("utf-8")
    known = {int(number) for number in re.findall(r"quiz: (\d+)", tests)}
    assert computed(path) <= known, f"no test for {sorted(computed(path) - known)}"
    assert known <= set(options(quiz(path))), "a test of a question that is not there"


SELFTEST = ROOT / "selftest.md"


def test_selftest_asks_about_each_of_the_first_chapters():
    text = SELFTEST.read_text("utf-8")
    found = options(text)
    assert list(found) == list(range(1, 10))
    for number, choices in found.items():
        right = [says for _, says in choices if says.startswith("Right.")]
        assert len(right) == 1 and len(choices) >= 3, f"question {number}"
        for _, says in choices:
            assert says.startswith(("Right.", "Wrong.")), f"question {number}: {says}"


def test_a_wrong_answer_of_the_selftest_names_the_section_to_read():
    """Question 1 to 3 are about chapter 1, and so on; the section is there."""
    for number, choices in options(SELFTEST.read_text("utf-8")).items():
        chapter = CHAPTERS[(number - 1) // 3]
        headings = re.findall(r"#+ (.+?)\\n", chapter.read_text("utf-8"))
        slugs = {
            re.sub(r"[^a-z0-9 -]", "", h.lower()).replace(" ", "-") for h in headings
        }
        for _, says in choices:
            if says.startswith("Wrong."):
                link = re.search(r"\(chapters/(\w+)\.ipynb#([\w-]+)\)", says)
                assert link, f"question {number}: {says}"
                assert link[1] == chapter.stem and link[2] in slugs, link[0]


def test_what_the_selftest_computes():
    """Questions 2, 4 and 9."""
    assert round(math.log(65), 1) == 4.2 and round(1 / 65, 3) == 0.015
    torch.manual_seed(0)
    products = torch.randn(20000, 64) * torch.randn(20000, 64)
    assert products.sum(1).var().item() == pytest.approx(64, rel=0.05)
    d = 48
    count = [
        sum(p.numel() for p in part.parameters() if p.ndim == 2)
        for part in (CausalSelfAttention(d, 4), MLP(d, 4 * d))
    ]
    assert count == [4 * d**2, 8 * d**2]


def test_a_quiz_of_wrong_form_is_found():
    """The patterns see what they must."""
    choice = '<details name="quiz-1"><summary>A</summary>\n\n{}\n\n</details>\n'
    text = choice.format("Right. Because.") + choice.format("Wrong. No.")
    assert [says for _, says in options(text)[1]] == ["Right. Because.", "Wrong. No."]
    assert options(text.replace('name="quiz-1"', "")) == {}
    assert QUESTION.findall("**1.** What?\n\nText.") == [("1", "What?")]
    assert QUESTION.findall("**1.** A statement.") == []
