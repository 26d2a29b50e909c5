"""The landing page: its numbers are the record's, and the ladder opens rung by rung."""

import html
import json
import re
import statistics

import pytest
import yaml
from conftest import ROOT, documents, notebooks

from minigpt import ladder
from minigpt.book import records

RUNGS = list(ladder.RUNGS)
OPEN = """() => [...document.querySelectorAll('.qp-ladder li[data-rung]')]
    .filter(li => li.querySelector('.qp-rung-more').checkVisibility(
        {visibilityProperty: true}))
    .map(li => li.dataset.rung)"""
PLACES = """() => [...document.querySelectorAll('.qp-rung, .bd-article h2')]
    .map(e => Math.round(e.getBoundingClientRect().top + scrollY))"""


def words(markup: str) -> str:
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", markup)).split())


@pytest.fixture(scope="module")
def index(site) -> str:
    return (site / "index.html").read_text("utf-8")


@pytest.fixture(scope="module")
def shown(index) -> dict[str, str]:
    """Rung -> what the page says of it."""
    figure = re.search(r'<figure class="qp-ladder">.*?</figure>', index, re.S)[0]
    items = re.findall(
        r'<li data-rung="(\w+)"[^>]*>(.*?)(?=<li data-rung|</ol>)', figure, re.S
    )
    return dict(items)


@pytest.fixture(scope="module")
def steps() -> dict[int, dict[str, dict]]:
    runs = records.ladder()["runs"]
    found = {}
    for n in (2, 12):
        rungs = ladder.by_rung(runs, part="ladder", n_layers=n)
        found[n] = {step["rung"]: step for step in ladder.summary(rungs)}
    return found


def test_every_rung_is_there_in_order(shown):
    assert list(shown) == RUNGS


@pytest.mark.parametrize("rung", RUNGS)
def test_numbers_are_those_of_the_record(shown, steps, rung):
    said = words(shown[rung])
    for n in (2, 12):
        step = steps[n][rung]
        difference = step["difference"]
        if difference is None:
            assert f"{n} blocks: {statistics.fmean(step['losses']):.3f} nats" in said
            continue
        mean = f"{difference.mean:+.3f}".replace("-", "−")
        assert f"{mean} ± {difference.spread:.3f} nats" in said
        line = re.search(rf"(?<!\d){n} blocks: (.*?(?:seed|nats\)))", said)[1]
        sure = difference.agree and abs(difference.mean) >= 4.6 * difference.error
        assert ("no effect shown" in line) != sure
        if sure:
            side = "lower" if difference.mean < 0 else "higher"
            assert line.endswith(f"{side} in every seed")
    grid = ladder.by_rung(records.ladder()["runs"], part="grid", n_layers=12)[rung]
    line = records.ladder()["setting"]["frequencies_only"]
    learned = sum(run.learned(line) for run in grid)
    assert f"12 blocks learn in {learned} of {len(grid)} settings" in said


def test_the_ladder_shows_both_what_works_and_what_does_not(shown):
    said = {rung: words(markup) for rung, markup in shown.items()}
    assert "lower in every seed" in said["residual"]
    assert "no effect shown" in said["rmsnorm"]
    assert "higher in every seed" in said["dropout"]


def test_limit_is_that_of_the_chapter():
    source = (ROOT / "_ext" / "quiet_parts" / "ladder.py").read_text("utf-8")
    chapter = (ROOT / "chapters" / "13_ladder.ipynb").read_text("utf-8")
    ours = re.search(r"^LIMIT = ([\d.]+)", source, re.MULTILINE)[1]
    assert re.search(r"LIMIT = ([\d.]+)", chapter)[1] == ours == "4.6"


@pytest.mark.parametrize("rung", RUNGS)
def test_lines_of_code_are_the_packages(shown, rung):
    block = re.search(r'<pre class="qp-change">(.*?)</pre>', shown[rung], re.S)[1]
    lines = re.findall(r"<(ins|del)>.*?: </span>(.*?)</\1>", block, re.S)
    source = "".join(
        p.read_text("utf-8").replace("self.", "") for p in ROOT.glob("minigpt/*.py")
    )
    assert lines
    assert all(html.unescape(line) in source for _, line in lines)
    signs = {"ins": "+", "del": "-"}
    wanted = [line[0] for line in ladder.change(rung) if "return x" not in line]
    assert [signs[tag] for tag, _ in lines] == wanted


