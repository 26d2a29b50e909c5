"""minigpt.book: figures that carry their own words, explorables, tables, panels."""

import configparser
import json
import os
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from minigpt import book
from minigpt.book import diagram, explorable, frames
from minigpt.book.token_figure import token_figure

ROOT = Path(__file__).resolve().parent.parent
SCRIPTS = sorted((ROOT / "minigpt" / "book" / "scripts").glob("*.js"))
ALT = "A line that rises from one to three."


def draw(slope=1, kind="solid"):
    fig = book.Figure(alt=f"A {kind} line of slope {slope}.", caption="It rises.")
    fig.ax.plot([0, 1], [0, slope], linestyle=kind)
    fig.ax.set(xlabel="step", ylabel="loss (nats)")
    return fig


def test_figure_is_one_labelled_svg_that_follows_the_theme():
    markup = draw()._repr_html_()
    assert markup.count("<svg") == 1
    assert 'role="img" aria-label="A solid line of slope 1."' in markup
    assert "var(--qp-ink, #1f2328)" in markup and "var(--qp-accent, #8a3ffc)" in markup
    assert "<figcaption>It rises.</figcaption>" in markup
    assert not re.search(r"(fill|stroke): #1f2328", markup)
    assert "<text" in markup  # text stays text: it scales, and can be read out


def test_a_drawing_brings_no_rules_for_the_page_and_says_its_shape():
    for markup in (draw().svg(), diagram.block("pre").svg()):
        assert "<style" not in markup
        root = markup[: markup.index(">")]
        width, height = re.search(r'viewBox="\S+ \S+ (\S+) (\S+)"', root).groups()
        assert f"aspect-ratio:{width}/{height}" in root
    assert "stroke-linejoin:round" in draw().svg().partition(">")[0]


def test_figure_is_drawn_the_same_twice():
    assert draw()._repr_html_() == draw()._repr_html_()


def test_figure_lies_where_it_lay_however_often_it_is_drawn():
    fig = book.Figure(alt=ALT, rows=2, cols=2, size=(4.2, 4))
    for ax in fig.axes[:2]:
        ax.set(aspect="equal", title="of all six: 6", xlim=(-2, 2), ylim=(-2, 2))
    first = fig.svg()
    assert fig.svg() == first and fig.scales() == fig.scales()


def test_figures_of_one_page_share_no_ids():
    ids = [set(re.findall(r'id="([^"]+)"', draw(s)._repr_html_())) for s in (1, 2)]
    assert ids[0] and not ids[0] & ids[1]


def test_figure_without_words_is_refused():
    with pytest.raises(ValueError, match="alt='a plot' says too little"):
        book.Figure(alt="a plot")


def test_a_diagram_stands_where_its_axes_stood():
    fig = book.Figure(alt=ALT, rows=2)
    drawing = book.diagram.rung("pre")
    fig.place(drawing, fig.axes[0])
    inner = list(ET.fromstring(fig.svg()))[-1]
    left, top, right, bottom = fig.scales()[0]["box"]
    numbers = map(float, re.findall(r"-?[\d.]+", inner.get("transform")))
    across, down, scale = numbers
    x, y, width, height = drawing.view
    edges = [scale * at for at in (x, y, x + width, y + height)]
    corners = [a + b for a, b in zip(edges, (across, down, across, down))]
    assert corners[0] > left - 0.1 and corners[2] < right + 0.1
    assert corners[1] > top - 0.1 and corners[3] < bottom + 0.1
    shares = scale * width / (right - left), scale * height / (bottom - top)
    assert max(shares) == pytest.approx(1, abs=0.01)
    assert len(inner.findall(f"{{{frames.SVG}}}rect")) > 4


