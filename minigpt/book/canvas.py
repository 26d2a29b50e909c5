"""Drawing for `diagram`: marks, words, and the object that displays them as SVG.

A place is given by two numbers: `s` along the stream and `c` across it, which is 0 on
the stream. A canvas that is not turned lets the stream run down, so that c is x and s
is y; a turned one lets it run to the right, with the branches above.
"""

import html
import itertools
from dataclasses import dataclass, field

from minigpt.book.figures import COLORS, PAPER, VARIABLES, framed, scaled

__all__ = ["KINDS", "WIDTH", "Canvas", "Diagram", "Mark", "text_width"]

# What a part is, and the colour that says so. The ends of the stream have its colour.
KINDS = {
    "attention": "attention",
    "mlp": "mlp",
    "norm": "norm",
    "stream": "stream",
    "embedding": "stream",
    "head": "stream",
    "dropout": "muted",
    "matrix": "muted",
    "step": "muted",
}
WIDTH = 320  # a phone of 360 px has 308 for it, so words lose one part in twenty-five
LEFT = -68  # the left edge of a diagram: the stream is at 0
SMALLEST = 11.5  # no word is smaller: 11 px on that phone
_SANS = "var(--qp-font, system-ui, sans-serif)"
_MONO = "var(--qp-mono, ui-monospace, monospace)"


def text_width(words: str, size: float, mono: bool = False) -> float:
    """At most how wide these words become, whatever sans or mono the reader has."""
    return len(words) * size * (0.605 if mono else 0.58)


@dataclass(frozen=True)
class Mark:
    """Something drawn: what it is, and the rectangle that holds it.

    Args:
        kind: a key of `KINDS`, "text", "plus", "times" or "frame".
        name: the module or the words that it stands for.
        x, y, width, height: in the units of the drawing.
        strong: whether it is drawn strong; False for what is pale.
    """

    kind: str
    name: str
    x: float
    y: float
    width: float
    height: float
    strong: bool = True