@pytest.mark.parametrize("rung", RUNGS)
def test_a_dot_for_every_run(shown, steps, rung):
    """A lower loss stands further left; places are checked against the axis."""
    strip = re.search(r'<div class="qp-rung-dots">(.*?)</svg>', shown[rung], re.S)[1]
    dots = re.findall(
        r'<circle cx="([\d.]+)" cy="[\d.]+" r="3.2" style="fill:(\w+)', strip
    )
    filled = [float(x) for x, fill in dots if fill != "none"]
    empty = [float(x) for x, fill in dots if fill == "none"]
    for n, places in ((12, filled), (2, empty)):
        losses = steps[n][rung]["losses"]
        assert len(places) == len(losses)
        wanted = [8 + (loss - 2.4) / 1.1 * 224 for loss in losses]
        assert places == pytest.approx(wanted, abs=0.06)
        assert all(0 < x < 240 for x in places)


def test_one_plus_sign_is_the_record(index, steps):
    figure = re.search(r'class="qp-first.*?<figure.*?</figure>', index, re.S)[0]
    assert figure.count("<svg") == 1
    alt = html.unescape(re.search(r'aria-label="([^"]+)"', figure)[1])
    runs = records.ladder()
    assert f"{runs['setting']['frequencies_only']:.2f}" in alt
    assert f"{statistics.fmean(steps[12]['residual']['losses']):.2f}" in alt
    assert "x = x + f(x)" in figure and "5 seeds" in figure


def test_counts_are_those_of_the_book(index, site):
    """Counted here in another way, or taken from where the number is at home."""
    text = words(re.search(r"What is different here.*?</ul>", index, re.S)[0])
    claims = words((site / "claims.html").read_text("utf-8"))
    total, measured, cited = re.search(
        r"(\d+) claims: (\d+) measured, (\d+) cited", claims
    ).groups()
    assert f"{total} sentences are marked. {measured} of them rest on a cell" in text
    assert f"{cited} name the paper" in text
    numbered = [name for name in notebooks() if re.search(r"/\d\d_", name)]
    assert f"all {len(numbered)} chapters" in text
    questions = checks = 0
    for name in numbered:
        cells = json.loads((ROOT / f"{name}.ipynb").read_text("utf-8"))["cells"]
        markdown = "".join("".join(c["source"]) for c in cells)
        questions += len(re.findall(r"^\*\*\d+\.\*\* ", markdown, re.MULTILINE))
        checks += sum(bool(re.fullmatch(r"exercise-.*-check", c["id"])) for c in cells)
    assert f"{questions} quiz questions" in text and f"{checks} exercises" in text
    outputs = int(re.search(r"([\d,]+) outputs are compared", text)[1].replace(",", ""))
    assert outputs > 20 * len(numbered)


def test_the_verse_is_the_recorded_one(index):
    verse = re.search(
        r'<div class="[^"]*qp-verse[^"]*">(.*?)</div>\s*</div>', index, re.S
    )
    lines = re.findall(r'<div class="line">(.*?)</div>', verse[0], re.S)
    sample = next(
        s
        for s in records.speech()["samples"]
        if (s["temperature"], s["seed"], s["top_k"], s["top_p"]) == (0.5, 1, None, None)
    )
    told = [words(line) for line in lines]
    assert len(told) == 6
    assert told == [
        " ".join(x.split()) for x in sample["text"].strip().splitlines()[:6]
    ]


def test_outline_names_the_rungs_of_the_package():
    outline = yaml.safe_load((ROOT / "_ext" / "outline.yml").read_text("utf-8"))
    assert [rung["key"] for rung in outline["rungs"]] == RUNGS


# In the browser ----------------------------------------------------------------------


