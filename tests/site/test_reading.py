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


# Resolves when the browser has told every observer where the page stands.
TOLD = """() => new Promise(done =>
    new IntersectionObserver(done).observe(document.body))"""


@pytest.mark.parametrize("passed", ["all", "the first", "the last"])
def test_scrolling_past_is_not_reading(visit, passed):
    """The clock is the test's own: a slow machine reads no faster."""
    page = visit(f"{PAGE}.html")
    page.clock.install()
    ids = page.evaluate(f"{SECTIONS}.map(s => s.id)")
    some = {"all": ids, "the first": ids[:1], "the last": ids[-1:]}[passed]
    page.clock.pause_at(page.evaluate("Date.now()") + 1000)
    for anchor in some:
        page.evaluate("id => document.getElementById(id).scrollIntoView()", anchor)
        page.evaluate(TOLD)
        page.clock.run_for(60)
    page.evaluate("scrollTo(0, 0)")
    page.evaluate(TOLD)
    page.clock.run_for(2 * MOMENT)
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
    page.reload()  # the first visit of all may still be set in the system's font
    page.wait_for_timeout(300)
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


# Notes --------------------------------------------------------------------------------

CITES = "chapters/05_residual"
WORK = 'a[data-note="cite-he2016identity"]'
TERM = "a.qp-term[data-note]"
AXE = ROOT / "_build" / "test-assets" / "axe-core" / "axe.min.js"


def works() -> dict[str, dict[str, str]]:
    """Key of the bibliography -> its fields, read without the site's own code."""
    text = (ROOT / "references.bib").read_text("utf-8")
    found = {}
    for key, body in re.findall(r"^@\w+\{(\w+),\n(.*?)^\}", text, re.S | re.M):
        fields = re.findall(r"^\s*(\w+) = \{(.*)\},?$", body, re.M)
        found[key] = {name: re.sub(r"[{}]", "", value) for name, value in fields}
    return found


@pytest.mark.parametrize("name", chapters())
def test_every_citation_and_every_term_has_its_note(site, name):
    """Each link to a work of the bibliography, each term, and no note too many."""
    text = (site / f"{name}.html").read_text("utf-8")
    body, _, _ = text.partition("<template")
    notes = dict(
        re.findall(r'<template id="note-([^"]+)">(.*?)</template>', text, re.S)
    )
    named = re.findall(r'href="([^"]+)" data-note="([^"]+)"', body)
    assert {note for _, note in named} == notes.keys()
    known = works()
    article = body[body.index("<article") :]
    for key, fields in known.items():
        linked = f'href="{fields["url"]}"' in article
        assert linked <= (f"cite-{key}" in notes), key
        if linked:
            assert fields["year"] in notes[f"cite-{key}"]
            assert f'references.html#{key}"' in notes[f"cite-{key}"]
    terms = re.findall(r'class="[^"]*qp-term[^"]*"[^>]*#(term-[^"]+)"', article)
    assert set(terms) <= notes.keys()


def test_script_of_the_notes_is_where_notes_are(site):
    for name in documents():
        text = (site / f"{name}.html").read_text("utf-8")
        assert ("quiet-parts/notes.js" in text) == ("data-note=" in text), name
    assert "data-note=" not in (site / "references.html").read_text("utf-8")


@pytest.mark.parametrize("key", ["Enter", "Space"])
@pytest.mark.parametrize("width", [360, 768, 1280, 1440])
def test_a_citation_opens_and_closes_by_key(visit, width, key):
    page = visit(f"{CITES}.html", width=width)
    link = page.locator(WORK).first
    assert link.get_attribute("aria-expanded") == "false"
    link.focus()
    page.keyboard.press(key)
    note = page.locator("#qp-note")
    assert link.get_attribute("aria-expanded") == "true"
    assert link.get_attribute("aria-controls") == "qp-note"
    assert "Identity Mappings in Deep Residual Networks" in note.inner_text()
    assert "Kaiming He et al., 2016" in note.inner_text()
    assert f"Cited: {link.inner_text().split(', ')[-1]}" in note.inner_text()
    assert page.url.endswith(f"{CITES}.html")
    page.keyboard.press("Tab")  # into the note, which follows its link
    assert page.evaluate("document.activeElement.textContent") == "Read the source"
    page.keyboard.press("Escape")
    assert note.count() == 0
    assert link.get_attribute("aria-expanded") == "false"
    assert link.evaluate("a => a === document.activeElement")
    page.keyboard.press(key)
    page.keyboard.press(key)
    assert note.count() == 0, "the same key closes it"
    assert not page.troubles


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 768, 1280, 1440])
def test_an_open_note_is_in_the_page_and_covers_no_contents(visit, width, scheme):
    """Beside the line where there is room, else below it; axe finds nothing."""
    page = visit(f"{CITES}.html", scheme, width=width)
    for kind in (WORK, TERM):
        link = page.locator(kind).first
        link.click()
        note = page.locator("#qp-note")
        box, line = note.bounding_box(), link.bounding_box()
        assert box["x"] >= 0 and box["x"] + box["width"] <= width
        side = page.locator(".bd-sidebar-secondary").bounding_box()
        if side and page.is_visible(".page-toc"):
            assert box["x"] + box["width"] <= side["x"]
        if width >= 1440:
            assert "qp-note-beside" in note.get_attribute("class")
            assert abs(box["y"] - line["y"]) < 12
        else:
            assert "qp-note-below" in note.get_attribute("class")
            assert line["y"] < box["y"] < line["y"] + line["height"] + 60
        after = "a => a.closest('p').nextElementSibling.getBoundingClientRect().top"
        ends = "a => a.closest('p').getBoundingClientRect().bottom"
        assert link.evaluate(after) >= link.evaluate(ends)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        page.evaluate(AXE.read_text("utf-8"))
        wrong = page.evaluate(
            """async () => (await axe.run('p:has(#qp-note)')).violations
                .map(v => `${v.id}: ${v.nodes.map(n => n.html)}`)"""
        )
        assert not wrong


