"""The clinic's page: curves, sheet, question, evidence and repair of each patient.

The runs are recorded (`tools/record_clinic.py`) and shown without a name. What is wrong
with whom, and what an option of the question says, stands in `clinic_patients`; so it
is not to be read in the notebook before the choice.
"""

import ast
import difflib
import html
import inspect
import json
import math
import textwrap
from functools import cache
from importlib.resources import files

from matplotlib.ticker import NullLocator

from minigpt.book import clinic_runs
from minigpt.book.clinic_patients import PATIENTS, Patient
from minigpt.book.clinic_runs import PLANS, uniform, unigram
from minigpt.book.figures import COLORS, Figure
from minigpt.book.quiz import quiz
from minigpt.book.tables import table

__all__ = [
    "chart",
    "compare",
    "difference",
    "evidence",
    "patient",
    "question",
    "record",
    "rerun",
    "reveal",
    "sheet",
    "uniform",
    "unigram",
]

ROWS = {  # of the sheet: words, and where the number is found
    "loss of the first batch": ("sheet", "first loss"),
    "training loss at the end": ("train",),
    "validation loss at the end": ("val",),
    "... the same weights once more": ("sheet", "again"),
    "... at the last place of a window": ("sheet", "last place"),
    "... at the other places": ("sheet", "other places"),
    "early logits, when later characters change": ("sheet", "later"),
    "a block whose sublayers write zeros": ("sheet", "silent"),
    "largest number on the stream": ("sheet", "largest"),
    "tokens that a norm turns into zeros": ("sheet", "zeros"),
    "neurons that fire for no token": ("sheet", "dead"),
    "evenness of attention": ("sheet", "evenness"),
    "cosine of two tokens at the end": ("sheet", "alike"),
    "change of all weights by the first step": ("sheet", "first step"),
    "size of all weights, end over start": ("sheet", "growth"),
}
SHARES = {"later", "silent", "zeros", "dead", "first step"}


@cache
def record() -> dict[str, dict[int, dict]]:
    """The recorded runs: plan -> seed -> what `clinic_runs.run` found."""
    path = files("minigpt.book") / "records" / "clinic.json"
    found: dict = {}
    for run in json.loads(path.read_text("utf-8"))["runs"]:
        found.setdefault(run["plan"], {})[run["seed"]] = run
    return found


def patient(number: int) -> Patient:
    """The patient of a number, from 1. Raises ValueError if there is none."""
    if not 1 <= number <= len(PATIENTS):
        raise ValueError(f"number={number} must be from 1 to {len(PATIENTS)}")
    return PATIENTS[number - 1]


# --- What the reader sees first -------------------------------------------------------


def chart(number: int) -> Figure:
    """Losses, gradient and layers of a patient beside the control's; 0: the control."""
    runs = record()[patient(number).plan if number else "control"]
    words = "; ".join(_told(run) for run in runs.values())
    who = f"patient {number}" if number else "the healthy control"
    fig = Figure(
        alt=f"Four panels of {who}, one line for each seed. {words}.",
        caption="One line for each of two seeds. Grey: the healthy control. Dashes and "
        "dots: the loss of a model that knows letter counts only.",
        size=(4.6, 5.4),
        rows=2,
        cols=2,
    )
    loss, length, signal, gradient = fig.axes
    if number:
        _curves(loss, length, record()["control"], COLORS["muted"], 1.2)
    _curves(loss, length, runs, None, 2.0)
    loss.axhline(unigram(), color=COLORS["ink"], linestyle="-.", linewidth=1)
    loss.set(title="Loss (nats)", xlabel="step")
    _limit(loss, runs)
    length.set(title="Gradient's length", xlabel="step")
    for ax, what in ((signal, "signal"), (gradient, "gradient")):
        if number:
            _layers(ax, what, record()["control"], COLORS["muted"], 1.2)
        _layers(ax, what, runs, None, 2.0)
        ax.set(xlabel="block")
    for ax in (length, signal, gradient):
        _decades(ax)
    signal.set_title("Stream after block")
    gradient.set_title("Its gradient")
    # Above the panels: inside, on a phone, words would lie on the lines.
    named = [ax.get_legend_handles_labels()[0] for ax in (loss, signal)]
    above = {"loc": "outside upper center", "ncols": 2, "labelcolor": COLORS["ink"]}
    fig.figure.legend(handles=[line for lines in named for line in lines], **above)
    return fig