def test_hover_and_focus_open_a_rung_and_move_nothing(visit):
    page = visit("index.html", width=1440)
    assert page.evaluate(OPEN) == ["residual"]
    before = page.evaluate(PLACES)
    for rung in RUNGS:
        dots = page.locator(f'[data-rung="{rung}"] .qp-rung-dots')
        dots.scroll_into_view_if_needed()
        box = dots.bounding_box()
        for step in (0, 4):  # a pointer that has moved
            page.mouse.move(box["x"] + 30 + step, box["y"] + 10)
        assert page.evaluate(OPEN) == [rung]
        assert page.evaluate(PLACES) == before, f"{rung} moves the page"
    page.focus('[data-rung="plain"] button')
    for rung in RUNGS:
        assert page.evaluate(OPEN) == [rung]
        button = page.locator(f'[data-rung="{rung}"] button')
        assert button.get_attribute("aria-expanded") == "true"
        ring = button.evaluate("b => getComputedStyle(b).outlineStyle")
        assert ring == "solid"
        assert page.evaluate(PLACES) == before
        page.keyboard.press("Tab")  # to the link to its chapter
        assert page.evaluate("document.activeElement.tagName") == "A"
        page.keyboard.press("Tab")
    assert not page.troubles


def test_the_open_part_stands_inside_the_ladder(visit):
    page = visit("index.html", width=1440)
    for rung in RUNGS:
        page.focus(f'[data-rung="{rung}"] button')
        inside = page.evaluate(
            """rung => {
                const part = document.querySelector(`#about-${rung}`);
                const ladder = part.closest('.qp-ladder').getBoundingClientRect();
                const box = part.getBoundingClientRect();
                return box.bottom <= ladder.bottom && box.right <= ladder.right + 1
                    && part.scrollHeight <= part.clientHeight;
            }""",
            rung,
        )
        assert inside, rung


@pytest.mark.parametrize("width", [360, 768, 1024])
def test_a_tap_opens_a_rung_below_its_name(visit, width):
    page = visit("index.html", width=width, height=800)
    page.hover('[data-rung="post"] button')
    assert page.evaluate(OPEN) == ["residual"], "here hovering would move the page"
    for rung in ("plain", "swiglu"):
        page.click(f'[data-rung="{rung}"] button')
        assert page.evaluate(OPEN) == [rung]
        gap = page.evaluate(
            """rung => document.querySelector(`#about-${rung}`).getBoundingClientRect()
                .top - document.querySelector(`#rung-${rung}`).closest('.qp-rung')
                .getBoundingClientRect().bottom""",
            rung,
        )
        assert abs(gap) < 2
    assert not page.troubles


@pytest.mark.parametrize("width", [360, 1024])
def test_a_rung_stays_where_it_was_chosen(visit, width):
    """The part that closes may stand above it; by finger and by key."""
    page = visit("index.html", width=width, height=700)
    place = "b => b.getBoundingClientRect().top"
    for rung in ("pre", "dropout", "plain", "swiglu"):
        button = page.locator(f'[data-rung="{rung}"] button')
        button.evaluate("b => b.scrollIntoView({block: 'center'})")
        before = button.evaluate(place)
        button.click()
        assert abs(button.evaluate(place) - before) < 2, rung
    page.locator('[data-rung="plain"] button').focus()
    for rung in RUNGS:
        button = page.locator(f'[data-rung="{rung}"] button')
        assert button.evaluate("b => b === document.activeElement")
        assert 0 < button.evaluate(place) < 700, f"{rung} is out of sight"
        page.keyboard.press("Tab")  # to the link to its chapter
        page.keyboard.press("Tab")


@pytest.mark.parametrize("width", [360, 1440])
def test_without_script_all_rungs_are_told(visit, width):
    page = visit("index.html", width=width, java_script_enabled=False)
    more = page.locator(".qp-rung-more")
    assert more.count() == len(RUNGS)
    assert all(part.is_visible() for part in more.all())


def test_both_starts_are_on_the_first_screen(visit):
    page = visit("index.html", height=768)
    for link, target in ((0, "01_text"), (1, "04_depth")):
        start = page.locator("a.qp-start").nth(link)
        assert start.bounding_box()["y"] + start.bounding_box()["height"] < 768
        assert target in start.get_attribute("href")
    assert page.locator(".qp-unsure a").get_attribute("href") == "selftest.html"


def test_the_ladders_script_is_on_no_other_page(site):
    for name in documents():
        text = (site / f"{name}.html").read_text("utf-8")
        assert text.count("ladder.js") == (name == "index")