def test_a_hidden_part_is_drawn_and_not_shown():
    fig = book.Figure(alt=ALT)
    for name in ("seen", "unseen"):
        fig.part(fig.ax.plot([0, 1])[0], name, hidden=name == "unseen")
    parts = {g.get("data-part"): g for g in ET.fromstring(fig.svg()).iter()}
    assert parts["unseen"].find(f"{{{frames.SVG}}}path").get("d")
    assert parts["unseen"].get("style") == "display:none"
    assert parts["seen"].get("style") is None
    found = explorable._parts(fig.svg())
    assert found["unseen"] == [] and len(found["seen"]) == 4


def test_a_part_to_click_says_what_it_sets():
    fig = book.Figure(alt=ALT)
    bars = fig.ax.bar([0, 1], [1, 2])
    for bar, order in zip(bars, ("pre", 'po"st')):
        fig.sets(bar, order=order, depth=3)
    groups = [g for g in ET.fromstring(fig.svg()).iter() if g.get("data-set")]
    found = [json.loads(group.get("data-set")) for group in groups]
    assert found == [{"order": "pre", "depth": 3}, {"order": 'po"st', "depth": 3}]
    assert "data-choice" not in fig.svg()


def test_figure_with_hangul_warns_nobody(recwarn):
    fig = book.Figure(alt=ALT)
    fig.ax.set_title("고양이가 창밖을 보았다")
    assert "고양이가" in fig.svg()
    assert not recwarn.list


def test_a_drawing_has_places_of_a_hundredth_and_words_as_they_are():
    fig = draw(1 / 3)
    fig.ax.text(0, 0.1, "0.123456 nats")
    svg = fig.svg()
    assert ">0.123456 nats<" in svg
    places = re.findall(r' (?:d|x|y|transform)="([^"]*)"', svg)
    assert places and not re.search(r"\.\d{3}", " ".join(places))


def test_parts_are_marked_and_named_once():
    fig = draw()
    line = fig.part(fig.ax.lines[0], "loss")
    assert line is fig.ax.lines[0]
    assert fig.svg().count('<g data-part="loss">') == 1
    with pytest.raises(ValueError, match="part 'loss' is there already"):
        fig.part(line, "loss")
    with pytest.raises(ValueError, match="part 'Two words'"):
        fig.part(line, "Two words")


def test_a_handle_has_a_ring_for_a_finger():
    fig = book.Figure(alt=ALT)
    fig.part(fig.ax.plot([0], [0], "o", **book.handle("stream"))[0], "end")
    svg = fig.svg()
    assert "stroke: var(--qp-stream, #56758f); stroke-opacity: 0.2" in svg
    assert "clip-path" not in svg.split('data-part="end"')[1].split("</g>")[0]


def test_a_token_is_told_with_its_mean_and_size():
    shown = {"the token": [1.0, 2.0, 3.0, 4.0], "RMSNorm": [-1.0, 0.001, 0.0, 1.0]}
    fig = token_figure(shown, "std")
    assert fig.alt == (
        "The token: 1.00, 2.00, 3.00, 4.00; mean 2.50, std 1.12. "
        "RMSNorm: −1.00, 0.0010, 0, 1.00; mean 0.0003, std 0.71."
    )
    assert token_figure(shown, "rms").parts["sizes-0"].get_text().endswith("rms 2.74")
    assert fig.parts["bar-1-1"].get_height() == -1
    assert fig.parts["mean"].get_ydata()[0] == 2.5


def test_scales_lead_from_data_to_places_of_the_drawing():
    fig = book.Figure(alt=ALT, rows=2, size=(4, 4))
    fig.axes[1].set(xlim=(0, 10), ylim=(1, 100), yscale="log")
    fig.part(fig.axes[1].plot([0, 10], [1, 10])[0], "line")
    scales = fig.scales()
    left, top, right, bottom = scales[1]["box"]
    assert scales[0]["log"] == [] and scales[1]["log"] == ["y"]
    assert scales[1]["x"] == [0, 10] and scales[1]["y"] == [1, 100]
    path = re.search(r'data-part="line">\s*<path d="([^"]+)"', fig.svg())[1]
    x0, y0, x1, y1 = map(float, re.findall(r"[\d.]+", path))
    wanted = (left, bottom, right, (top + bottom) / 2)
    assert (x0, y0, x1, y1) == pytest.approx(wanted, abs=0.02)


