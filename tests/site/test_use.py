"""What a reader does with the site: switch colours, move figures, print."""

import pytest
from conftest import chapters, notebooks


def test_colour_scheme_is_switched_and_kept(visit):
    page = visit("index.html", "light")
    seen = set()
    for _ in range(3):
        page.click(".theme-switch-button")
        ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
        seen.add((page.evaluate("document.documentElement.dataset.theme"), ground))
    assert {theme for theme, _ in seen} == {"light", "dark"}
    assert len({ground for _, ground in seen}) == 2
    while page.evaluate("document.documentElement.dataset.mode") != "dark":
        page.click(".theme-switch-button")
    page.click(".qp-nav a >> nth=0")
    page.wait_for_load_state()
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"


def test_chapters_open_on_a_phone(visit):
    page = visit("index.html", width=360, height=740)
    assert not page.is_visible(".qp-nav")
    page.click(".primary-toggle")
    page.wait_for_selector(".qp-nav", state="visible")
    page.keyboard.press("Escape")
    page.wait_for_selector(".qp-nav", state="hidden")


@pytest.mark.parametrize("name", chapters())
def test_verdicts_are_in_sight_on_a_phone(visit, name):
    page = visit(f"{name}.html", width=360, height=740)
    hidden = page.evaluate(
        "[...document.querySelectorAll('.output.stream pre')]"
        ".filter(pre => pre.scrollWidth > pre.clientWidth + 1)"
        ".map(pre => pre.innerText)"
    )
    assert hidden == []


def test_start_button_leads_to_chapter_one(visit):
    page = visit("index.html", height=768)
    assert page.eval_on_selector(
        "a.qp-start", "a => a.getBoundingClientRect().bottom < 768"
    )
    page.click("a.qp-start")
    page.wait_for_url("**/chapters/01_text.html")


@pytest.mark.parametrize("name", notebooks())
def test_lesson_is_readable_without_script(visit, name):
    """H03: a figure shows its first frame, and folds open, where scripts are off."""
    page = visit(f"{name}.html", java_script_enabled=False)
    assert page.is_visible("h1")
    for figure in page.query_selector_all(".qp-explorable"):
        assert figure.query_selector("svg").is_visible()
        assert figure.query_selector("input, select").is_disabled()
    fold = page.query_selector("details")
    if fold:
        fold.query_selector("summary").click()
        assert fold.get_attribute("open") is not None


@pytest.mark.parametrize("name", notebooks())
def test_notebook_is_downloaded(visit, name):
    page = visit(f"{name}.html")
    with page.expect_download() as download:
        page.click("a.qp-download")
    assert download.value.suggested_filename == f"{name.split('/')[1]}.ipynb"
    assert not download.value.failure()


def test_fonts_are_the_books_own(visit):
    page = visit("glossary.html")
    loaded = page.evaluate(
        "[...document.fonts].filter(f => f.status === 'loaded').map(f => f.family)"
    )
    families = {family.strip("'\"") for family in loaded}
    assert {"Source Serif", "Quiet Parts Korean"} <= families


def test_bold_korean_is_drawn(visit):
    """It is as wide as the same words set after the font came; empty boxes are not."""
    page = visit("chapters/11_gpt.html")
    page.wait_for_timeout(500)
    widths = page.evaluate(
        """() => {
            const width = node => {
                const range = document.createRange();
                range.selectNodeContents(node);
                return range.getBoundingClientRect().width;
            };
            return [...document.querySelectorAll('th')]
                .filter(th => /[가-힣]/.test(th.textContent))
                .map(th => {
                    const before = width(th);
                    th.style.fontFeatureSettings = '"kern" 1, "test" 1';
                    return [before, width(th)];
                });
        }"""
    )
    assert widths, "the chapter's table head with a Korean word is gone"
    assert all(abs(before - after) < 1 for before, after in widths), widths


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_colours_of_the_figures_can_be_told_apart(visit, scheme):
    """Words reach 4.5 to 1 against the ground, marks and lines 3 to 1."""
    page = visit("glossary.html", scheme)
    ratios = page.evaluate(CONTRASTS)
    words = ("ink", "muted", "accent", "attention", "mlp", "norm", "stream")
    low = {k: v for k, v in ratios.items() if v < (4.5 if k in words else 3)}
    assert len(ratios) == 10 and not low


CONTRASTS = r"""() => {
    const names = ['ink', 'muted', 'accent', 'attention', 'mlp', 'norm', 'stream',
                   'sky', 'amber', 'rose'];
    const light = hex => {
        const [r, g, b] = [1, 3, 5].map(i => parseInt(hex.slice(i, i + 2), 16) / 255)
            .map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
        return 0.2126 * r + 0.7152 * g + 0.0722 * b + 0.05;
    };
    const style = getComputedStyle(document.documentElement);
    const value = name => light(style.getPropertyValue(`--qp-${name}`).trim());
    const paper = value('paper');
    return Object.fromEntries(names.map(name => {
        const own = value(name);
        return [name, Math.max(own, paper) / Math.min(own, paper)];
    }));
}"""


def test_printed_page_has_the_text_and_not_the_frame(visit):
    page = visit("chapters/02_attention.html")
    page.emulate_media(media="print")
    assert page.is_visible("h1")
    for part in (".bd-sidebar-primary", ".bd-header-article", ".bd-sidebar-secondary"):
        assert not page.is_visible(part), part
