"""The ladder of the landing page: each rung, the code it changes, and what that did.

Drawings come from `minigpt.book.diagram`, lines of code and numbers from
`minigpt.ladder` and the record of chapter 13. Everything is on the page; the script
`_assets/quiet-parts/ladder.js` chooses which rung's part is open.
"""

import re
import statistics
from dataclasses import dataclass
from functools import cache
from html import escape

from docutils import nodes
from sphinx.util.docutils import SphinxDirective

from minigpt import ladder
from minigpt.book import COLORS, Figure, diagram, records
from minigpt.gpt import GPTConfig, preset
from quiet_parts.outline import (
    OUTLINE,
    Placeholder,
    chapter_numbers,
    link,
    read_outline,
    written,
)
from quiet_parts.settings import ROOT

DEPTHS = (2, 12)
# A mean further from zero than this many standard errors, with all seeds on one side,
# is a difference. Chapter 13 says why, and has the same number.
LIMIT = 4.6
FIRST = "residual"  # open until another is chosen: the cliff
# Before the list is drawn: if the closed parts vanished later, the page would jump.
LIVE = '<script>document.currentScript.parentElement.classList.add("qp-live")</script>'
STRIP = {"width": 240, "height": 36, "low": 2.4, "high": 3.5, "pad": 8}


def setup(app):
    app.add_directive("ladder", LadderDirective)
    app.add_directive("one-plus-sign", PlusDirective)
    app.connect("html-page-context", add_script)


class LadderDirective(SphinxDirective):
    def run(self):
        depend(self.env)
        return [Placeholder(draw=draw_ladder)]


class PlusDirective(SphinxDirective):
    """What one addition does to twelve blocks, as recorded for chapter 13."""

    def run(self):
        depend(self.env)
        return [nodes.raw("", draw_plus()._repr_html_(), format="html")]


def depend(env) -> None:
    """Draw anew when the outline, the record or the package has changed."""
    for path in [OUTLINE, *sorted((ROOT / "minigpt").rglob("*.py"))]:
        env.note_dependency(str(path))
    env.note_dependency(str(ROOT / "minigpt" / "book" / "records" / "ladder.json"))


def add_script(app, pagename, templatename, context, doctree):
    if pagename == app.config.root_doc:
        app.add_js_file("quiet-parts/ladder.js", loading_method="defer")


# What was measured -------------------------------------------------------------------


@dataclass(frozen=True)
class Rung:
    """A rung of the outline, with what the record says of it at each depth."""

    words: dict
    steps: dict[int, dict]
    learned: tuple[int, int]

    @property
    def key(self) -> str:
        return self.words["key"]

    @property
    def config(self) -> GPTConfig:
        return preset(self.key, vocab_size=65)

    def losses(self, depth: int) -> list[float]:
        return self.steps[depth]["losses"]


@cache
def record() -> dict:
    return records.ladder()


def counting() -> float:
    """The loss of knowing only how often each character occurs."""
    return record()["setting"]["frequencies_only"]


def read_rungs() -> list[Rung]:
    """The rungs of the outline from the ground up, with their numbers."""
    steps, runs = {}, record()["runs"]
    for depth in DEPTHS:
        found = ladder.by_rung(runs, part="ladder", n_layers=depth)
        steps[depth] = {row["rung"]: row for row in ladder.summary(found)}
    grid = ladder.by_rung(runs, part="grid", n_layers=DEPTHS[-1])
    rungs = []
    for words in read_outline()["rungs"]:
        key = words["key"]
        learned = [run.learned(counting()) for run in grid[key]]
        rungs.append(
            Rung(
                words,
                {depth: steps[depth][key] for depth in DEPTHS},
                (sum(learned), len(learned)),
            )
        )
    return rungs


def verdict(step: dict) -> str:
    """What may be said of a rung's difference from the one below, by chapter 13."""
    found = step["difference"]
    if found is None:
        return "not compared"
    if not found.agree or abs(found.mean) < LIMIT * found.error:
        return "no effect shown"
    return "lower" if found.mean < 0 else "higher"


def signed(value: float) -> str:
    """A difference with a minus sign as wide as the plus."""
    return f"{value:+.3f}".replace("-", "−")


