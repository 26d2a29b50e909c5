"""Diagrams as a browser draws them: words in their boxes, large enough on a phone."""

import pytest
from conftest import ROOT, documents

from minigpt.block import BLOCKS
from minigpt.book import diagram
from minigpt.gpt import GPTConfig

DRAWN = {
    **{order: diagram.block(order, dropout=True) for order in BLOCKS},
    "gated": diagram.mlp("swiglu", dropout=True),
    "norm": diagram.norm("rmsnorm"),
    "head": diagram.attention_head(dropout=True),
    "gpt": diagram.gpt(GPTConfig(vocab_size=65, dropout=0.1), highlight="mlp"),
    "orders": diagram.orders(),
}
MEASURE = """() => [...document.querySelectorAll('#drawn svg')].flatMap(svg => {
    const view = svg.getBoundingClientRect(), troubles = [];
    const boxes = [...svg.querySelectorAll('rect')].map(r => r.getBoundingClientRect())
        .filter(box => box.width < view.width * 0.9);
    for (const text of svg.querySelectorAll('text')) {
        const place = text.getBoundingClientRect(), words = text.textContent;
        const size = parseFloat(getComputedStyle(text).fontSize)
            * view.width / svg.viewBox.baseVal.width;
        if (size < 11) troubles.push(`${words}: ${size} px`);
        if (place.left < view.left || place.right > view.right)
            troubles.push(`${words}: outside`);
        const x = (place.left + place.right) / 2, y = (place.top + place.bottom) / 2;
        for (const box of boxes) {
            const around = box.left < x && x < box.right;
            if (!around || y < box.top || y > box.bottom) continue;
            if (place.left < box.left + 2 || place.right > box.right - 2)
                troubles.push(`${words}: wider than its box`);
        }
    }
    return troubles;
})"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_words_fit_on_a_phone(visit, scheme):
    page = visit("glossary.html", scheme, width=360, height=740)
    markup = "".join(figure._repr_html_() for figure in DRAWN.values())
    page.evaluate(
        """markup => {
            const drawn = document.createElement('div');
            drawn.id = 'drawn';
            drawn.innerHTML = markup;
            document.querySelector('.bd-article h1').after(drawn);
        }""",
        markup,
    )
    assert page.locator("#drawn svg").count() == len(DRAWN)
    assert page.evaluate(MEASURE) == []
    page.locator("#drawn").screenshot(path=ROOT / "_build" / f"diagrams-{scheme}.png")


def test_colours_follow_the_scheme(visit):
    """The box of attention is drawn in the site's colour, not in the fallback."""
    page = visit("index.html", "dark", width=1440)
    same = page.evaluate(
        """() => {
            const part = [...document.querySelectorAll('.qp-rung rect')]
                .find(rect => rect.style.stroke.includes('--qp-attention'));
            const wanted = document.createElement('span');
            wanted.style.color = 'var(--qp-attention)';
            document.body.append(wanted);
            return getComputedStyle(part).stroke === getComputedStyle(wanted).color;
        }"""
    )
    assert same


# What stands out of a drawing by more than the page's margin for it is cut off.
STANDS_OUT = """() => {
    const found = [];
    for (const svg of document.querySelectorAll(':is(.qp-figure, .qp-picture) > svg')) {
        const style = getComputedStyle(svg);
        const margin = parseFloat(style.overflowClipMargin) || 0;
        if (style.contentVisibility !== 'auto') found.push('is drawn at once');
        const frame = svg.getBoundingClientRect();
        for (const text of frame.width ? svg.querySelectorAll('text') : []) {
            const box = text.getBoundingClientRect();
            const out = Math.max(frame.left - box.left, box.right - frame.right,
                                 frame.top - box.top, box.bottom - frame.bottom);
            if (box.width && out > margin) found.push(`${text.textContent}: ${out} px`);
        }
    }
    return found;
}"""

# Words with letters of less than 10 px; an exponent may be smaller than its number.
TOO_SMALL = """() => {
    const found = [];
    for (const text of document.querySelectorAll('.qp-figure svg text')) {
        const scale = text.getScreenCTM();
        const size = parseFloat(getComputedStyle(text).fontSize);
        const px = scale ? size * Math.hypot(scale.a, scale.b) : 10;
        if (text.getClientRects().length && px < 10)
            found.push(`${text.textContent.trim()}: ${px.toFixed(1)} px`);
    }
    return found;
}"""


@pytest.mark.parametrize("name", documents())
def test_every_word_of_a_drawing_can_be_read(visit, name):
    """Drawings out of sight wait, and are cut at their edges (quiet-parts.css)."""
    page = visit(f"{name}.html", width=360, height=800)
    assert page.evaluate(STANDS_OUT) == []
    assert page.evaluate(TOO_SMALL) == []
    page.set_viewport_size({"width": 1440, "height": 900})
    assert page.evaluate(STANDS_OUT) == []