def spec_of(markup: str) -> dict:
    """What the script of an explorable is called with."""
    text = re.search(r'getElementById\("x\w+"\), (\{.*\}), ', markup, re.S)[1]
    return json.loads(text)


def test_explorable_draws_every_combination_and_shows_the_first():
    explorable = book.Explorable(
        draw, "Move the slope.", slope=[1, 2, 3], kind=["solid", "dashed"]
    )
    markup = explorable._repr_html_()
    assert len(explorable.figures) == len(spec_of(markup)["frames"]["frames"]) == 6
    assert markup.count("<svg") == 1 and "A solid line of slope 1." in markup
    assert 'type="range"' in markup and "<select" in markup
    assert 'data-telling="0,0"' in markup
    assert markup == explorable._repr_html_()


def test_frames_cost_what_changes_in_them():
    def many(slope):
        fig = draw(slope)
        fig.ax.set(ylim=(0, 20))
        return fig

    few, all_ = (
        book.Explorable(many, "Move it.", slope=list(range(1, n)))._repr_html_()
        for n in (3, 19)
    )
    assert len(all_) - len(few) < 16 * 250 < len(draw().svg())


def apply(drawing: str, found: dict, frame: int) -> ET.Element:
    """One frame from the first and its changes, as explorable.js makes it."""
    root = ET.fromstring(drawing)
    targets = []
    for way, _ in found["places"]:
        node = root
        for step in way:
            node = node[step]
        targets.append(node)
    for n, (_, what) in enumerate(found["places"]):
        value = found["values"][n][found["frames"][frame][n]]
        if what == "inner":
            inner = ET.fromstring(f"<g xmlns='{frames.SVG}'>{value}</g>")
            targets[n][:] = list(inner)
        elif what == "text":
            targets[n].text = value
        elif value is None:
            targets[n].attrib.pop(what, None)
        else:
            targets[n].set(what, value)
    return root


def plain(node: ET.Element) -> list:
    """An element without white space and names of namespaces, to compare."""
    attributes = {k.rpartition("}")[2]: v for k, v in node.attrib.items()}
    return [node.tag, attributes, (node.text or "").strip(), *map(plain, node)]


def test_changes_lead_from_the_first_drawing_to_each():
    def busy(n):
        fig = draw(n + 1, ["solid", "dashed", "dotted"][n])
        fig.ax.plot([0, 1], [1, n], "o" * (n < 2) or "s", label=f"run {n}")
        fig.ax.bar(range(n + 1), range(n + 1))
        fig.ax.text(0, 0, f"{n} < {n + 1} & so on")
        fig.ax.legend() if n else None
        return fig.svg(salt="all")

    drawings = [busy(n) for n in range(3)]
    found = frames.changes(drawings)
    for n, drawing in enumerate(drawings):
        assert plain(apply(drawings[0], found, n)) == plain(ET.fromstring(drawing))
    assert plain(apply(drawings[0], found, 1)) != plain(ET.fromstring(drawings[2]))


def test_the_same_drawing_changes_nothing():
    assert frames.changes([draw().svg()] * 3)["places"] == []


@pytest.mark.parametrize("controls", [{}, {"slope": []}, {"slope": book.Slider(0, 1)}])
def test_explorable_refuses_what_it_cannot_show(controls):
    with pytest.raises(ValueError, match="control"):
        book.Explorable(draw, "Move it.", **controls)


def test_a_slider_may_go_by_factors():
    slider = book.Slider(0.001, 10, 0.5, 0.1, log=True)
    assert [str(slider.at(v)) for v in (0.001, 0.1, 10)] == ["-3", "-1", "1"]
    assert [slider.label(v) for v in (0.001, 0.1, 10)] == ["0.001", "0.1", "10"]
    assert [book.Slider(0, 1, 0.25).label(v) for v in (0, 0.5)] == ["0.00", "0.50"]
    with pytest.raises(ValueError, match="low must be above 0"):
        book.Slider(0, 1, 0.1, log=True)


