"""Reading aids on the built pages: progress, time to read, notes that open in place."""

import gzip
import json
import re

import pytest
from conftest import ROOT, chapters, documents

KEY = "the-quiet-parts"
MOMENT = 1700  # a little longer than a section must be looked at
PAGE = "chapters/03_mlp"
SECTIONS = "[...document.querySelectorAll('.bd-article > section > section[id]')]"


def keep(page, **kept):
    """Put what was read into the browser, and open the page again."""
    page.evaluate("([k, v]) => localStorage.setItem(k, v)", [KEY, json.dumps(kept)])
    page.reload(wait_until="load")


def kept(page) -> dict:
    return json.loads(page.evaluate("k => localStorage.getItem(k)", KEY) or "{}")


def look_at(page, anchor):
    page.evaluate("id => document.getElementById(id).scrollIntoView()", anchor)
    page.mouse.wheel(0, 200)
    page.wait_for_timeout(MOMENT)


# Progress -----------------------------------------------------------------------------


def test_scripts_of_the_reading_aids_are_small(site):
    """Together below 6 kB on the wire, and they hold up no page."""
    own = sorted((site / "_static" / "quiet-parts").glob("*.js"))
    names = {"progress.js", "notes.js"}
    size = sum(len(gzip.compress(p.read_bytes())) for p in own if p.name in names)
    assert 0 < size < 6000
    for name in documents():
        text = (site / f"{name}.html").read_text("utf-8")
        for tag in re.findall(
            r"<script[^>]*quiet-parts/(?:progress|notes)[^>]*>", text
        ):
            assert "defer" in tag


def test_a_section_that_was_looked_at_is_kept(visit):
    page = visit(f"{PAGE}.html")
    ids = page.evaluate(f"{SECTIONS}.map(s => s.id)")
    look_at(page, ids[1])
    assert kept(page)["pages"][PAGE] == {"seen": [ids[1]], "of": len(ids)}
    assert kept(page)["at"]["id"] == ids[1]
    mark = page.locator(f'.qp-nav li[data-page="{PAGE}"] .qp-mark')
    assert mark.get_attribute("aria-label") == "begun"
    assert not page.troubles


def test_scrolling_past_is_not_reading(visit):
    page = visit(f"{PAGE}.html")
    for anchor in page.evaluate(f"{SECTIONS}.map(s => s.id)"):
        page.evaluate("id => document.getElementById(id).scrollIntoView()", anchor)
        page.wait_for_timeout(60)
    page.evaluate("scrollTo(0, 0)")
    page.wait_for_timeout(MOMENT)
    assert kept(page) == {}


def test_a_chapter_is_read_when_all_its_sections_were_seen(visit):
    page = visit(f"{PAGE}.html")
    ids = page.evaluate(f"{SECTIONS}.map(s => s.id)")
    pages = {PAGE: {"seen": ids[1:-1], "of": len(ids)}}
    keep(page, pages=pages)
    look_at(page, ids[0])
    assert "read" not in kept(page)["pages"][PAGE]
    page.evaluate("scrollTo(0, document.body.scrollHeight)")  # the last one is short
    page.wait_for_timeout(MOMENT)
    assert kept(page)["pages"][PAGE]["read"] is True
    assert page.is_checked(".qp-end input")


def test_the_reader_says_that_a_chapter_is_read(visit):
    page = visit(f"{PAGE}.html")
    row = page.locator(f'.qp-nav li[data-page="{PAGE}"]')
    page.locator(".qp-end input").focus()
    page.keyboard.press("Space")
    assert row.locator(".qp-mark.qp-read").count() == 1
    page.keyboard.press("Space")
    assert row.locator(".qp-mark").count() == 0


def test_landing_page_says_where_to_go_on(visit):
    page = visit("index.html")
    line = page.locator(".qp-progress")
    built = line.inner_text()
    assert re.fullmatch(r"14 chapters, \d+ h \d+ min of reading\. .*", built)
    pages = {"chapters/01_text": {"read": True}, PAGE: {"seen": ["x"], "of": 4}}
    at = {"page": PAGE, "id": "why-bend", "title": "Why bend?"}
    keep(page, pages=pages, at=at)
    assert "1 of 14 chapters read" in line.inner_text()
    assert page.locator(".qp-chapters .qp-mark.qp-read").count() == 1
    assert page.locator(".qp-chapters .qp-mark").count() == 2
    assert page.is_visible(".bd-article .qp-kept")
    line.get_by_role("link", name="chapter 03, “Why bend?”").click()
    page.wait_for_url(f"**/{PAGE}.html#why-bend")
    assert page.is_visible("#why-bend")
    assert not page.troubles


def test_after_a_chapter_the_next_one_is_offered(visit):
    page = visit("index.html")
    at = {"page": "chapters/01_text", "id": "x", "title": "x"}
    keep(page, pages={"chapters/01_text": {"read": True}}, at=at)
    assert page.locator(".qp-progress a").inner_text() == "chapter 02"
    everything = {name: {"read": True} for name in chapters()}
    keep(page, pages=everything, at=at)
    assert page.locator(".qp-progress").inner_text() == "14 of 14 chapters read."


