"""The search: what it finds and in which order, what it shows, and how it is used."""

import gzip
import json
import re
import sys

import pytest
from conftest import ROOT, documents

sys.path.insert(0, str(ROOT / "_ext"))
from quiet_parts import search

SHOWN = r"""() => [...document.querySelectorAll('.qp-result')].map(page => ({
    page: page.querySelector('h2 a').getAttribute('href'),
    title: page.querySelector('h2').innerText,
    links: [...page.querySelectorAll('h3 a')].map(a => a.getAttribute('href')),
    lines: [...page.querySelectorAll('.qp-found')].map(p => p.textContent),
    marked: [...page.querySelectorAll('mark')].map(m => m.textContent),
}))"""


def ask(page, query) -> list[dict]:
    """Type a query, and read the results as soon as they are those of the query."""
    page.fill(".bd-search-container input", query)
    page.keyboard.press("Enter")
    page.wait_for_function(
        "q => new URLSearchParams(location.search).get('q') === q", arg=query
    )
    return page.evaluate(SHOWN)


@pytest.fixture
def searching(visit):
    page = visit("search.html?q=residual")
    page.wait_for_selector(".qp-result")
    return page


# What is sought, the page that comes first, and a word that is marked on it.
ASKED = [
    ("RMSNorm", "07_rmsnorm", "RMSNorm"),
    ("rmsnorm", "07_rmsnorm", "RMSNorm"),
    ("rms norm", "07_rmsnorm", "RMSNorm"),
    ("Pre-LN", "08_block", "Pre-LN"),
    ("pre-ln", "08_block", "Pre-LN"),
    ("prenorm", "08_block", "Pre-LN"),
    ("SwiGLU", "10_swiglu", "SwiGLU"),
    ("CausalSelfAttention", "02_attention", "CausalSelfAttention"),
    ("filter_logits", "14_generate", "filter_logits"),
    ("top_p", "14_generate", "top-p"),
    ("KV cache", "14_generate", "cache"),
    ("잔차", "05_residual", "잔차"),
    ("잔차 연결", "05_residual", "연결"),
    ("정규화", "06_layernorm", "정규화"),
    ("정규화를", "06_layernorm", "정규화"),
]


@pytest.mark.parametrize("query, first, word", ASKED)
def test_chapter_that_teaches_it_comes_first(searching, query, first, word):
    found = ask(searching, query)
    assert first in found[0]["page"] and word in found[0]["marked"]
    assert not searching.troubles


def test_name_from_the_code_leads_to_its_definition(searching):
    (found,) = ask(searching, "filter_logits")
    assert found["links"][0] == "chapters/14_generate.html#two-ways-to-cut-the-tail"
    assert found["lines"][0].startswith("def filter_logits(")
    assert len(ask(searching, "d_model")) > 5


@pytest.mark.parametrize("query, first", [("atention", "02_"), ("swiglo", "10_")])
def test_mistyped_word_is_found(searching, query, first):
    found = ask(searching, query)
    assert first in found[0]["page"]
    assert "spelled alike" in searching.inner_text("#search-status")


def test_nothing_found_and_nothing_asked(searching):
    """Both say what can be done; the second line is heard, as it is a status."""
    assert searching.get_attribute("#search-status", "role") == "status"
    assert re.match(r"\d+ sections on \d+ pages$", status(searching, "dropout"))
    assert "Nothing holds “zzzzqq”" in status(searching, "zzzzqq")
    assert searching.is_visible("#search-help")
    assert not searching.query_selector(".qp-result")
    searching.fill(".bd-search-container input", "")
    searching.wait_for_function("!document.querySelector('#search-status').textContent")
    assert searching.is_visible("#search-help")
    searching.click("#search-help a >> nth=0")
    searching.wait_for_selector(".qp-result")


def status(page, query) -> str:
    ask(page, query)
    return page.inner_text("#search-status")


def test_search_by_keyboard_alone(visit):
    page = visit("index.html")
    page.keyboard.press("Control+k")
    page.keyboard.type("softmax")
    page.keyboard.press("Enter")
    page.wait_for_url("**/search.html?q=softmax*")
    page.wait_for_selector(".qp-result")
    assert page.is_visible(".qp-result h2")
    page.focus(".bd-search-container input")
    page.keyboard.press("Tab")
    goal = page.evaluate("document.activeElement.href")
    assert page.evaluate("document.activeElement.closest('.qp-result h2')") is not None
    page.keyboard.press("Enter")
    page.wait_for_url(goal)
    assert not page.troubles


def test_search_field_at_the_side_opens(visit):
    page = visit("index.html")
    page.click(".qp-search")
    assert page.is_visible("#pst-search-dialog input")


# What is searched -------------------------------------------------------------------


@pytest.fixture(scope="module")
def index(site):
    return json.loads((site / search.INDEX).read_text("utf-8"))


def test_every_section_can_be_opened(site, index):
    pages, records = index
    assert [page[0] for page in pages] == [f"{name}.html" for name in documents()]
    texts = [(site / page[0]).read_text("utf-8") for page in pages]
    for page, anchor, *_ in records:
        assert f'id="{anchor}"' in texts[page]


def test_text_is_for_readers(index):
    """No TeX, no tag, no JSON: a result shows it as it stands."""
    for _, anchor, heading, text, *_ in index[1]:
        found = re.search(r"\\[a-z]+\{|\$|</?[a-z]+[ >]|\{\"", heading + text)
        assert not found, f"{anchor}: {found}"


def test_weight_of_the_search(site):
    """Text and library together, as a web host compresses them."""
    files = [site / search.INDEX]
    files += (site / "_static").glob("vendor/minisearch/**/*.js")
    files += (site / "_static").glob("quiet-parts/search.js")
    assert len(files) == 3
    assert sum(len(gzip.compress(f.read_bytes())) for f in files) < 320_000


def test_sections_are_taken_apart():
    page = """<article class="bd-article"><section id="a"><h1>A<a class="headerlink"
    >#</a></h1><p>One <span class="math">\\(x + \\gamma\\)</span>.</p>
    <div class="cell qp-export"><pre>class Thing:\n    def inner(self): ...
def _hidden(): ...</pre></div><div class="cell tag_hide-input"><pre>plot()</pre></div>
    <div class="cell_output">printed<figcaption>Seen.</figcaption></div>
    <section id="b"><h2>B</h2><svg><text>drawn</text></svg><p>Two
    <span class="math">\\(\\frac{1}{2}\\)</span></p></section></section></article>"""
    first, second = search.sections(page)
    assert first[:3] == ["a", "A", "One x + γ. Seen."]
    assert first[4] == "Thing" and "plot" not in first[3] and "def inner" in first[3]
    assert second == ["b", "B", "Two …", "", ""]
