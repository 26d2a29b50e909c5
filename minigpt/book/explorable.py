"""Figures a reader can move without a kernel.

Two kinds, with one look. One has its frames drawn beforehand, by the function that
draws the figure. In the other a script moves named parts of the drawing, so that a
control may take any value and a part can be dragged; what the script draws is compared
with the function for some settings (`proof`; tests/site/test_explorables.py).
"""

import hashlib
import html
import itertools
import json
import math
import re
import xml.etree.ElementTree as ET
from collections.abc import Callable
from dataclasses import dataclass
from importlib import resources

from minigpt.book.figures import Figure
from minigpt.book.frames import SVG, changes

__all__ = ["Explorable", "Slider"]

# What the reader is shown for the names that arguments have in Python.
SPOKEN = {
    "d_model": "width D",
    "n_layers": "layers",
    "vocab_size": "vocabulary",
    "top_k": "top-k",
    "top_p": "top-p",
    "warm_up": "warm-up",
    "warmup": "warm-up",
}
LIMIT = 300_000  # characters of one figure; the page is sent over a phone's network


@dataclass(frozen=True)
class Slider:
    """A control that takes any number of a range; for an explorable with a script.

    Args:
        low, high: its ends.
        step: between two values; between two powers of ten, if `log`.
        start: what it stands at; the low end if None.
        log: whether equal ways along it multiply the value by equal factors.

    Raises:
        ValueError: if `start` is not within, `step` is not above 0, or `low` is not
            above 0 and `log` is set.
    """

    low: float
    high: float
    step: float = 1
    start: float | None = None
    log: bool = False

    def __post_init__(self):
        if self.log and self.low <= 0:
            raise ValueError(f"{self}: low must be above 0 for log=True")
        if not (self.low < self.high and self.step > 0):
            raise ValueError(f"{self}: low must be below high, and step above 0")
        if self.start is None:
            object.__setattr__(self, "start", self.low)
        if not self.low <= self.start <= self.high:
            raise ValueError(f"{self}: start must be from low to high")

    @property
    def digits(self) -> int:
        """Digits after the point that `step` needs."""
        return len(f"{self.step:.6f}".rstrip("0").partition(".")[2])

    def at(self, value: float) -> float:
        """Where the control stands for a value."""
        if not self.log:
            return value
        power = round(math.log10(value), 6)
        return int(power) if power.is_integer() else power  # as a browser writes it

    def label(self, value: float) -> str:
        """The value as it is written beside the control."""
        return f"{value:.2g}" if self.log else f"{value:.{self.digits}f}"