def test_explorable_refuses_a_setting_that_is_not_there():
    with pytest.raises(ValueError, match="slope=7 is not among"):
        book.Explorable(draw, "Move it.", telling={"slope": 7}, slope=[1, 2])
    with pytest.raises(ValueError, match="'width' is no control: slope"):
        book.Explorable(draw, "Move it.", telling={"width": 7}, slope=[1, 2])


def test_explorable_refuses_to_be_heavy():
    def many(seed):
        fig = draw(seed)
        fig.ax.plot(range(9000), [(seed * i) % 7 for i in range(9000)])
        return fig

    with pytest.raises(ValueError, match="make a heavy page"):
        book.Explorable(many, "Move it.", seed=[1, 2, 3, 4, 5, 6])


@pytest.mark.parametrize(
    "numbers", [(1, 0, 1), (0, 1, 0), (0, 1, 0.1, 2), (0, 1, 0.1, -1)]
)
def test_slider_refuses_what_it_cannot_stand_at(numbers):
    with pytest.raises(ValueError, match="must be"):
        book.Slider(*numbers)


def test_slider_shows_the_digits_of_its_step():
    assert [book.Slider(0, 9, step).digits for step in (1, 0.5, 0.05)] == [0, 1, 2]
    assert book.Slider(-1, 1, 0.5).start == -1


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_scripts_of_figures_are_whole(path):
    """Node reads each as the expression that it stands for."""
    text = path.read_text("utf-8")
    assert text.startswith("//"), "a script says first what it is"
    node = shutil.which("node") or pytest.skip("needs node")
    command = [node, "-e", "new Function('return ' + process.argv[1])", text]
    body = re.sub(r"^\s*//.*\n", "", text, flags=re.M)
    command[-1] = f"({body})"
    done = subprocess.run(command, capture_output=True, text=True, encoding="utf-8")
    assert done.returncode == 0, done.stderr


def test_table_aligns_numbers_and_refuses_ragged_rows():
    table = book.table(["norm", "loss"], [("pre", "2.24"), ("post", "−3.10")], "Losses")
    markup = table._repr_html_()
    assert "<caption>Losses</caption>" in markup
    sides = re.findall(r'text-align:(\w+)">([^<]*)', markup)
    assert sides[1::2] == [("right", "loss"), ("right", "2.24"), ("right", "−3.10")]
    assert {side for side, _ in sides[::2]} == {"left"}
    assert repr(table).splitlines()[1] == "pre   2.24"
    with pytest.raises(ValueError, match="row 0 has 1 cells, the header 2"):
        book.table(["a", "b"], [("x",)])


@pytest.mark.parametrize(
    ("cell", "shown", "side"),
    [
        ("-0.008", "−0.008", "right"),
        ("7.8e-03", "7.8 · 10⁻³", "right"),
        ("1e-06", "10⁻⁶", "right"),
        ("10⁻⁶", "10⁻⁶", "right"),
        ("2.59 ± 0.02", "2.59\u00a0±\u00a00.02", "right"),
        ("1,536", "1,536", "right"),
        ("0.5×", "0.5×", "right"),
        ("eps=1e-6", "eps=1e-6", "left"),
        ("Pre-LN", "Pre-LN", "left"),
    ],
)
def test_a_cell_is_set_as_in_a_book(cell, shown, side):
    """And its column by all of its cells: one word among numbers, and all are left."""
    rows = [("a", cell, cell), ("b", "–", "word")]
    markup = book.table(["name", "alone", "mixed"], rows)._repr_html_()
    assert f'text-align:{side}">{shown}</td>' in markup
    assert f'text-align:left">{shown}</td>' in markup


