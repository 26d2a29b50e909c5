"""Every page in Chromium: no error, formulas set, nothing cut off, accessible."""

import pytest
from conftest import ROOT, SHOTS, documents

AXE = ROOT / "_build" / "test-assets" / "axe-core" / "axe.min.js"
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
PAGES = [*documents(), "search"]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", PAGES)
def test_page(visit, name, scheme):
    """H05, H07, H08: what a reader sees, wide and narrow, in both colour schemes."""
    page = visit(f"{name}.html", scheme, width=1440)
    assert page.evaluate("document.documentElement.dataset.theme") == scheme
    shoot(page, name, scheme, 1440)
    page.set_viewport_size({"width": 360, "height": 740})
    shoot(page, name, scheme, 360)
    page.evaluate(
        "document.querySelectorAll('details').forEach(d => { d.open = true })"
    )
    troubles = page.troubles + [f"at 360: {t}" for t in too_wide(page)]
    page.set_viewport_size({"width": 1366, "height": 900})
    troubles += [f"at 1366: {t}" for t in too_wide(page)]
    troubles += [f"code scrolls sideways at 1366: {t}" for t in page.evaluate(CODE)]
    troubles += [f"formula not set: {t}" for t in page.evaluate(FORMULAS)]
    troubles += violations(page)
    assert not troubles, "\n".join(troubles)


def shoot(page, name, scheme, width):
    SHOTS.mkdir(parents=True, exist_ok=True)
    path = SHOTS / f"{name.replace('/', '-')}-{scheme}-{width}.jpg"
    page.screenshot(path=path, full_page=True, type="jpeg", quality=80)


CODE = """() => [...document.querySelectorAll('pre')]
    .filter(pre => pre.scrollWidth > pre.clientWidth + 1)
    .map(pre => pre.textContent.trim().slice(0, 70))"""

# Text outside code that still looks like TeX, formulas that are not drawn.
FORMULAS = r"""() => {
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    const raw = /\$|\\frac|\\begin\{|\\\(|\\\[|\\text\{|\\sqrt/, found = [];
    for (let node; (node = walker.nextNode());) {
        const parent = node.parentElement;
        const code = parent.closest('script, style, pre, code, .qp-tex');
        if (!code && raw.test(node.data))
            found.push(node.data.trim().slice(0, 80));
    }
    document.querySelectorAll('.math').forEach(e => {
        if (!(e.querySelector('svg')?.getBoundingClientRect().width >= 1
              || !e.checkVisibility()))
            found.push(e.textContent.slice(0, 80));
    });
    return found;
}"""


def too_wide(page) -> list[str]:
    """What makes the page scroll sideways, if it does."""
    return page.evaluate(
        """() => {
            const width = document.documentElement.clientWidth;
            if (document.documentElement.scrollWidth <= width) return [];
            const scrolls = e => {
                for (let a = e.parentElement; a; a = a.parentElement)
                    if (getComputedStyle(a).overflowX !== 'visible') return true;
                return false;
            };
            const wide = [...document.querySelectorAll('body *')]
                .filter(e => e.getBoundingClientRect().right > width + 1)
                .filter(e => !scrolls(e));
            return [`page is ${document.documentElement.scrollWidth} wide`].concat(
                wide.slice(-4).map(e => `${e.tagName}: ${e.textContent.slice(0, 60)}`)
            );
        }"""
    )


# Code is thousands of coloured words; each colour is measured once, against its ground.
COLOURS = r"""() => {
    const light = colour => {
        const [r, g, b] = colour.match(/[\d.]+/g).slice(0, 3).map(v => v / 255)
            .map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const paper = getComputedStyle(document.body).backgroundColor, seen = {};
    document.querySelectorAll('pre span').forEach(word => {
        let ground = getComputedStyle(word.closest('pre')).backgroundColor;
        if (/, 0\)/.test(ground)) ground = paper;
        const ink = getComputedStyle(word).color;
        seen[`${ink} on ${ground} (${word.className})`] = [light(ink), light(ground)];
    });
    return Object.entries(seen)
        .map(([name, [a, b]]) =>
            [name, (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05)])
        .filter(([, ratio]) => ratio < 4.5)
        .map(([name, ratio]) => `code ${name}: contrast ${ratio.toFixed(2)}`);
}"""

# axe takes a minute for thousands of nodes that are one drawing or one piece of code.
SIMPLER = """() => {
    document.querySelectorAll('pre').forEach(p => { p.textContent = p.textContent });
    document.querySelectorAll('svg[role="img"]').forEach(svg => svg.replaceChildren());
}"""


def violations(page) -> list[str]:
    """What axe finds against WCAG 2.2 AA and its best practices."""
    found = page.evaluate(COLOURS)
    page.evaluate(SIMPLER)
    page.evaluate(AXE.read_text("utf-8"))
    return found + page.evaluate(
        """async rules => (await axe.run(
            document, {runOnly: rules, resultTypes: ['violations']}
        )).violations.flatMap(v => v.nodes.slice(0, 3).map(n =>
            `axe ${v.id}: ${n.target.join(' ')}: ` +
            [...n.any, ...n.all, ...n.none].map(c => c.message).slice(0, 1)))""",
        RULES,
    )