class Explorable:
    """One figure with controls, moved by a few lines of script on the page itself.

    Works on the static page, in JupyterLab and in Colab; without script and in a
    notebook that is not trusted it shows its first frame, in print its telling one. For
    free parameters put a `panel` with the same `draw` below it.

    Args:
        draw: returns a `Figure` for one setting. Without `script` it is called once for
            every combination; with one for the start and for each setting of `proof`.
        caption: what to try, and what to look at.
        telling: the setting that says most, name -> value, for print. None: the start.
        script: name of a file in minigpt/book/scripts, without its ending: a function
            of the tools in explorable.js and of `data`, that returns a function of the
            controls' values, which moves the parts that `Figure.part` has named.
        data: what the script draws from, made of lists, dicts, numbers and text.
        proof: settings, each name -> value, at which the script must draw as `draw`.
        controls: name -> list of values, or a `Slider`. Of a list, numbers become a
            slider from one to the next, text a menu, and the first is the start. A
            name's underscores are shown as spaces.

    Raises:
        ValueError: without controls, with an empty list or an unknown value, with a
            `Slider` but no script, or if the figure would be heavier than a page bears.
    """

    def __init__(
        self,
        draw: Callable[..., Figure],
        caption: str,
        *,
        telling: dict | None = None,
        script: str | None = None,
        data: object = None,
        proof: list[dict] = (),
        **controls: list | Slider,
    ):
        if not controls:
            raise ValueError("an Explorable needs a control: name=[values]")
        for name, values in controls.items():
            if isinstance(values, Slider) and script is None:
                raise ValueError(f"control {name!r}: a Slider needs a script")
            if not isinstance(values, Slider) and not list(values):
                raise ValueError(f"control {name!r} has no values")
        self.controls = {
            name: values if isinstance(values, Slider) else list(values)
            for name, values in controls.items()
        }
        self.caption = " ".join(caption.split())
        self.script, self.data = script, data
        start = {name: _start(values) for name, values in self.controls.items()}
        self.telling = start | (telling or {})
        self._check(self.telling)
        settings = [start] if script else self._combinations()
        self.figures = [draw(**setting) for setting in settings]
        self.proof = [self._prove(draw, start | setting) for setting in proof]
        key = json.dumps(
            [self.caption, {k: str(values) for k, values in self.controls.items()}]
        )
        self.id = "x" + hashlib.sha256(key.encode()).hexdigest()[:10]
        self.markup = self._write()  # once: drawing all frames takes seconds
        if len(self.markup) > LIMIT:
            raise ValueError(
                f"the figure has {len(self.markup):,} characters; more than "
                f"{LIMIT:,} make a heavy page: draw fewer points, or fewer frames"
            )

    def __repr__(self) -> str:
        names = ", ".join(self.controls)
        count = self.script or f"{len(self.figures)} frames"
        return f"Explorable ({names}; {count}): {self.caption}"

    def _repr_html_(self) -> str:
        return self.markup

    def _write(self) -> str:
        first, *others = (figure.svg(salt=self.caption) for figure in self.figures)
        spec = {
            "controls": [self._describe(name) for name in self.controls],
            "telling": [self._index(name, v) for name, v in self.telling.items()],
        }
        if self.script:
            spec |= {"axes": self.figures[0].scales(), "data": self.data}
            start = _read(self.script)
        else:
            spec["sizes"] = [len(values) for values in self.controls.values()]
            spec["frames"], start = changes([first, *others]), "null"
        controls = "".join(self._control(name) for name in self.controls)
        proof = ""
        if self.proof:
            proof = f' data-proof="{html.escape(_json(self.proof), quote=True)}"'
        return (
            f'<figure class="qp-figure qp-explorable" id="{self.id}"{proof} '
            f'data-telling="{",".join(map(str, spec["telling"]))}" '
            'style="margin:1em 0"><div class="qp-controls" '
            'style="display:flex;gap:.4em 1.5em;flex-wrap:wrap">'
            f'{controls}</div><div class="qp-picture">{first}</div>'
            f"<figcaption>{html.escape(self.caption)}</figcaption></figure>"
            f"<script>({_read('explorable')})"
            f'(document.getElementById("{self.id}"), {_json(spec)}, {start});</script>'
        )

    def _combinations(self) -> list[dict]:
        values = itertools.product(*self.controls.values())
        return [dict(zip(self.controls, setting)) for setting in values]

    def _check(self, setting: dict) -> None:
        for name, value in setting.items():
            values = self.controls.get(name)
            if values is None:
                raise ValueError(f"{name!r} is no control: {', '.join(self.controls)}")
            within = (
                values.low <= value <= values.high
                if isinstance(values, Slider)
                else value in values
            )
            if not within:
                raise ValueError(f"{name}={value!r} is not among {values}")

    def _prove(self, draw: Callable[..., Figure], setting: dict) -> dict:
        """A setting, and what `draw` makes of the parts that the script moves."""
        self._check(setting)
        return {"set": setting, "parts": _parts(draw(**setting).svg())}

    def _index(self, name: str, value: object) -> float:
        """Where a control stands for a value."""
        values = self.controls[name]
        return values.at(value) if isinstance(values, Slider) else values.index(value)

    def _describe(self, name: str) -> dict:
        values = self.controls[name]
        if isinstance(values, Slider):
            found = {"name": name, "digits": values.digits}
            return found | {"log": True} if values.log else found
        labels = [str(value) for value in values]
        return {"name": name, "labels": labels, "values": values}

    def _control(self, name: str) -> str:
        ident, label = f"{self.id}-{name}", html.escape(spoken(name))
        values, mark = self.controls[name], f'data-control="{name}" disabled'
        start = f'<label for="{ident}">{label}</label>'
        if isinstance(values, Slider):
            shown = values.label(values.start)
            low, high, at = map(values.at, (values.low, values.high, values.start))
            ends = (low, high, values.step, at)
        elif all(isinstance(v, str) for v in values):
            options = "".join(f"<option>{html.escape(v)}</option>" for v in values)
            control = f'<select id="{ident}" {mark}>{options}</select>'
            return _row(start + control)
        else:
            shown, ends = str(values[0]), (0, len(values) - 1, 1, 0)
        low, high, step, at = ends
        return _row(
            f'{start}<input id="{ident}" type="range" min="{low}" max="{high}" '
            f'step="{step}" value="{at}" {mark} style="flex:1;min-width:8em">'
            f'<output for="{ident}" style="min-width:3em">{html.escape(shown)}</output>'
        )


def spoken(name: str) -> str:
    """A control's name as a reader sees it."""
    return SPOKEN.get(name, name.replace("_", " "))


def _row(control: str) -> str:
    style = "display:flex;gap:.6em;align-items:center;flex:1 1 14em;max-width:26em"
    return f'<div style="{style}">{control}</div>'


def _start(values: list | Slider) -> object:
    return values.start if isinstance(values, Slider) else values[0]


def _json(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.replace("</", "<\\/")


def _read(script: str) -> str:
    """A script of the package, without its comments and empty lines."""
    text = resources.files("minigpt.book").joinpath(f"scripts/{script}.js")
    lines = text.read_text("utf-8").splitlines()
    return "\n".join(s for line in lines if (s := line.strip()) and s[:2] != "//")


def _parts(svg: str) -> dict[str, list | str]:
    """Of each named part its places, rounded, or its words; nothing if not visible."""
    found = {}
    for group in ET.fromstring(svg).iter(f"{{{SVG}}}g"):
        name = group.get("data-part")
        if name is None:
            continue
        text = group.find(f"{{{SVG}}}text")
        path = group.find(f"{{{SVG}}}path")
        if "display:none" in group.get("style", ""):
            found[name] = []
        elif text is not None:
            found[name] = "".join(text.itertext())
        elif path is not None:
            numbers = re.findall(r"-?[\d.]+", path.get("d"))
            found[name] = [round(float(number), 1) for number in numbers]
        else:
            marks = group.iter(f"{{{SVG}}}use")
            found[name] = [
                round(float(mark.get(at)), 1) for mark in marks for at in ("x", "y")
            ]
    return found
