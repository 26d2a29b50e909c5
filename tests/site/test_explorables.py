"""Explorables in a browser: they move, say so, and draw what the code draws."""

import json

import pytest
from conftest import documents

from minigpt import book
from minigpt.book import explorable

PARTS = """figure => Object.fromEntries(
    [...figure.querySelectorAll('[data-part]')].map(part => {
        const text = part.querySelector(':scope > text');
        const path = part.querySelector(':scope > path');
        const numbers = s => (s.match(/-?[\\d.]+/g) || []).map(Number);
        const uses = [...part.querySelectorAll('use')];
        const hidden = getComputedStyle(part).display === 'none';
        return [part.dataset.part,
            hidden ? [] : text ? text.textContent :
            path ? numbers(path.getAttribute('d')) :
            uses.flatMap(u => [+u.getAttribute('x'), +u.getAttribute('y')])];
    }))"""
SHOW = (
    "(figure, set) => "
    "figure.dispatchEvent(new CustomEvent('qp-show', {detail: set || 'telling'}))"
)
NEAR = 0.6  # points of the drawing; a line is two thick


def state(figure) -> dict:
    """What a reader sees: the drawing, and the words beside the controls."""
    return figure.evaluate(
        """figure => ({
            drawing: figure.querySelector('.qp-picture').innerHTML,
            words: [...figure.querySelectorAll('output')].map(o => o.textContent),
        })"""
    )


def with_explorables(site, name) -> bool:
    return "qp-explorable" in (site / f"{name}.html").read_text("utf-8")


@pytest.mark.parametrize("name", documents())
def test_explorables_move(visit, site, name):
    """H03: by keyboard and by mouse, every control changes the figure and says so."""
    if not with_explorables(site, name):
        return
    page = visit(f"{name}.html")
    for figure in page.query_selector_all(".qp-explorable"):
        for control in figure.query_selector_all("input, select"):
            control.scroll_into_view_if_needed()
            before = moved = state(figure)
            if control.evaluate("c => c.type") == "range":
                key = "ArrowLeft" if control.evaluate("c => c.value === c.max") else ""
                control.focus()
                page.keyboard.press(key or "ArrowRight")
                moved = state(figure)
                assert moved["words"] != before["words"], f"{name}: the value stays"
                page.keyboard.press("Home")  # a thumb under the pointer would be held
                box = control.bounding_box()
                end = box["x"] + box["width"] - 3
                page.mouse.click(end, box["y"] + box["height"] / 2)
                last = control.evaluate("c => c.value === c.max")
                assert last, f"{name}: a click at the end does not lead to the end"
            else:
                at, last = control.evaluate("c => [c.selectedIndex, c.length - 1]")
                control.select_option(index=0 if at == last else last)
            seen = [state(figure)["drawing"], moved["drawing"]]
            assert any(drawing != before["drawing"] for drawing in seen), (
                f"{name}: {control.get_attribute('id')} moves nothing"
            )
    assert not page.troubles


@pytest.mark.parametrize("name", documents())
def test_scripts_draw_what_the_code_draws(visit, site, name):
    """Formula, code and figure agree: at each setting of its proof."""
    if "data-proof" not in (site / f"{name}.html").read_text("utf-8"):
        return
    page = visit(f"{name}.html")
    for figure in page.query_selector_all(".qp-explorable[data-proof]"):
        proofs = json.loads(figure.get_attribute("data-proof"))
        assert proofs
        for proof in proofs:
            figure.evaluate(SHOW, proof["set"])
            wrong = differences(figure.evaluate(PARTS), proof["parts"])
            assert not wrong, f"{name} at {proof['set']}: {wrong}"


def differences(found: dict, wanted: dict) -> list[str]:
    """The parts that are not where, or do not say what, the drawing by code has."""
    wrong = []
    for name, want in wanted.items():
        got = found.get(name)
        if isinstance(want, str) or isinstance(got, str) or got is None:
            same = got == want
        else:
            same = len(got) == len(want) and all(
                abs(a - b) <= NEAR for a, b in zip(got, want)
            )
        if not same:
            wrong.append(f"{name}: {str(got)[:120]}, wanted {str(want)[:120]}")
    return wrong


# The engine alone, on a page of its own -----------------------------------------------