def _told(run: dict) -> str:
    train, val = (_last(run[name]) for name in ("train", "val"))
    first = run["sheet"]["first loss"]
    return (
        f"seed {run['seed']}: loss {_number(first)} in the first batch, "
        f"training loss {_number(train)} and validation loss {_number(val)} at the end"
    )


def _curves(loss, length, runs: dict, color, width: float) -> None:
    for at, run in enumerate(runs.values()):
        steps = run["steps"]
        for name, style, ours in (("train", "-", "mlp"), ("val", "--", "attention")):
            words = {"train": "training", "val": "validation"}[name]
            loss.plot(
                *_seen(steps, run[name]),
                style,
                color=color or COLORS[ours],
                linewidth=width,
                label=words if color is None and at == 0 else None,
            )
        length.plot(
            *_seen(steps, run["length"]),
            color=color or COLORS["accent"],
            linewidth=width,
        )


def _limit(ax, runs: dict) -> None:
    """Leave out what would flatten everything else, but show that it is there."""
    values = [v for run in runs.values() for v in run["train"] + run["val"] if v]
    if max(values) > 30:
        _decades(ax)
    elif min(values) < 1:
        ax.set_ylim(bottom=0)


def _decades(ax) -> None:
    """A logarithmic axis from one power of ten to another, labelled at these only."""
    values = [v for line in ax.get_lines() for v in line.get_ydata() if v > 0]
    low, high = math.log10(min(values)), math.log10(max(values))
    ax.set_yscale("log")
    ax.set_ylim(10.0 ** math.floor(low - 0.02), 10.0 ** math.ceil(high + 0.02))
    ax.yaxis.set_minor_locator(NullLocator())


def _layers(ax, what: str, runs: dict, color, width: float) -> None:
    for at, run in enumerate(runs.values()):
        for when, style in (("start", ":"), ("end", "-")):
            places, values = _seen(range(1, 99), run[when][what])
            ax.plot(
                places,
                values,
                style,
                color=color or COLORS["accent"],
                linewidth=width,
                label=f"at the {when}" if color is None and at == 0 else None,
            )


def _seen(places, values: list) -> tuple[list, list]:
    """The points that are numbers; a logarithm has no place for zero."""
    kept = [(p, v) for p, v in zip(places, values) if v is not None and v > 0]
    return [p for p, _ in kept], [v for _, v in kept]


def sheet(number: int):
    """The examination of a patient beside that of the control, each seed for itself."""
    runs, control = record()[patient(number).plan], record()["control"]
    rows = []
    for words, path in ROWS.items():
        cells = [_cell(path, run) for run in (*runs.values(), *control.values())]
        rows.append((words, *cells))
    seeds = [f"seed {seed}" for seed in runs]
    header = [
        "what",
        *(f"patient, {s}" for s in seeds),
        *(f"control, {s}" for s in seeds),
    ]
    return table(header, rows, f"Patient {number}: the sheet", measured=True)


def _cell(path: tuple[str, ...], run: dict) -> str:
    value = run[path[0]]
    value = _last(value) if len(path) == 1 else value[path[1]]
    if path[-1] in SHARES and value is not None:
        percent = 100 * value
        return f"{percent:.0f}%" if percent >= 10 else f"{percent:.2g}%"
    return _number(value)


def _last(values: list):
    return values[-1]


def _number(value: float | None) -> str:
    if value is None:
        return "no number"
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"


def question(number: int):
    """What is wrong with the patient? Each option says why or why not."""
    who = patient(number)
    return quiz(
        f"What is wrong with patient {number}?",
        [(option.text, option.right, option.why) for option in who.options],
    )


# --- After the choice -----------------------------------------------------------------


def evidence(number: int) -> list[tuple[str, bool]]:
    """Every statement behind the options, and whether all recorded seeds agree."""
    found = []
    for option in patient(number).options:
        for words, holds in option.evidence:
            found.append((words, all(holds(_of_seed(seed)) for seed in _seeds())))
    return found


def _seeds() -> list[int]:
    return list(record()["control"])


def _of_seed(seed: int) -> dict[str, dict]:
    return {plan: runs[seed] for plan, runs in record().items()}


def difference(wrong, right) -> list[str]:
    """Lines that differ between two functions, without docstrings: the real source."""
    before, after = _body(wrong), _body(right)
    lines = list(difflib.unified_diff(before, after, lineterm="", n=3))[2:]
    return [line for line in lines if not line.startswith("@@")]


