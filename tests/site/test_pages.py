"""Every page in Chromium: no error, formulas set, nothing cut off, accessible."""

import pytest
from conftest import ROOT, SHOTS, documents

AXE = ROOT / "_build" / "test-assets" / "axe-core" / "axe.min.js"
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
PAGES = [*documents(), "search", "genindex"]


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
    path = SHOTS / f"{name.replace('/', '-')}-{scheme}-{width}.png"
    page.screenshot(path=path, full_page=True)


CODE = """() => [...document.querySelectorAll('pre')]
    .filter(pre => pre.scrollWidth > pre.clientWidth + 1)
    .map(pre => pre.textContent.trim().slice(0, 70))"""

# Text outside code that still looks like TeX, errors of MathJax, formulas never touched.
FORMULAS = r"""() => {
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    const raw = /\$|\\frac|\\begin\{|\\\(|\\\[|\\text\{|\\sqrt/, found = [];
    for (let node; (node = walker.nextNode());) {
        const parent = node.parentElement;
        if (!parent.closest('script, style, pre, code, mjx-container') && raw.test(node.data))
            found.push(node.data.trim().slice(0, 80));
    }
    document.querySelectorAll('mjx-merror').forEach(e => found.push(e.textContent));
    document.querySelectorAll('.math:not(:has(mjx-container))')
        .forEach(e => found.push(e.textContent.slice(0, 80)));
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
                .filter(e => e.getBoundingClientRect().right > width + 1 && !scrolls(e));
            return [`page is ${document.documentElement.scrollWidth} wide`].concat(
                wide.slice(-4).map(e => e.tagName + ': ' + e.textContent.trim().slice(0, 60))
            );
        }"""
    )


def violations(page) -> list[str]:
    """What axe finds against WCAG 2.2 AA and its best practices."""
    page.evaluate(AXE.read_text("utf-8"))
    found = page.evaluate(
        """async rules => (await axe.run(
            {include: [['html']], exclude: [['svg[role="img"] *']]},
            {runOnly: rules, resultTypes: ['violations']}
        )).violations.flatMap(v => v.nodes.slice(0, 3).map(n =>
            `axe ${v.id}: ${n.target.join(' ')}: ` +
            [...n.any, ...n.all, ...n.none].map(c => c.message).slice(0, 1)))""",
        RULES,
    )
    return found
