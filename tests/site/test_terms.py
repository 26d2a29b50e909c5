"""Terms on the built pages: linked at their first use, quietly, and nowhere else."""

import re

import pytest
from conftest import chapters

TERM = re.compile(
    r'<a class="[^"]*\bqp-term\b[^"]*"[^>]*href="([^"#]*)#([^"]+)"[^>]*>(.*?)</a>', re.S
)

NUMBERED = [name for name in chapters() if re.match(r"chapters/\d\d_", name)]

# What a term must not stand in; and a count of each term's links.
PLACES = """() => {
    const found = { inside: [], count: {} };
    document.querySelectorAll('a.qp-term').forEach(a => {
        const place = a.parentElement.closest(
            'h1,h2,h3,h4,h5,h6,pre,code,a,table,figure,details,summary,blockquote,' +
            '.math,.cell_output,.qp-badges,nav,header,footer');
        if (place) found.inside.push(`${a.textContent} in ${place.tagName}`);
        const id = a.hash;
        found.count[id] = (found.count[id] || 0) + 1;
    });
    return found;
}"""

# The height and the lines of the article, with the links and with plain words instead.
LAYOUT = """() => {
    const article = document.querySelector('.bd-article');
    const size = () => [article.scrollHeight, article.scrollWidth];
    const links = [...article.querySelectorAll('a.qp-term')];
    const before = size();
    const look = links.map(a => {
        const own = getComputedStyle(a), around = getComputedStyle(a.parentElement);
        return [own.color === around.color, own.fontWeight === around.fontWeight,
                own.textDecorationLine.includes('underline'),
                own.textDecorationStyle === 'dotted'].every(Boolean);
    });
    links.forEach(a => a.replaceWith(a.textContent));
    return { before, after: size(), look: look.every(Boolean), links: links.length };
}"""


@pytest.mark.parametrize("name", NUMBERED)
def test_links_lead_to_the_glossary(site, name):
    text = (site / f"{name}.html").read_text("utf-8")
    ids = set(
        re.findall(r'<dt id="([^"]+)"', (site / "glossary.html").read_text("utf-8"))
    )
    found = TERM.findall(text)
    assert len(found) >= 12, "a chapter uses more words of the glossary"
    assert {href for href, _, _ in found} == {"../glossary.html"}
    assert {anchor for _, anchor, _ in found} <= ids
    anchors = [anchor for _, anchor, _ in found]
    assert len(anchors) == len(set(anchors)), "only the first use is linked"


@pytest.mark.parametrize("name", chapters())
def test_terms_stand_in_prose_only(visit, name):
    page = visit(f"{name}.html")
    found = page.evaluate(PLACES)
    assert not found["inside"]
    assert set(found["count"].values()) == {1}


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1200])
def test_a_term_is_quiet(visit, scheme, width):
    """In the colour of its sentence, dotted, and without moving a line."""
    page = visit(f"{NUMBERED[4]}.html", scheme, width=width)
    found = page.evaluate(LAYOUT)
    assert found["links"] >= 12
    assert found["look"]
    assert found["before"] == found["after"]


def test_a_term_is_reached_by_keyboard_and_leads_to_its_sentence(visit):
    """Its note opens in place and links to the glossary."""
    page = visit(f"{NUMBERED[4]}.html")
    link = page.locator("a.qp-term").first
    link.focus()
    assert link.evaluate("a => getComputedStyle(a).outlineStyle") == "solid"
    anchor = link.get_attribute("href").split("#")[1]
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/glossary.html#{anchor}")
    assert page.locator(f"#{anchor}").is_visible()
    assert not page.troubles


def test_tables_of_models_have_names_of_their_own(site):
    text = (site / "models.html").read_text("utf-8")
    names = re.findall(
        r'<div class="qp-table" role="region" aria-label="([^"]+)"', text
    )
    assert len(names) == 8
    captions = [re.sub(r"^Table \d+: ", "", name) for name in names]
    assert len(set(captions)) == len(captions)
    assert all(captions)