@dataclass
class Canvas:
    """Collects SVG elements and remembers where each stands.

    Args:
        turned: whether the stream runs to the right.
        small: whether it is a drawing without words, a few lines high.
        highlight: what is drawn strong; everything, if empty.
    """

    turned: bool = False
    small: bool = False
    highlight: frozenset[str] = frozenset()
    marks: list[Mark] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    over: list[str] = field(default_factory=list)
    origin: tuple[float, float] = (0.0, 0.0)

    def at(self, s: float, c: float) -> tuple[float, float]:
        dx, dy = self.origin
        return (s + dx, dy - c) if self.turned else (c + dx, s + dy)

    def strong(self, kind: str) -> bool:
        return not self.highlight or kind in self.highlight

    def box(
        self,
        kind: str,
        s: float,
        c: float,
        length: float,
        breadth: float,
        label: str = "",
        *,
        name: str = "",
        filled: bool = True,
        part: str = "",
        pale: bool = False,
    ) -> None:
        """A part around the line at `c`, beginning at `s`.

        Args:
            length: along the stream. `breadth`: across it.
            label: written inside; a small canvas writes nothing.
            name: of the module, for `Diagram.parts`; the label where it has none.
            filled: it holds learned numbers. What only computes is an outline.
            part: the kind that it belongs to, where that is another: a matrix of
                attention has attention's colour.
            pale: it is left out, whatever is highlighted.
        """
        owner = part or kind
        strong = self.strong(owner) and not pale
        x, y = self.at(s, c)
        width, height = (length, breadth) if self.turned else (breadth, length)
        x, y = (x, y - height / 2) if self.turned else (x - width / 2, y)
        self._mark(kind, name or label, x, y, width, height, strong)
        radius = min(width, height) / (2 if kind == "norm" else 4)
        rect = _rect(x, y, width, height, min(radius, 12))
        self._surface(rect, owner, filled and kind != "dropout", strong)
        if label and not self.small:
            bold = strong and bool(self.highlight)
            middle = s + length / 2
            self.text(middle, c, label, anchor="middle", bold=bold, pale=not strong)

    def _surface(self, rect: str, owner: str, filled: bool, strong: bool) -> None:
        """Outline on paper, and on it the colour, which what is pale has less of."""
        color = VARIABLES[COLORS[KINDS[owner]]]
        width = 2.2 if strong and self.highlight else 1.5
        style = f"fill:{_paper()};stroke:{color};stroke-width:{width:g}"
        if not strong:
            style += ";stroke-opacity:.45"
        if owner == "dropout":
            style += ";stroke-dasharray:3 2.5"
        self.over.append(f'<rect {rect} style="{style}"/>')
        if filled:
            share = (1 if strong else 0.3) if self.small else (0.22 if strong else 0.06)
            style = f"fill:{color};fill-opacity:{share:g}"
            self.over.append(f'<rect {rect} style="{style}"/>')

    def slit(self, s: float, c: float, length: float, breadth: float) -> None:
        """A gap in a box of a small drawing, in which two lanes stand for two ways."""
        x, y = self.at(s, c)
        width, height = (length, breadth) if self.turned else (breadth, length)
        x, y = (x, y - height / 2) if self.turned else (x - width / 2, y)
        rect = _rect(x, y, width, height, 0)
        self.over.append(f'<rect {rect} style="fill:{_paper()}"/>')

    def text(
        self,
        s: float,
        c: float,
        words: str,
        *,
        anchor: str = "start",
        size: float = 13.0,
        mono: bool = False,
        bold: bool = False,
        pale: bool = False,
    ) -> None:
        """Words whose middle is at `s`; they start, or have their middle, at `c`."""
        x, y = self.at(s, c)
        width = text_width(words, size, mono)
        left = x - width / 2 if anchor == "middle" else x
        self._mark("text", words, left, y - size / 2, width, size, not pale)
        color = VARIABLES[COLORS["muted" if pale else "ink"]]
        style = f"font-family:{_MONO if mono else _SANS};font-size:{size:g}px"
        style += f";white-space:pre;fill:{color}" + (";font-weight:700" if bold else "")
        place = f'x="{x:g}" y="{y + size * 0.35:g}" text-anchor="{anchor}"'
        self.over.append(
            f'<text {place} style="{style}">{html.escape(words, quote=False)}</text>'
        )

    def line(
        self, *places: tuple[float, float], kind: str = "muted", round_: float = 8
    ):
        """A line through places, with round corners. The stream is broad."""
        points = [self.at(*place) for place in places]
        strong = self.strong("residual") if kind == "stream" else not self.highlight
        width = (4 if self.small else 5) if kind == "stream" else 1.5
        style = f"fill:none;stroke:{VARIABLES[COLORS[kind]]};stroke-width:{width:g}"
        if not strong:
            style += ";opacity:.45"
        self.lines.append(f'<path d="{_path(points, round_)}" style="{style}"/>')

    def arrow(self, s: float, c: float, toward: tuple[float, float] = (1, 0)) -> None:
        """The head of an arrow whose point is at the place."""
        x, y = self.at(s, c)
        dx, dy = self.at(s + toward[0], c + toward[1])
        dx, dy, size = dx - x, dy - y, 3.2 if self.small else 5.0
        back = (x - dx * size * 1.4, y - dy * size * 1.4)
        ends = [(back[0] + k * dy * size, back[1] - k * dx * size) for k in (1, -1)]
        points = " ".join(f"{a:g},{b:g}" for a, b in (ends[0], (x, y), ends[1]))
        color = VARIABLES[COLORS["muted"]]
        self.over.append(f'<polygon points="{points}" style="fill:{color}"/>')

    def node(self, sign: str, s: float, c: float, kind: str = "stream") -> None:
        """A circle with a sign: "plus" adds, "times" multiplies."""
        x, y = self.at(s, c)
        r = 6 if self.small else 9
        self._mark(sign, sign, x - r, y - r, 2 * r, 2 * r)
        strong = self.strong("residual" if sign == "plus" else kind)
        color, d = VARIABLES[COLORS[KINDS[kind]]], r * (0.5 if sign == "plus" else 0.4)
        stroke = f"stroke:{color};stroke-width:{2.4 if strong else 1.5:g}"
        cross = (
            f"M{x - d:g} {y:g}H{x + d:g}M{x:g} {y - d:g}V{y + d:g}"
            if sign == "plus"
            else f"M{x - d:g} {y - d:g}L{x + d:g} {y + d:g}"
            f"M{x + d:g} {y - d:g}L{x - d:g} {y + d:g}"
        )
        self.over.append(
            f'<circle cx="{x:g}" cy="{y:g}" r="{r}" style="fill:{_paper()};{stroke}"/>'
            f'<path d="{cross}" style="fill:none;{stroke}"/>'
        )

    def frame(self, s: float, length: float, words: str, low: bool = False) -> None:
        """A frame over the whole width around what is repeated; `words` say how often.

        They stand in the upper right corner, or, with `low`, in the lower left one.
        """
        x, y = self.at(s, LEFT + 2)
        self._mark("frame", words, x, y, WIDTH - 4, length)
        rect = _rect(x, y, WIDTH - 4, length, 8)
        style = f"fill:none;stroke:{VARIABLES[COLORS['muted']]};stroke-width:1"
        self.lines.append(f'<rect {rect} style="{style}"/>')
        right = LEFT + WIDTH - 12 - text_width(words, 13)
        at = (s + length - 14, LEFT + 12) if low else (s + 14, right)
        self.text(*at, words, bold=True)

    def _mark(self, kind, name, x, y, width, height, strong=True) -> None:
        self.marks.append(Mark(kind, name, x, y, width, height, strong))

    def svg(self) -> str:
        """What is inside the `<svg>` element, lines below boxes."""
        return "\n".join([*self.lines, *self.over])