def change_words(step: dict) -> str:
    """A difference as words: its mean, the spread over seeds, what may be said."""
    found = step["difference"]
    numbers = f"{signed(found.mean)} ± {found.spread:.3f} nats"
    said = verdict(step)
    if said == "no effect shown":
        return f"no effect shown ({numbers})"
    return f"{numbers}, {said} in every seed"


# The page ----------------------------------------------------------------------------


def draw_ladder(app, docname: str) -> str:
    pages = written(app)
    numbers = chapter_numbers()
    items, rungs = [], {rung.key: rung for rung in read_rungs()}
    for rung in rungs.values():
        below = rungs.get(ladder.RUNGS[rung.key].below)
        name = rung.words["chapter"]
        where = f"chapter {numbers[name]}"
        if name in pages:
            where = f'<a href="{link(app, docname, pages[name])}">{where}</a>'
        else:
            where += ", to come"
        items.append(draw_item(rung, below, where))
    seeds = len(rungs["plain"].losses(DEPTHS[0]))
    caption = (
        f"A dot is the loss of one of {seeds} runs on text that was not trained on: "
        "filled with 12 blocks, whose mean stands at the end, open with 2. Dotted: "
        "counting characters only. Each rung trains at the learning rate and start "
        "that suit it best. Its numbers are the change from the rung it was added to, "
        "the one above it here (SwiGLU: RMSNorm), and the spread over seeds. A setting "
        "is a learning rate and a start."
    )
    return (
        f'<figure class="qp-ladder">{LIVE}{draw_axis()}<ol>{"".join(items)}</ol>'
        f"<figcaption>{caption}{draw_key()}</figcaption></figure>"
    )


def draw_item(rung: Rung, below: Rung | None, where: str) -> str:
    """One rung: drawing, name, dots, and below them what it changes and did."""
    key, words, config = rung.key, rung.words, rung.config
    opened = ' class="qp-open"' if key == FIRST else ""
    small = diagram.rung(
        config.order, norm=config.norm, mlp=config.mlp, dropout=config.dropout > 0
    )
    return (
        f'<li data-rung="{key}"{opened}>'
        '<div class="qp-rung">'
        f'<div class="qp-rung-drawing">{small.svg(hidden=True)}</div>'
        f'<div class="qp-rung-name"><h3 id="rung-{key}">'
        f'<button type="button">{escape(words["name"])}</button></h3>'
        f'<p><code>{escape(words["code"])}</code> <span class="qp-where">{where}</span>'
        f'</p></div><div class="qp-rung-dots">{draw_dots(rung)}</div></div>'
        f'<div class="qp-rung-more" id="about-{key}" role="group" '
        f'aria-labelledby="rung-{key}">{draw_more(rung, below)}</div></li>'
    )


def draw_more(rung: Rung, below: Rung | None) -> str:
    config, words = rung.config, rung.words
    big = diagram.block(
        config.order,
        norm=config.norm,
        mlp=config.mlp,
        dropout=config.dropout > 0,
        highlight=words.get("part", ()),
        code=False,
    )
    listed = "".join(f"<li>{said}</li>" for said in did(rung, below))
    return (
        f'<p class="qp-says">{escape(words["says"])}</p>{draw_change(rung.key)}'
        f'<ul class="qp-did">{listed}</ul>'
        f'<div class="qp-big">{big.svg()}</div>'
    )


def did(rung: Rung, below: Rung | None) -> list[str]:
    """What the rung did, in numbers of the record."""
    said = []
    for depth in reversed(DEPTHS):
        step = rung.steps[depth]
        if below:
            said.append(f"{depth} blocks: {change_words(step)}")
        else:
            mean = statistics.fmean(step["losses"])
            said.append(f"{depth} blocks: {mean:.3f} nats")
    if not below:
        said.append(f"Counting characters alone: {counting():.3f} nats")
    share = "{} of {}".format(*rung.learned)
    before = (
        " ({}: {} of {})".format(below.words["name"], *below.learned) if below else ""
    )
    return [*said, f"{DEPTHS[-1]} blocks learn in {share} settings{before}"]


def draw_change(key: str) -> str:
    """The lines of the package that leave and enter, without `self.` and comments."""
    rows = []
    for line in ladder.change(key):
        sign, text = line[0], re.sub(r"\s+#.*", "", line[2:].replace("self.", ""))
        if text.startswith("return x"):
            continue
        tag, mark = ("del", "−") if sign == "-" else ("ins", "+")
        said = "leaves" if sign == "-" else "enters"
        rows.append(
            f'<{tag}><span aria-hidden="true">{mark} </span>'
            f'<span class="qp-unseen">{said}: </span>{escape(text)}</{tag}>'
        )
    return f'<pre class="qp-change">{"".join(rows)}</pre>'


