"""What moves while a kernel answers: panels with free parameters, a run's progress."""

import os
import time
from collections.abc import Callable

from IPython import get_ipython
from IPython.display import display

from minigpt.book.figures import COLORS, Figure

__all__ = ["panel", "static", "watch"]


def static() -> bool:
    """True while the book itself is being executed, for its saved outputs or its tests.

    Set by `tools/execute.py` and the notebook tests (`MINIGPT_STATIC=1`). Progress bars
    are silent then, and a panel says where it would move.
    """
    return os.environ.get("MINIGPT_STATIC") == "1"


def panel(draw: Callable, **controls) -> None:
    """Sliders and menus that redraw `draw(...)`, built on `ipywidgets.interact`.

    Args:
        draw: returns a `Figure` (or prints); its arguments are the controls' names.
        controls: what `ipywidgets.interact` takes: `(low, high)`, `(low, high, step)`,
            a list of choices, or a single value. Works with ipywidgets 7.7 and 8.
    """
    if static():
        names = ", ".join(controls)
        print(f"Live panel ({names}): run this notebook to move its controls freely.")
        return
    try:
        from ipywidgets import interact
    except ModuleNotFoundError:
        raise ModuleNotFoundError(
            'a live panel needs ipywidgets: pip install "minigpt[book]"',
            name="ipywidgets",
        ) from None
    interact(draw, **controls)


def watch(steps: int, seconds: float = 1.0) -> Callable[[dict], None] | None:
    """Draw a training run while it goes: `train(..., on_record=book.watch(steps))`.

    The figure has the loss of each recorded batch and of the validation split; its
    caption counts steps and the time that is left.

    Args:
        steps: of the whole run.
        seconds: the least time between two drawings.

    Returns:
        What `train` calls with every record; None, which shows nothing, outside of a
        notebook and while the book itself is being executed.
    """
    if static() or get_ipython() is None:
        return None
    rows: list[dict] = []
    begun = drawn = time.perf_counter()
    handle = None

    def show(record: dict) -> None:
        nonlocal drawn, handle
        rows.append(record)
        now, ended = time.perf_counter(), record["step"] >= steps
        if handle is not None and now - drawn < seconds and not ended:
            return
        drawn = now
        figure = draw_run(rows, steps, now - begun)
        if handle is None:
            handle = display(figure, display_id=True)
        else:
            handle.update(figure)

    return show


def draw_run(rows: list[dict], steps: int, spent: float) -> Figure:
    """The figure of `watch`, from the records so far and the seconds they took."""
    now, first = rows[-1], rows[0]["step"] - 1
    left = spent / max(1, now["step"] - first) * (steps - now["step"])
    looks = [(row["step"], row["val_loss"]) for row in rows if "val_loss" in row]
    val = f", validation {looks[-1][1]:.3f}" if looks else ""
    figure = Figure(
        alt=f"The training loss of the {now['step']} steps made so far.",
        caption=f"Step {now['step']} of {steps}: loss {now['loss']:.3f}{val}, "
        f"{now['tokens_per_s'] / 1000:.1f} thousand tokens a second, "
        f"{left // 60:.0f}:{left % 60:02.0f} left.",
        size=(4.6, 2.6),
    )
    thin = rows[:: max(1, len(rows) // 400)]
    at, losses = [row["step"] for row in thin], [row["loss"] for row in thin]
    figure.ax.plot(at, losses, color=COLORS["muted"], lw=0.8, label="each batch")
    if looks:
        look = {"color": COLORS["attention"], "label": "validation"}
        figure.ax.plot(*zip(*looks), "o-", **look)
        figure.ax.legend()
    figure.ax.set(xlabel="step", ylabel="loss (nats)", xlim=(0, steps))
    return figure