class Diagram:
    """A drawing of an architecture that displays itself as accessible inline SVG.

    Made by the functions of `minigpt.book.diagram`. It stands where a `Figure` may
    stand: as the last expression of a cell, or as a frame of an `Explorable`.

    Args:
        canvas: what is drawn.
        alt: what it shows, in a sentence.
        caption: the message, printed below. May be empty.
        view: left, top, width and height of the drawing.
    """

    def __init__(
        self,
        canvas: Canvas,
        alt: str,
        caption: str = "",
        *,
        view: tuple[float, float, float, float],
    ):
        self.alt, self.caption = " ".join(alt.split()), " ".join(caption.split())
        self.canvas, self.view = canvas, view

    @property
    def marks(self) -> list[Mark]:
        """Everything that is drawn, in the order of drawing."""
        return self.canvas.marks

    @property
    def parts(self) -> list[str]:
        """The names of the parts, in the order in which the stream meets them."""
        return [mark.name for mark in self.marks if mark.kind in KINDS]

    def svg(self, salt: str | None = None, hidden: bool = False) -> str:
        """The drawing alone: one `<svg>` element.

        Args:
            salt: as `Figure` has it; a diagram has no inner names, and needs none.
            hidden: leave the alt text out, where words beside it say the same.
        """
        label = html.escape(self.alt, quote=True)
        role = 'aria-hidden="true"' if hidden else f'role="img" aria-label="{label}"'
        size = " ".join(f"{number:g}" for number in self.view)
        style = scaled(*(f"{side:g}" for side in self.view[2:]), self.view[2])
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{size}" {role} '
            f'style="{style}">\n{self.canvas.svg()}\n</svg>'
        )

    def nested(self, box: list[float]) -> str:
        """The drawing inside another one, at its left, top, right and bottom edge."""
        x, y, width, height = self.view
        scale = min((box[2] - box[0]) / width, (box[3] - box[1]) / height)
        middle = (box[0] + box[2]) / 2 - scale * (x + width / 2)
        down = (box[1] + box[3]) / 2 - scale * (y + height / 2)
        place = f"translate({middle:.2f} {down:.2f}) scale({scale:.4f})"
        return f'<g transform="{place}">\n{self.canvas.svg()}\n</g>'

    def __repr__(self) -> str:
        return f"Diagram: {self.caption or self.alt}"

    def _repr_html_(self) -> str:
        return framed(self.svg(), self.caption, "qp-figure qp-diagram")


def _paper() -> str:
    return VARIABLES[PAPER]


def _rect(x: float, y: float, width: float, height: float, radius: float) -> str:
    size = f'x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}"'
    return f'{size} rx="{radius:g}"'


def _path(points: list[tuple[float, float]], round_: float) -> str:
    """A path along right angles, with round corners where there is room for them."""
    (x, y), *rest = points
    path, before = f"M{x:g} {y:g}", (x, y)
    for here, after in itertools.pairwise(rest):
        start, end = (_toward(here, other, round_) for other in (before, after))
        path += f"L{start[0]:g} {start[1]:g}Q{here[0]:g} {here[1]:g} "
        path += f"{end[0]:g} {end[1]:g}"
        before = here
    return path + f"L{rest[-1][0]:g} {rest[-1][1]:g}"


def _toward(here, other, far: float) -> tuple[float, float]:
    """The place on the way from `here` to `other`, at most half of it away."""
    dx, dy = other[0] - here[0], other[1] - here[1]
    length = abs(dx) + abs(dy)
    share = min(far, length / 2) / length if length else 0
    return here[0] + dx * share, here[1] + dy * share
