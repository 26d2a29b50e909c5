"""Live panels: the same picture with free parameters, where a kernel answers."""

import os
from collections.abc import Callable

__all__ = ["panel", "static"]


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
