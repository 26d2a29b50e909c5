"""minigpt.book: figures that carry their own words, explorables, tables, panels."""

import configparser
import os
import re
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from minigpt import book

ROOT = Path(__file__).resolve().parent.parent
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
    assert (
        "var(--qp-ink, #1f2328)" in markup and "var(--qp-attention, #0072b2)" in markup
    )
    assert "<figcaption>It rises.</figcaption>" in markup
    assert not re.search(r"(fill|stroke): #1f2328", markup)
    assert "<text" in markup  # text stays text: it scales, and can be read out


def test_figure_is_drawn_the_same_twice():
    assert draw()._repr_html_() == draw()._repr_html_()


def test_figures_of_one_page_share_no_ids():
    ids = [set(re.findall(r'id="([^"]+)"', draw(s)._repr_html_())) for s in (1, 2)]
    assert ids[0] and not ids[0] & ids[1]


def test_figure_without_words_is_refused():
    with pytest.raises(ValueError, match="alt='a plot' says too little"):
        book.Figure(alt="a plot")


def test_figure_with_hangul_warns_nobody(recwarn):
    fig = book.Figure(alt=ALT)
    fig.ax.set_title("고양이가 창밖을 보았다")
    assert "고양이가" in fig.svg()
    assert not recwarn.list


def test_explorable_draws_every_combination_and_shows_the_first():
    explorable = book.Explorable(
        draw, "Move the slope.", slope=[1, 2, 3], kind=["solid", "dashed"]
    )
    markup = explorable._repr_html_()
    assert len(explorable.figures) == 6
    assert markup.count('class="qp-frame"') == 6
    assert markup.count('class="qp-frame" hidden') == 5
    assert 'type="range"' in markup and "<select" in markup
    assert markup == explorable._repr_html_()


@pytest.mark.parametrize("controls", [{}, {"slope": []}, {"slope": list(range(65))}])
def test_explorable_refuses_what_it_cannot_show(controls):
    with pytest.raises(ValueError, match=r"control|values|frames"):
        book.Explorable(draw, "Move it.", **controls)


def test_table_aligns_numbers_and_refuses_ragged_rows():
    table = book.table(["norm", "loss"], [("pre", "2.24"), ("post", "−3.10")], "Losses")
    markup = table._repr_html_()
    assert (
        "<caption>Losses</caption>" in markup and markup.count("text-align:right") == 2
    )
    assert repr(table).splitlines()[1] == "pre   2.24"
    with pytest.raises(ValueError, match="row 0 has 1 cells, the header 2"):
        book.table(["a", "b"], [("x",)])


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