def draw(slope=1, kind="solid"):
    fig = book.Figure(alt=f"A {kind} line of slope {slope}.")
    fig.ax.plot([0, 1], [0, slope], linestyle=kind)
    fig.ax.set(xlabel="step", ylabel="loss (nats)")
    if slope > 1:
        fig.ax.text(0, 0, f"{slope} & <more>")
    return fig


@pytest.fixture
def alone(browser):
    """A page that holds one figure and nothing else."""
    context = browser.new_context(viewport={"width": 700, "height": 700})
    page = context.new_page()
    page.wrong = []
    page.on("pageerror", lambda error: page.wrong.append(str(error)))

    def put(figure):
        page.set_content(f"<!doctype html><body>{figure._repr_html_()}</body>")
        return page, page.query_selector(".qp-explorable")

    yield put
    assert not page.wrong
    context.close()


NORMAL = """(figure, svg) => {
    const box = document.createElement('div'); box.innerHTML = svg;
    const plain = node => [node.tagName, [...node.attributes]
        .map(a => [a.name.replace('xlink:', ''), a.value.replace(/\\s+/g, ' ').trim()])
        .sort(), node.children.length ? [...node.children].map(plain)
        : node.textContent.trim()];
    return JSON.stringify(plain(box.firstElementChild));
}"""


def test_each_frame_is_the_drawing_of_its_setting(alone):
    figure = book.Explorable(draw, "Move.", slope=[1, 2, 3], kind=["solid", "dotted"])
    _, element = alone(figure)
    for slope, kind in [(3, "dotted"), (1, "dotted"), (2, "solid"), (1, "solid")]:
        element.evaluate(SHOW, {"slope": slope, "kind": kind})
        drawn = element.query_selector("svg").evaluate("svg => svg.outerHTML")
        want = draw(slope, kind).svg(salt="Move.")
        same = [element.evaluate(NORMAL, svg) for svg in (drawn, want)]
        assert same[0] == same[1], f"slope {slope}, {kind}"


def test_marks_follow_their_setting(alone):
    """Matplotlib draws a mark by reference: its frames differ in `xlink:href`."""

    def marks(kind):
        fig = book.Figure(alt=f"Three marks of kind {kind}.")
        fig.ax.plot([0, 1, 2], [0, 1, 2], "os^"[kind], ms=20)
        return fig

    _, element = alone(book.Explorable(marks, "Move.", kind=[0, 1, 2]))
    element.evaluate(SHOW, {"kind": 2})
    lost = """figure => [...figure.querySelectorAll('svg use')]
        .filter(use => !figure.querySelector(use.href.baseVal)).length"""
    assert element.evaluate(lost) == 0


def test_telling_frame_is_shown_on_demand_and_in_print(alone):
    figure = book.Explorable(draw, "Move.", telling={"slope": 3}, slope=[1, 2, 3])
    page, element = alone(figure)
    words = "figure => figure.querySelector('svg').getAttribute('aria-label')"
    assert "slope 1" in element.evaluate(words)
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert "slope 3" in element.evaluate(words)
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert "slope 1" in element.evaluate(words)
    element.evaluate(SHOW, None)
    assert "slope 3" in element.evaluate(words)


def marked(kind="o"):
    fig = book.Figure(alt=f"Two marks of the kind {kind}.")
    fig.ax.plot([0, 1], [0, 1], kind)
    return fig


def test_a_mark_may_change_its_shape(alone):
    figure = book.Explorable(marked, "Choose.", kind=["o", "s"])
    _, element = alone(figure)
    element.evaluate(SHOW, {"kind": "s"})
    shown = """figure => { const use = figure.querySelector('use');
        return figure.querySelector(use.href.baseVal) !== null; }"""
    assert element.evaluate(shown)


def tiles(row="low", column=1):
    fig = book.Figure(alt=f"Four tiles, of which {row} {column} is chosen.")
    for x in (1, 2):
        for y, name in enumerate(("low", "high")):
            tile = fig.ax.fill_between([x, x + 0.9], y, y + 0.9, color="#d8dee4")
            fig.sets(tile, row=name, column=x)
            fig.ax.text(x + 0.45, y + 0.45, f"{name} {x}", ha="center", va="center")
    fig.ax.plot([column + 0.1], [0.1 + (row == "high")], "o")
    return fig