def _body(part) -> list[str]:
    source = textwrap.dedent(inspect.getsource(part))
    (node,) = ast.parse(source).body
    body = node.body[1:] if ast.get_docstring(node) else node.body
    lines = source.splitlines()[body[0].lineno - 1 : node.end_lineno]
    return textwrap.dedent("\n".join(lines)).splitlines()


class _Reveal:
    def __init__(self, number: int):
        self.number, self.who = number, patient(number)
        self.pairs = [
            (f"{wrong.__qualname__}, repaired: {right.__qualname__}", wrong, right)
            for wrong, right in self.who.shown
        ]

    def __repr__(self) -> str:
        lines = [f"Patient {self.number}: {self.who.name}"]
        for name, wrong, right in self.pairs:
            lines += [name, *difference(wrong, right)]
        return "\n".join(lines + [f"{w}: {ok}" for w, ok in evidence(self.number)])

    def _repr_html_(self) -> str:
        parts = [f"<p><strong>{html.escape(self.who.name)}.</strong> "]
        parts += [f"{html.escape(self.who.cure)}</p>"]
        for name, wrong, right in self.pairs:
            code = html.escape("\n".join(difference(wrong, right)))
            parts.append(f"<p><code>{html.escape(name)}</code></p><pre>{code}</pre>")
        parts.append("<p>What the record says, in every seed:</p><ul>")
        parts += [
            f"<li>{html.escape(words)}: {ok}</li>"
            for words, ok in evidence(self.number)
        ]
        return (
            "<details><summary>After your choice: the name, the lines, the evidence"
            f"</summary>{''.join(parts)}</ul></details>"
        )


def reveal(number: int):
    """A fold with the patient's disease, the lines that cause it, and the evidence."""
    return _Reveal(number)


def rerun(number: int, seed: int, steps: int | None = None) -> dict[str, dict]:
    """Train the patient and its repair here and now, and print what came out.

    Args:
        number: of the patient.
        seed: of weights and batches; another one than the record's, if you like.
        steps: of each run; a few seconds' worth, if not given.

    Returns:
        What `clinic_runs.run` found for "patient" and "repaired".
    """
    who = patient(number)
    names = {"patient": who.plan} | ({"repaired": who.cured} if who.cured else {})
    runs = {
        role: clinic_runs.run(PLANS[name], seed, steps or who.brief, looks=4)
        for role, name in names.items()
    }
    words, holds = who.verdict
    print(f"patient {number}, seed {seed}, {steps or who.brief} steps:")
    print(f"  {words}: {holds(runs)}")
    return runs


TOP = 5.0  # nats; what lies above tells no more


def compare(patient_number: int = 1) -> Figure:
    """Validation loss of a patient and of its repair, every recorded seed."""
    number, who = patient_number, patient(patient_number)
    cured = who.cured or who.plan  # unseen then: all frames have the same lines
    pairs = ("patient", who.plan, "-", "mlp"), ("repaired", cured, "--", "norm")
    fig = Figure(
        alt=f"Validation loss by step of patient {number}, {who.name}"
        + (", and of the repaired run." if who.cured else ", which needs no repair."),
        caption="Dashes and dots: letter counts only.",
        size=(4.4, 3.0),
    )
    for role, plan, style, color in pairs:
        runs = record()[plan].values()
        ends = [run["val"][-1] for run in runs]
        words = "no number" if None in ends else f"{sum(ends) / len(ends):.2f}"
        unseen = role == "repaired" and not who.cured
        label = "needs no repair" if unseen else f"{role}: {words} at the end"
        for at, run in enumerate(runs):
            points = _seen(run["steps"], run["val"])
            look = {"color": COLORS[color], "alpha": 0 if unseen else 1}
            fig.ax.plot(*points, style, label=None if at else label, **look)
    fig.ax.axhline(unigram(), color=COLORS["ink"], linestyle="-.", linewidth=1)
    seen = [v for run in record()[who.plan].values() for v in run["val"] if v]
    above = "the patient's losses lie above" if min(seen) > TOP else " "
    fig.ax.text(4, TOP - 0.15, above, va="top")
    fig.ax.set(xlabel="step", ylabel="validation loss (nats)", ylim=(0, TOP))
    last = max(run["steps"][-1] for runs in record().values() for run in runs.values())
    fig.ax.set(xlim=(0, last), xticks=range(0, last + 1, 60))
    fig.ax.set_title(f"{number}: {who.name.partition(':')[0]}", fontsize=11)
    fig.ax.legend(loc="lower left")
    return fig