def test_one_note_is_open_at_a_time_and_the_line_stays(visit):
    page = visit(f"{CITES}.html", width=360, height=740)
    links = page.locator(TERM)
    links.nth(0).click()
    links.nth(3).scroll_into_view_if_needed()
    before = links.nth(3).bounding_box()["y"]
    links.nth(3).click()
    assert page.locator("#qp-note").count() == 1
    assert abs(links.nth(3).bounding_box()["y"] - before) < 2
    page.get_by_role("button", name="Close").click()
    assert page.locator("#qp-note").count() == 0
    assert links.nth(3).evaluate("a => a === document.activeElement")


@pytest.mark.parametrize("width", [1280, 1440])
def test_the_mouse_opens_a_note_when_it_rests(visit, width):
    page = visit(f"{CITES}.html", width=width)
    link = page.locator(WORK).first
    link.scroll_into_view_if_needed()
    place = "a => a.closest('p').nextElementSibling.getBoundingClientRect().top"
    before = link.evaluate(place)
    link.hover()
    page.wait_for_timeout(150)
    assert page.locator("#qp-note").count() == 0, "passing over a link opens nothing"
    page.wait_for_timeout(500)
    assert page.locator("#qp-note").count() == 1
    assert link.evaluate(place) == before, "the mouse moves no text"
    page.locator("#qp-note").hover()
    page.wait_for_timeout(500)
    assert page.locator("#qp-note").count() == 1, "its links can be reached"
    page.mouse.move(5, 5)
    page.wait_for_timeout(500)
    assert page.locator("#qp-note").count() == 0


def test_a_new_tab_opens_the_paper_itself(visit):
    page = visit(f"{CITES}.html")
    page.locator(WORK).first.evaluate(
        """a => {
            a.addEventListener('click', e => { window.gone = !e.defaultPrevented; });
            addEventListener('click', e => e.preventDefault());
            a.dispatchEvent(new MouseEvent('click',
                {bubbles: true, cancelable: true, ctrlKey: true}));
        }"""
    )
    assert page.evaluate("window.gone")
    assert page.locator("#qp-note").count() == 0


def test_a_formula_in_a_note_is_drawn(visit):
    page = visit("chapters/03_mlp.html")
    page.locator('a[data-note="term-gelu"]').click()
    formula = page.locator("#qp-note .qp-formula svg")
    assert formula.bounding_box()["width"] > 10
    drawn = "svg => [...svg.querySelectorAll('use')].every(u => u.getBBox().width > 0)"
    assert formula.evaluate(drawn)
    used = [tag for tag in page.locator('#qp-note [lang="ko"]').all_inner_texts()]
    assert used != ["GELU"], "a word that is the same in Korean stands once"


def test_a_term_is_said_in_korean(visit):
    page = visit(f"{CITES}.html")
    page.locator('a[data-note="term-gating"]').click()
    assert page.locator('#qp-note [lang="ko"]').inner_text() == "게이팅 메커니즘"


def test_without_script_a_citation_is_a_link(visit):
    page = visit(f"{CITES}.html", java_script_enabled=False)
    link = page.locator(WORK).first
    assert link.get_attribute("role") is None
    assert link.get_attribute("href").startswith("https://arxiv.org/abs/")
    assert (
        page.locator(TERM).first.get_attribute("href").startswith("../glossary.html#")
    )
    assert not page.is_visible("template")


def test_notes_are_not_printed(visit):
    page = visit(f"{CITES}.html")
    page.locator(WORK).first.click()
    page.emulate_media(media="print")
    assert not page.is_visible("#qp-note")


# One page -----------------------------------------------------------------------------

SHEETS = {"A4": (210, 297), "Letter": (215.9, 279.4)}  # millimetres