@pytest.mark.parametrize("name", ["index", PAGE])
def test_what_was_kept_can_be_forgotten(visit, name):
    page = visit(f"{name}.html")
    before = page.locator(".qp-left").all_inner_texts()
    keep(page, pages={"chapters/01_text": {"read": True}})
    assert page.locator(".qp-left").all_inner_texts() != before
    button = page.locator(".qp-kept button")
    assert button.count() == 1
    button.focus()
    page.keyboard.press("Enter")
    assert kept(page) == {}
    assert not page.is_visible(".qp-kept")
    assert page.locator(".qp-mark").count() == 0
    assert page.locator(".qp-left").all_inner_texts() == before
    assert page.evaluate("document.activeElement.tagName") == "A"


@pytest.mark.parametrize("width", [360, 768, 1440])
@pytest.mark.parametrize("name", ["index", PAGE])
def test_progress_moves_nothing(visit, name, width):
    """Each line and link stands where it stands without anything kept."""
    places = """() => [...document.querySelectorAll(
        '.bd-article h2, .qp-chapters li, .qp-nav li, .qp-prev-next')]
        .map(e => Math.round(e.getBoundingClientRect().top + scrollY))"""
    page = visit(f"{name}.html", width=width)
    before = page.evaluate(places)
    keep(page, pages={n: {"seen": ["x"], "of": 3} for n in chapters()[:12]})
    page.wait_for_timeout(300)
    after = page.evaluate(places)
    if name == "index" and width == 360:  # the line to go on may be one line longer
        assert max(abs(a - b) for a, b in zip(before, after)) < 24
    else:
        assert before == after


@pytest.mark.parametrize("stored", ["{", "null", "{}", "[]", '{"pages": {"x": {}}}'])
def test_what_cannot_be_read_does_no_harm(visit, stored):
    page = visit("index.html")
    page.evaluate("([k, v]) => localStorage.setItem(k, v)", [KEY, stored])
    page.reload(wait_until="load")
    assert "chapters" in page.locator(".qp-progress").inner_text()
    assert not page.troubles


@pytest.mark.parametrize("name", ["index", PAGE])
def test_works_where_nothing_can_be_kept(visit, address, name):
    """As with all cookies refused: reading the storage itself is an error."""
    page = visit("index.html")
    source = f"{address}{name}.html"
    page.evaluate(
        """source => { document.body.innerHTML =
            `<iframe sandbox="allow-scripts" width="1200" height="800" src="${source}">`
        }""",
        source,
    )
    frame = page.frame_locator("iframe")
    frame.locator(".qp-nav").wait_for()
    page.wait_for_timeout(500)
    assert frame.locator(".qp-left").first.inner_text()
    assert not frame.locator(".qp-end input").is_visible()
    assert not frame.locator(".qp-kept").is_visible()
    assert frame.locator("html").get_attribute("data-theme") == "light"
    wrong = [t for t in page.troubles if "script" in t]
    assert not wrong


@pytest.mark.parametrize("name", ["index", PAGE])
def test_without_script_there_are_times_and_no_empty_controls(visit, name):
    page = visit(f"{name}.html", java_script_enabled=False)
    assert page.locator(".qp-left").count() == 3
    assert not page.locator(".qp-end input").is_visible()
    assert not page.is_visible(".qp-kept")
    if name != "index":
        assert "are left" in page.inner_text(".qp-end") or "ends" in page.inner_text(
            ".qp-end"
        )


def test_times_come_from_the_chapters(site):
    """The chapter list, and the sum of all, from the line in each first cell."""
    text = (site / "index.html").read_text("utf-8")
    shown = re.findall(r'class="qp-minutes">(\d+) min', text)
    stated = [
        re.search(r"\*Reading (\d+) min", (ROOT / f"{n}.ipynb").read_text("utf-8"))[1]
        for n in chapters()
    ]
    assert shown == stated
    hours, rest = divmod(sum(map(int, stated)), 60)
    assert f"{hours} h {rest} min of reading" in text


def test_a_thin_line_shows_the_place_in_the_chapter(visit, browser, address):
    """It is as long as what was scrolled; with reduced motion it is not there."""
    page = visit(f"{PAGE}.html")
    width = "document.querySelector('.qp-line').getBoundingClientRect().width"
    page.evaluate("scrollTo(0, document.body.scrollHeight)")
    assert page.evaluate(width) == 0
    page.emulate_media(reduced_motion="no-preference")
    page.wait_for_timeout(300)
    whole = page.evaluate(width)
    assert whole > 300
    page.evaluate(
        "scrollTo({top: document.body.scrollHeight / 2, behavior: 'instant'})"
    )
    page.wait_for_timeout(300)
    assert 0.4 < page.evaluate(width) / whole < 0.6
