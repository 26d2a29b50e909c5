"""Figures a reader can move without a kernel: every frame is drawn beforehand."""

import hashlib
import html
import itertools
import json
from collections.abc import Callable

from minigpt.book.figures import Figure

__all__ = ["Explorable"]

_SCRIPT = """
(() => {
  const root = document.getElementById("ID");
  const frames = root.querySelectorAll(".qp-frame");
  const controls = root.querySelectorAll("input, select");
  const sizes = SIZES, labels = LABELS;
  const show = () => {
    let index = 0;
    controls.forEach((control, i) => {
      const at = control.tagName === "SELECT" ? control.selectedIndex : +control.value;
      const output = control.parentElement.querySelector("output");
      if (output) output.textContent = labels[i][at];
      if (output) control.setAttribute("aria-valuetext", labels[i][at]);
      index = index * sizes[i] + at;
    });
    frames.forEach((frame, i) => { frame.hidden = i !== index; });
  };
  root.addEventListener("keydown", event => event.stopPropagation());
  controls.forEach(control => {
    control.disabled = false;
    control.addEventListener("input", show);
  });
  show();
})();
"""


class Explorable:
    """One figure with controls, moved by a few lines of script on the page itself.

    Works on the static page, in JupyterLab and in Colab; without script, in print and
    in a notebook that is not trusted it shows its first frame. For free parameters put
    a `panel` with the same `draw` below it.

    Args:
        draw: returns a `Figure` for one setting; called once for every combination.
        caption: what to try, and what to look at.
        controls: name -> list of values. Numbers become a slider, text a menu. A name's
            underscores are shown as spaces. The first value of each is the start.

    Raises:
        ValueError: without controls, with an empty list, or with more than 64 frames.
    """

    def __init__(self, draw: Callable[..., Figure], caption: str, **controls: list):
        if not controls:
            raise ValueError("an Explorable needs a control: name=[values]")
        for name, values in controls.items():
            if not values:
                raise ValueError(f"control {name!r} has no values")
        self.controls = {name: list(values) for name, values in controls.items()}
        settings = list(itertools.product(*self.controls.values()))
        if len(settings) > 64:
            raise ValueError(
                f"{len(settings)} frames make a heavy page; 64 is the limit"
            )
        self.caption = " ".join(caption.split())
        names = list(self.controls)
        self.figures = [draw(**dict(zip(names, setting))) for setting in settings]
        key = json.dumps(
            [self.caption, {k: [str(v) for v in vs] for k, vs in controls.items()}]
        )
        self.id = "x" + hashlib.sha256(key.encode()).hexdigest()[:10]

    def __repr__(self) -> str:
        names = ", ".join(self.controls)
        return f"Explorable ({names}; {len(self.figures)} frames): {self.caption}"

    def _repr_html_(self) -> str:
        controls = "".join(
            self._control(name, values) for name, values in self.controls.items()
        )
        frames = "".join(
            f'<div class="qp-frame"{" hidden" if i else ""}>{figure.svg()}</div>'
            for i, figure in enumerate(self.figures)
        )
        labels = [[str(v) for v in values] for values in self.controls.values()]
        script = (
            _SCRIPT.replace("ID", self.id)
            .replace("SIZES", json.dumps([len(v) for v in labels]))
            .replace("LABELS", json.dumps(labels).replace("</", "<\\/"))
        )
        return (
            f'<figure class="qp-figure qp-explorable" id="{self.id}" '
            'style="margin:1em 0"><div class="qp-controls" '
            'style="display:flex;gap:.4em 1.5em;flex-wrap:wrap">'
            f"{controls}</div>{frames}"
            f"<figcaption>{html.escape(self.caption)}</figcaption></figure>"
            f"<script>{script}</script>"
        )

    def _control(self, name: str, values: list) -> str:
        ident, label = f"{self.id}-{name}", html.escape(name.replace("_", " "))
        start = f'<label for="{ident}">{label}</label>'
        if all(isinstance(v, str) for v in values):
            options = "".join(f"<option>{html.escape(v)}</option>" for v in values)
            control = f'<select id="{ident}" disabled>{options}</select>'
        else:
            control = (
                f'<input id="{ident}" type="range" min="0" max="{len(values) - 1}" '
                f'value="0" step="1" disabled style="flex:1;min-width:8em">'
                f'<output for="{ident}" style="min-width:3em">'
                f"{html.escape(str(values[0]))}</output>"
            )
        style = "display:flex;gap:.6em;align-items:center;flex:1 1 14em;max-width:26em"
        return f'<div style="{style}">{start}{control}</div>'