def test_a_click_on_a_part_sets_the_controls_that_it_names(alone):
    figure = book.Explorable(tiles, "Click.", row=["low", "high"], column=[1, 2])
    _, element = alone(figure)
    now = """figure => [figure.querySelector('select').value,
        figure.querySelector('output').textContent,
        figure.querySelector('svg').getAttribute('aria-label')]"""
    for row, column in (("high", 2), ("low", 2), ("high", 1)):
        element.query_selector(f"text:text-is('{row} {column}')").click()
        want = f"Four tiles, of which {row} {column} is chosen."
        assert element.evaluate(now) == [row, str(column), want]
    element.query_selector("svg").click(position={"x": 3, "y": 3})
    assert element.evaluate(now)[0] == "high"


PROBE = """
({ line, polygon, rect, text, move, drag, alt, set, axes }, data) => {
  drag("dot", (x, y) => set("height", Math.min(4, Math.max(0, 2 * y))));
  return ({ height, side }) => {
    line("curve", data.xs, data.xs.map(x => height * x));
    line("dot", [0.5], [height / 2]);
    polygon("area", [0, 1, 1], [0, 0, height]);
    rect("bar", 0, 0, 0.1, side === "left" ? height : 0);
    text("word", `height ${height.toFixed(1)}`);
    move("word", 0.5, height / 2);
    alt(`A line up to ${height}.`);
  };
}
"""


def sketch(height=1.0, side="left"):
    fig = book.Figure(alt=f"A line up to {height}.")
    fig.ax.set(xlim=(0, 1), ylim=(0, 4))
    fig.part(fig.ax.fill([0, 1, 1], [0, 0, height])[0], "area")
    fig.part(fig.ax.plot([0, 0.5, 1], [0, height / 2, height])[0], "curve")
    fig.part(fig.ax.plot([0.5], [height / 2], "o", ms=14)[0], "dot")
    bar = fig.ax.bar([0], [height * (side == "left")], width=0.1, align="edge")
    fig.part(bar[0], "bar")
    fig.part(fig.ax.text(0.5, height / 2, f"height {height:.1f}"), "word")
    return fig


@pytest.fixture
def probe(monkeypatch, alone):
    """The element of a figure that the script above moves."""
    read = explorable._read
    monkeypatch.setattr(
        explorable, "_read", lambda name: PROBE if name == "probe" else read(name)
    )

    def make(**options):
        return alone(
            book.Explorable(
                sketch,
                "Drag the dot.",
                script="probe",
                data={"xs": [0, 0.5, 1]},
                **{"height": book.Slider(0, 4, 0.1, 1), "side": ["left", "right"]}
                | options,
            )
        )

    return make


def test_a_script_draws_as_the_code_at_every_setting_of_the_proof(probe):
    proof = [{"height": 3.0}, {"height": 2.5, "side": "right"}]
    _, element = probe(proof=proof)
    proofs = json.loads(element.get_attribute("data-proof"))
    assert [p["parts"]["word"] for p in proofs] == ["height 3.0", "height 2.5"]
    for one in proofs:
        element.evaluate(SHOW, one["set"])
        assert len(one["parts"]) == 5
        assert not differences(element.evaluate(PARTS), one["parts"])
        element.evaluate(SHOW, {"height": 1.3})
        assert differences(element.evaluate(PARTS), one["parts"])


def test_a_part_is_dragged_and_its_control_follows(probe):
    page, element = probe()
    box = element.query_selector("[data-part=dot] use").bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x, y - 30, steps=4)
    page.mouse.up()
    after = element.evaluate("figure => figure.querySelector('input').value")
    assert 1.2 < float(after) < 2
    assert element.query_selector("output").text_content() == after
    assert f"A line up to {after}" in element.inner_html()
    page.mouse.move(x, y - 90)
    assert element.evaluate("figure => figure.querySelector('input').value") == after


def test_a_slider_by_factors_hands_on_the_value_itself(probe):
    _, element = probe(
        proof=[{"height": 0.01}], height=book.Slider(0.001, 10, 0.5, 1, log=True)
    )
    control = "figure => figure.querySelector('input').value"
    assert element.evaluate(control) == "0"
    (proof,) = json.loads(element.get_attribute("data-proof"))
    element.evaluate(SHOW, proof["set"])
    assert element.evaluate(control) == "-2"
    assert element.query_selector("output").text_content() == "0.01"
    assert not differences(element.evaluate(PARTS), proof["parts"])