def test_powers_of_ten_are_set_as_in_a_book():
    assert [book.power_of_ten(n) for n in (-12, 0, 6)] == ["10⁻¹²", "10⁰", "10⁶"]


def test_a_measured_table_is_masked_and_another_is_not():
    """F05: digits of training runs are not compared, exact ones are."""
    config = configparser.RawConfigParser()
    config.read(ROOT / "tools" / "nbval_sanitize.cfg", encoding="utf-8")
    masks = [
        (config[name]["regex"], config[name]["replace"]) for name in config.sections()
    ]

    def compared(loss, measured):
        table = book.table(["seed", "loss"], [("0", loss)], "Loss", measured=measured)
        texts = [table._repr_html_(), repr(table)]
        for regex, word in masks:
            texts = [re.sub(regex, word, text) for text in texts]
        return texts

    assert compared("2.24", True) == compared("2.31", True) == ["MEASURED"] * 2
    exact = zip(compared("2.24", False), compared("2.31", False))
    assert all(a != b for a, b in exact)


def test_panel_says_where_it_moves_when_no_kernel_will_answer(monkeypatch, capsys):
    monkeypatch.setenv("MINIGPT_STATIC", "1")
    book.panel(draw, slope=(1, 3))
    assert "Live panel (slope)" in capsys.readouterr().out


def test_panel_is_a_widget_where_a_kernel_answers(monkeypatch):
    """H03: the live notebook gets controls, and moving one redraws the figure."""
    monkeypatch.setenv("MINIGPT_STATIC", "0")
    source = (
        "from minigpt import book\n"
        "def draw(slope):\n"
        "    fig = book.Figure(alt=f'A straight line of slope {slope}.')\n"
        "    fig.ax.plot([0, slope])\n"
        "    return fig\n"
        "book.panel(draw, slope=(1, 3))"
    )
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source)])
    NotebookClient(notebook, kernel_name="python3", timeout=60).execute()
    kinds = {kind for out in notebook.cells[0].outputs for kind in out.get("data", {})}
    assert "application/vnd.jupyter.widget-view+json" in kinds
    state = notebook.metadata.widgets["application/vnd.jupyter.widget-state+json"][
        "state"
    ]
    models = [entry["model_name"] for entry in state.values()]
    assert "IntSliderModel" in models


def test_missing_extra_is_named():
    """I03"""
    code = (
        "import sys; sys.modules['matplotlib'] = None\n"
        "try:\n    import minigpt.book\n"
        "except ModuleNotFoundError as error:\n    print(error)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env=dict(os.environ),
    )
    assert 'pip install "minigpt[book]"' in done.stdout


def test_a_run_is_drawn_while_it_goes_and_silent_in_the_books_own_runs(monkeypatch):
    from minigpt.book import live

    assert book.watch(10) is None  # MINIGPT_STATIC
    monkeypatch.delenv("MINIGPT_STATIC")
    assert book.watch(10) is None  # no notebook
    shown, now = [], [0.0]

    class Handle:
        update = staticmethod(shown.append)

    def display(figure, display_id):
        shown.append(figure)
        return Handle

    monkeypatch.setattr(live, "get_ipython", object)
    monkeypatch.setattr(live, "display", display)
    monkeypatch.setattr(live.time, "perf_counter", lambda: now[0])
    show = book.watch(10)
    for step in range(1, 11):
        now[0] += 0.4
        record = {"step": step, "loss": 4.0 - step / 10, "tokens_per_s": 12345}
        show(record | ({"val_loss": 3.5} if step == 5 else {}))
    # at once, then once a second at most, and the end
    assert [f.caption.split(":")[0] for f in shown] == [
        f"Step {n} of 10" for n in (1, 4, 7, 10)
    ]
    assert "loss 3.300, validation 3.500, 12.3 thousand" in shown[2].caption
    assert "0:01 left" in shown[2].caption and "<svg" in shown[-1]._repr_html_()
