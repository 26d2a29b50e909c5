"""What a page may cost a reader: bytes, first paint, shifts, answers, scripts.

Measured in Chromium over a host that packs text, as GitHub Pages does. `wire` is what
comes over the network, headers included. Slow 4G is 1.6 Mbit/s with 150 ms a request; a
phone's processor is a quarter of a desktop's, whatever this machine is and does.
"""

import json
import re

import pytest
from conftest import SHOTS, documents, serve
from speed import GzipHost, Meter

PAGES = [*documents(), "search"]
# The landing page, the longest chapter, one with many formulas, one with much Korean.
SAMPLE = ["index", "chapters/04_depth", "chapters/08_block", "glossary"]
FIRST = 900_000  # bytes
LATER = 250_000
SEARCHED = 400_000  # the search page, which brings the text of the whole book
PAINT = 1500  # milliseconds
SHIFT = 0.05
ANSWER = 100  # milliseconds

# Every script that a page loads, with what it does there.
EVERYWHERE = {
    "quiet-parts/page.js": "light and dark, search field, menus",
    "quiet-parts/progress.js": "marks what has been read",
}
CODE = {
    "clipboard.min.js": "copies code",
    "copybutton.js": "its buttons",
    "documentation_options.js": "where the site's root is, which copybutton.js reads",
}
NOTES = {"quiet-parts/notes.js": "opens citations and terms in place"}
LADDER = {"quiet-parts/ladder.js": "shows what a rung adds"}
SEARCH = {"quiet-parts/search.js": "searches"}


@pytest.fixture(scope="module")
def host(site):
    with serve(GzipHost, site) as address:
        yield address


@pytest.fixture
def meter(browser):
    meters = []

    def make(**options):
        meters.append(Meter(browser, **options))
        return meters[-1]

    yield make
    for each in meters:
        each.close()


@pytest.mark.parametrize("name", PAGES)
def test_weight(meter, host, name):
    """A first visit, and one after the landing page (or a first chapter) was read.

    The first is on a wide screen, the second on a narrow one; nothing moves on either.
    """
    first = meter()
    cost = first.open(f"{host}{name}.html")
    before = "index" if name != "index" else "chapters/01_text"
    warm = meter()
    warm.open(f"{host}{before}.html")
    narrow = Meter(None, context=warm.context)
    narrow.page.set_viewport_size({"width": 360, "height": 740})
    later = narrow.open(f"{host}{name}.html")
    shift = max(cost["cls"], later["cls"])
    note(name, first=cost["wire"], later=later["wire"], shift=shift)
    heavy = sorted(first.bytes.items(), key=lambda item: -item[1])[:5]
    assert cost["wire"] < FIRST, heavy
    assert later["wire"] < (SEARCHED if name == "search" else LATER), heavy
    assert shift < SHIFT, [cost["shifts"], later["shifts"]]


@pytest.mark.parametrize("name", PAGES)
def test_scripts(site, name):
    """No script on a page that does not use it."""
    text = (site / f"{name}.html").read_text("utf-8")
    text = re.sub(r"<style\b.*?</style>", "", text, flags=re.S)
    loaded = re.findall(r'<script[^>]*\bsrc="(?:\.\./)*_static/([^"?]+)', text)
    wanted = dict(EVERYWHERE)
    if re.search(r'class="(?:[^"]*\s)?(?:cell_input|highlight-shell)\b', text):
        wanted |= CODE
    if "data-note=" in text:
        wanted |= NOTES
    if "qp-ladder" in text:
        wanted |= LADDER
    if name == "search":
        wanted |= SEARCH
    assert sorted(loaded) == sorted(wanted)


@pytest.mark.parametrize("name", SAMPLE)
def test_first_paint(meter, host, name):
    """The largest part of the first screen, on slow 4G with a phone's processor.

    A busy machine slows it down, nothing makes it faster: the best of three counts.
    """
    tries = []
    while len(tries) < 3 and not (tries and min(tries)[0] < PAINT):
        phone = meter(width=412, height=823).slow()
        seen = phone.open(f"{host}{name}.html")
        phone.close()
        tries.append((seen["lcp"], seen["what"], f"processor {phone.cpu:.1f} slower"))
        assert seen["cls"] < SHIFT, seen["shifts"]
    note(name, paint=min(tries)[0])
    assert min(tries)[0] < PAINT, tries


@pytest.mark.parametrize("width", [360, 1366])
@pytest.mark.parametrize("name", SAMPLE)
def test_late_fonts_move_nothing(meter, host, name, width):
    late = meter(width=width, height=800)
    GzipHost.fonts.clear()
    try:
        late.page.goto(f"{host}{name}.html", wait_until="commit")
        late.page.wait_for_function("document.readyState !== 'loading'")
        late.page.wait_for_timeout(500)
        assert late.page.evaluate("seen.lcp") > 0, "words wait for their font"
    finally:
        GzipHost.fonts.set()
    late.page.evaluate("document.fonts.ready.then(() => 1)")
    late.page.wait_for_timeout(300)
    assert "loaded" in late.page.evaluate("[...document.fonts].map(f => f.status)")
    seen = late.page.evaluate("seen")
    assert seen["cls"] < SHIFT, seen["shifts"]


def test_explorables_answer_at_once(meter, host, site):
    """The slowest of all interactions, with a phone's processor.

    Where this machine is busy with other things, the best of three visits counts.
    """
    slow = {}
    for name in documents():
        if "qp-explorable" not in (site / f"{name}.html").read_text("utf-8"):
            continue
        tries = []
        while len(tries) < 3 and not (tries and min(tries) < ANSWER):
            phone = meter().slow(network=False)
            tries.append(answer(phone, f"{host}{name}.html"))
            phone.close()
        note(name, answer=min(tries))
        if min(tries) >= ANSWER:
            slow[name] = tries
    assert not slow


def answer(visit, address: str) -> float:
    """The longest time from a key press in a figure to the next paint."""
    visit.open(address)
    controls = visit.page.query_selector_all(".qp-explorable :is(input, select)")
    assert controls
    for control in controls:
        control.scroll_into_view_if_needed()
        visit.page.wait_for_timeout(100)  # what scrolling paints is not an answer
        control.focus()
        slider = control.evaluate("c => c.type === 'range'")
        for key in ("End", "ArrowLeft") if slider else ("ArrowDown", "ArrowUp"):
            control.press(key)
            visit.page.wait_for_timeout(60)
    visit.page.wait_for_timeout(300)
    return visit.page.evaluate("Math.max(...seen.answers, 0)")


def note(name: str, **values) -> None:
    """Keep what was measured, for people to read: `_build/shots/budgets.json`."""
    SHOTS.mkdir(parents=True, exist_ok=True)
    path = SHOTS / "budgets.json"
    kept = json.loads(path.read_text("utf-8")) if path.is_file() else {}
    kept.setdefault(name, {}).update({k: round(v, 3) for k, v in values.items()})
    path.write_text(json.dumps(kept, indent=1), "utf-8")
