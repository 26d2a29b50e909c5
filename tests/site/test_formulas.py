"""Formulas: each is drawn, is read aloud in words, and is copied as TeX."""

import re
import sys

import pytest
from bs4 import BeautifulSoup
from conftest import ROOT, documents

sys.path.insert(0, str(ROOT / "_ext"))
from quiet_parts.formulas import parts

RMS = (
    "rms of x equals the square root of 1 over D the sum from i equals 1 to D of x sub "
    "i squared plus epsilon comma y sub i equals gamma sub i times the fraction with "
    "numerator x sub i and denominator rms of x"
)
JACOBIAN = (
    "the fraction with numerator partial x hat and denominator partial x equals 1 over "
    "s times open paren I minus 1 over D bold 1 bold 1 transpose minus 1 over D x hat x"
    " hat transpose close paren"
)


def formulas(site, name) -> list:
    text = (site / f"{name}.html").read_text("utf-8")
    return BeautifulSoup(text, "html.parser").select(".math")


@pytest.mark.parametrize("name", documents())
def test_every_formula_has_words(site, name):
    for math in formulas(site, name):
        (formula,) = math.select(".qp-formula")
        assert formula["role"] == "img"
        words = formula["aria-label"]
        assert re.search("[A-Za-z0-9]", words), math
        assert not re.search(r"[\\{}$^_]", words), words
        assert math.find("svg"), words


def test_book_has_formulas(site):
    assert sum(len(formulas(site, name)) for name in documents()) > 500


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("chapters/07_rmsnorm", RMS),
        ("chapters/06_layernorm", JACOBIAN),
        ("chapters/01_text", "natural log of 2"),
        ("chapters/05_residual", "N choose k"),
    ],
)
def test_words_of_a_formula(site, name, words):
    spoken = [
        math.select_one(".qp-formula")["aria-label"] for math in formulas(site, name)
    ]
    assert words in spoken, "\n".join(spoken)


def test_a_copied_formula_is_tex(visit):
    page = visit("chapters/07_rmsnorm.html")
    text = page.evaluate(
        """() => {
            const range = document.createRange();
            range.selectNode(document.querySelector('#the-formula div.math'));
            getSelection().addRange(range);
            return getSelection().toString();
        }"""
    )
    assert text.strip().startswith("$$") and r"\sqrt{" in text


def test_a_formula_is_as_large_without_its_font(visit):
    """Its size hangs on the size of the text, and not on the letters' shapes."""
    page = visit("chapters/07_rmsnorm.html")
    drawing = page.query_selector("#the-formula div.math svg")
    before = drawing.bounding_box()["width"]
    page.add_style_tag(content="* { font-family: monospace !important }")
    assert drawing.bounding_box()["width"] == pytest.approx(before, abs=0.01)


@pytest.mark.parametrize("width", [360, 1440])
def test_a_formula_with_a_line_of_its_own_stands_in_the_middle(visit, width):
    page = visit("chapters/07_rmsnorm.html", width=width)
    gaps = page.evaluate(
        """() => [...document.querySelectorAll('div.math')].map(line => {
            const all = line.getBoundingClientRect();
            const drawn = [...line.querySelectorAll('svg')]
                .map(svg => svg.getBoundingClientRect());
            const left = Math.min(...drawn.map(box => box.left));
            const right = Math.max(...drawn.map(box => box.right));
            return [left - all.left, all.right - right];
        })"""
    )
    free = [gap for gap in gaps if sum(gap) > 1]  # a wide one scrolls in its line
    assert free and len(free) >= (len(gaps) if width == 1440 else 1)
    assert all(left == pytest.approx(right, abs=1) for left, right in free), free


@pytest.mark.parametrize(
    ("tex", "found"),
    [
        (r"a = b", [r"a = b"]),
        (r"a = b, \qquad c = d", [r"a = b,", r"c = d"]),
        (r"\left( a \qquad b \right)", [r"\left( a \qquad b \right)"]),
        (r"\text{a \qquad b} \qquad c", [r"\text{a \qquad b}", "c"]),
        (
            r"\begin{cases} a & \qquad b \end{cases} \qquad \{c\}",
            [r"\begin{cases} a & \qquad b \end{cases}", r"\{c\}"],
        ),
    ],
)
def test_a_formula_is_cut_between_its_statements_only(tex, found):
    assert [part for part, _ in parts(tex, True)] == found
    assert parts(tex, False) == [(tex, False)], "one within a line never"


def test_statements_stand_below_each_other_where_there_is_no_room(visit):
    """None of a formula's statements may lie out of sight on a phone."""
    tops = """() => {
        const line = document.querySelector('#the-formula div.math');
        const lines = [...line.querySelectorAll('svg')]
            .map(s => Math.round(s.getBoundingClientRect().bottom / 20));
        return [line.scrollWidth <= line.clientWidth + 1, new Set(lines).size];
    }"""
    for width, lines in ((360, 2), (1440, 1)):
        page = visit("chapters/06_layernorm.html", width=width)
        assert page.evaluate(tops) == [True, lines]


@pytest.mark.parametrize("name", documents())
def test_punctuation_stays_with_its_formula(site, name):
    """A comma after a formula never begins a line."""
    for math in formulas(site, name):
        after = math.next_sibling
        if math.name == "span" and after and re.match("[,.;:!?)]", str(after)):
            assert "qp-keep" in math.parent.get("class", []), math.parent
