"""The site by keyboard, enlarged, without motion, and in the system's own colours."""

import pytest
from conftest import documents
from test_pages import too_wide

STOP = """() => {
    const here = document.activeElement, box = here.getBoundingClientRect();
    if (here === document.body) return null;
    const ring = [here, here.closest('form')].filter(Boolean).map(getComputedStyle)
        .some(s => s.outlineStyle !== 'none' && parseFloat(s.outlineWidth) >= 1);
    const bar = document.querySelector('.bd-header-article');
    const top = document.elementFromPoint(box.left + box.width / 2, box.top + 2);
    window.stops ??= [];
    const before = stops.at(-1), begun = stops.length > 0;
    stops.push(here);
    return {
        name: `${here.tagName} ${here.className} ${here.textContent.trim()}`,
        ring,
        seen: box.bottom > 0 && box.top < innerHeight && box.width > 0,
        covered: bar.contains(top) && !bar.contains(here),
        tall: box.height > innerHeight - bar.offsetHeight,  // it cannot be shown whole
        ordered: !begun || here === before || Boolean(
            before.compareDocumentPosition(here) & Node.DOCUMENT_POSITION_FOLLOWING),
    };
}"""


def test_skip_link(visit):
    page = visit("chapters/04_depth.html")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.hash") == "#main-content"
    box = page.evaluate("document.activeElement.getBoundingClientRect().toJSON()")
    assert box["top"] >= 0 and box["height"] > 10
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.closest('main') !== null")


@pytest.mark.parametrize("width", [360, 1366])
@pytest.mark.parametrize("name", [*documents(), "search", "404"])
def test_focus_is_seen_and_goes_in_order(visit, name, width):
    """From the top of the page to its end, and out of it again."""
    page = visit(f"{name}.html", width=width, height=700)
    for _ in range(1000):
        page.keyboard.press("Tab")
        stop = page.evaluate(STOP)
        if stop is None:
            break
        assert stop["ring"], f"no ring: {stop['name'][:60]}"
        assert stop["seen"], f"out of sight: {stop['name'][:60]}"
        assert stop["tall"] or not stop["covered"], f"behind bar: {stop['name'][:60]}"
        assert stop["ordered"], f"goes back: {stop['name'][:60]}"
    else:
        raise AssertionError("a thousand stops, and no end")
    assert page.evaluate("stops.length") >= 8


def test_folds_open_by_key(visit):
    page = visit("chapters/04_depth.html")
    fold = page.query_selector(".bd-article details:not([open])")
    fold.query_selector("summary").focus()
    for key, state in (("Enter", True), ("Space", False)):
        page.keyboard.press(key)
        assert fold.evaluate("d => d.open") is state


@pytest.mark.parametrize("name", documents())
def test_nothing_moves_by_itself(visit, name):
    """With reduced motion no animation runs, but what follows the reader's scroll."""
    page = visit(f"{name}.html")
    running = page.evaluate(
        """document.getAnimations()
            .filter(a => a.timeline instanceof DocumentTimeline).length"""
    )
    assert running == 0


@pytest.mark.parametrize("size", [(720, 450), (320, 640)], ids=["200%", "400%"])
@pytest.mark.parametrize("name", documents())
def test_enlarged(visit, name, size):
    """1440 x 900 at 200 %, and the 320 pixels that WCAG 1.4.10 asks for."""
    width, height = size
    page = visit(f"{name}.html", width=width, height=height)
    assert not too_wide(page)
    bar = page.evaluate(
        "document.querySelector('.bd-header-article').getBoundingClientRect().height"
    )
    assert bar < height / 4, "the bar covers the page"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_colours_of_the_system(visit, scheme):
    """Forced colours: words, formulas and figures have the system's colour of text."""
    page = visit("chapters/07_rmsnorm.html", scheme, forced_colors="active")
    colours = page.evaluate(
        """() => {
            const probe = document.body.appendChild(document.createElement('p'));
            probe.style.color = 'CanvasText';
            const colour = (part, of = 'color') => getComputedStyle(part)[of];
            const find = selector => document.querySelector(selector);
            return {
                wanted: colour(probe),
                words: colour(find('.bd-article p')),
                formula: colour(find('.qp-formula svg g'), 'fill'),
                code: colour(find('.highlight pre')),
                slider: colour(find('.qp-controls input[type=range]'), 'appearance'),
            };
        }"""
    )
    assert colours.pop("slider") == "auto"
    assert set(colours.values()) == {colours["wanted"]}, colours