def draw_key() -> str:
    parts = [("attention", "attention"), ("mlp", "MLP"), ("norm", "norm")]
    parts.append(("stream", "residual stream"))
    marks = "".join(
        f'<span class="qp-key-{part}">{said}</span>' for part, said in parts
    )
    return f'<span class="qp-key">{marks}</span>'


# Dots on one axis --------------------------------------------------------------------


def place(loss: float) -> float:
    share = (loss - STRIP["low"]) / (STRIP["high"] - STRIP["low"])
    return round(STRIP["pad"] + share * (STRIP["width"] - 2 * STRIP["pad"]), 1)


def css(name: str) -> str:
    return f"var(--qp-{name}, {COLORS[name]})"


def draw_dots(rung: Rung) -> str:
    """Losses of all seeds at both depths, on the axis that all rungs share."""
    width, height = STRIP["width"], STRIP["height"]
    line = f"M{place(counting())} 0V{height}"
    marks = [f'<path d="{line}" style="stroke:{css("muted")};stroke-dasharray:2 3"/>']
    for depth, y in ((12, 11), (2, 26)):
        fill = css("ink") if depth == 12 else "none"
        style = f"fill:{fill};stroke:{css('ink')};stroke-width:1.3"
        for seed, loss in enumerate(rung.losses(depth)):
            at = f'cx="{place(loss)}" cy="{y + (seed - 2) * 1.4:g}"'
            marks.append(f'<circle {at} r="3.2" style="{style}"/>')
    means = [f"{statistics.fmean(rung.losses(d)):.2f} with {d} blocks" for d in DEPTHS]
    label = f"Mean loss {' and '.join(means)}."
    return (
        f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{label}">'
        f"{''.join(marks)}</svg>"
        f"<span>{statistics.fmean(rung.losses(DEPTHS[-1])):.2f}</span>"
    )


def draw_axis() -> str:
    """The axis above the dots, once for all of them: words that keep their size."""
    ticks = {"2.5": 2.5, "3": 3.0, "counting": counting()}
    marks = "".join(
        f'<span style="left:{100 * place(value) / STRIP["width"]:.1f}%">{name}</span>'
        for name, value in ticks.items()
    )
    return (
        '<div class="qp-axis" aria-hidden="true"><div>'
        f"<p>loss, nats per character</p><p>{marks}</p></div>"
        "<b>mean</b></div>"
    )


# One plus sign -----------------------------------------------------------------------


def draw_plus() -> Figure:
    """Two rungs at twelve blocks: every seed's loss while it trains."""
    runs = ladder.by_rung(record()["runs"], part="ladder", n_layers=DEPTHS[-1])
    ends = {key: statistics.fmean(r.val_loss for r in runs[key]) for key in runs}
    seeds, line = len(runs["plain"]), counting()
    fig = Figure(
        alt=f"Loss while training, {seeds} seeds each. With 12 blocks and x = f(x) it "
        f"falls to {line:.2f}, what counting characters gives, and stays. With "
        f"x = x + f(x) it falls on to {ends['residual']:.2f}.",
        caption=f"A GPT of 12 blocks without norms, {seeds} seeds with and {seeds} "
        "without the plus sign, each at the learning rate and start that suit it best. "
        "The dotted line: knowing only how often each character occurs.",
        size=(4.4, 3.0),
    )
    looks = {"plain": ("ink", "x = f(x)"), "residual": ("stream", "x = x + f(x)")}
    for key, (color, label) in looks.items():
        for run in runs[key]:
            steps = [10 * (i + 1) for i in range(len(run.losses))]
            fig.ax.plot(steps, run.losses, color=COLORS[color], linewidth=1.6)
        above = max(max(run.losses[-10:]) for run in runs[key]) + 0.06
        look = {"color": COLORS[color], "family": "monospace", "weight": "bold"}
        fig.ax.text(248, above, label, ha="right", va="bottom", size=12, **look)
    fig.ax.axhline(line, color=COLORS["muted"], linestyle=":", linewidth=1.2)
    fig.ax.set(
        xlabel="training step", ylabel="loss (nats per character)", xlim=(0, 250)
    )
    return fig