@pytest.mark.parametrize("sheet", SHEETS)
def test_the_summary_prints_on_one_sheet(visit, sheet):
    page = visit("onepage.html")
    pdf = page.pdf(format=sheet)
    assert len(re.findall(rb"/Type\s*/Page\b", pdf)) == 1
    # The same, laid out on the paper inside its margins: nothing beside it or below.
    width, height = ((side - 20) / 25.4 * 96 for side in SHEETS[sheet])
    page.set_viewport_size({"width": int(width), "height": int(height)})
    page.emulate_media(media="print")
    wide = page.evaluate("document.documentElement.scrollWidth")
    last = page.evaluate(
        "document.querySelector('.qp-parts').getBoundingClientRect().bottom"
    )
    assert wide <= width
    assert 0.75 * height < last < height, "it fills the sheet and stays on it"
    cards = page.locator(".qp-part")
    boxes = [cards.nth(i).bounding_box() for i in range(cards.count())]
    assert len(boxes) == 8 and len({round(box["x"]) for box in boxes}) == 2


def test_without_colour_the_summary_says_the_same(visit):
    """On paper words are dark, and a part that is meant differs from the others."""
    page = visit("onepage.html")
    page.emulate_media(media="print")
    dark = page.evaluate(
        """() => [...document.querySelectorAll('.qp-part > p, .qp-part a')].every(e => {
            const [r, g, b] = getComputedStyle(e).color.match(/[\\d.]+/g).map(Number);
            return 0.21 * r + 0.72 * g + 0.07 * b < 90;
        })"""
    )
    assert dark
    assert page.locator(".qp-small svg").count() == 7


@pytest.mark.parametrize("width", [360, 768])
def test_the_summary_reads_on_a_phone(visit, width):
    page = visit("onepage.html", width=width)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    cut = page.evaluate(
        """() => [...document.querySelectorAll('.qp-part > *')].filter(e => {
            const edge = e.parentElement.getBoundingClientRect().right + 1;
            return e.getBoundingClientRect().right > edge
                || e.scrollWidth > e.clientWidth + 1;
        }).map(e => e.textContent)"""
    )
    assert not cut
    assert not page.troubles


# Margin -------------------------------------------------------------------------------

ASIDES = """() => [...document.querySelectorAll('.qp-aside')].map(aside => {
    const box = aside.getBoundingClientRect();
    const text = aside.parentElement.getBoundingClientRect();
    const next = aside.parentElement.nextElementSibling?.getBoundingClientRect();
    return [box.left >= text.right, box.right <= innerWidth,
            !next || next.top >= box.bottom || next.right <= box.left];
})"""


@pytest.mark.parametrize("name", chapters())
def test_a_side_remark_stands_in_the_margin_of_a_wide_page(visit, name):
    page = visit(f"{name}.html", width=1440)
    assert all(all(found) for found in page.evaluate(ASIDES))
    page.set_viewport_size({"width": 1280, "height": 900})
    assert not any(beside for beside, *_ in page.evaluate(ASIDES))


def test_there_are_side_remarks(site):
    asides = [(site / f"{name}.html").read_text("utf-8") for name in chapters()]
    assert sum(text.count('class="qp-aside"') for text in asides) >= 5


# Lines that break where they should --------------------------------------------------


@pytest.mark.parametrize("name", documents())
def test_the_mark_of_a_claim_stands_behind_the_punctuation(site, name):
    text = (site / f"{name}.html").read_text("utf-8")
    assert not re.search(r'class="qp-evidence[^>]*></a>[,.;:]', text)


ALONE = """() => [...document.querySelectorAll('.qp-evidence')].filter(mark => {
    let before = mark.previousSibling;
    while (before.lastChild) before = before.lastChild;
    const words = document.createRange();
    words.selectNodeContents(before);
    const line = [...words.getClientRects()].at(-1);
    return mark.getBoundingClientRect().top > line.bottom - 2;
}).map(mark => mark.parentElement.textContent)"""


@pytest.mark.parametrize("width", [360, 768, 1440])
@pytest.mark.parametrize("name", ["onepage", CITES, "chapters/08_block"])
def test_no_mark_of_a_claim_is_alone_on_a_line(visit, name, width):
    page = visit(f"{name}.html", width=width)
    assert page.locator(".qp-evidence").count() > 3
    assert page.evaluate(ALONE) == []


@pytest.mark.parametrize("name", ["chapters/08_block", "onepage"])
def test_a_name_with_a_hyphen_is_never_broken(visit, name):
    page = visit(f"{name}.html", width=360)
    lines = page.evaluate(
        """() => [...document.querySelectorAll('.qp-keep')]
            .filter(e => /-LN/.test(e.textContent) && e.checkVisibility())
            .map(e => [e.textContent, e.getClientRects().length])"""
    )
    assert lines
    assert {n for _, n in lines} == {1}, lines


@pytest.mark.parametrize("name", ["status", "changes", PAGE])
def test_the_pages_own_line_is_in_sight_at_the_side(visit, name):
    page = visit(f"{name}.html", width=1440, height=700)
    box = page.locator("#pst-primary-sidebar [aria-current]").bounding_box()
    assert box["y"] >= 0 and box["y"] + box["height"] <= 700
