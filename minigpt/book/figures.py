"""Figures as inline SVG: they scale, follow light and dark mode, and carry alt text.

A figure is the last expression of its cell:

    fig = Figure(alt="Loss falls from 4.2 to 1.8.", caption="Validation loss by step.")
    fig.ax.plot(steps, losses)
    fig.ax.set(xlabel="step", ylabel="loss (nats per character)")
    fig

Importing this module sets Matplotlib's defaults to the book's style, because a legend
or a title takes its style when it is made. On the site every colour named here becomes
a CSS variable, so that the page decides what it looks like on a dark ground. Elsewhere
(Colab, JupyterLab) the colour itself is used.
"""

import hashlib
import html
import io
import json
import re
import warnings

import matplotlib
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure as MatplotlibFigure

__all__ = ["COLORS", "CYCLE", "Figure", "PAPER", "handle"]

# Okabe and Ito's colour-blind safe palette, one hue for each part wherever it appears.
COLORS = {
    "ink": "#1f2328",
    "muted": "#59636e",
    "grid": "#d8dee4",
    "attention": "#0072b2",
    "mlp": "#d55e00",
    "norm": "#009e73",
    "stream": "#56758f",
    "accent": "#8a3ffc",
    "sky": "#56b4e9",
    "amber": "#e69f00",
    "rose": "#cc79a7",
}
# For series that are no part of the block.
CYCLE = [COLORS[name] for name in ("accent", "amber", "sky", "rose", "ink", "muted")]
PAPER = "#ffffff"  # the ground that labels inside a figure may be filled with

_RC = {
    "svg.fonttype": "none",
    "font.size": 11.0,
    "axes.titlesize": 12.0,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.labelsize": 11.0,
    "axes.edgecolor": COLORS["muted"],
    "axes.labelcolor": COLORS["ink"],
    "axes.titlecolor": COLORS["ink"],
    "axes.facecolor": "none",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.prop_cycle": matplotlib.cycler(color=CYCLE),
    "grid.color": COLORS["grid"],
    "grid.linewidth": 0.8,
    "text.color": COLORS["ink"],
    "xtick.color": COLORS["muted"],
    "ytick.color": COLORS["muted"],
    "xtick.labelcolor": COLORS["ink"],
    "ytick.labelcolor": COLORS["ink"],
    "lines.linewidth": 2.0,
    "legend.frameon": False,
    "figure.facecolor": "none",
    "savefig.facecolor": "none",
    "figure.constrained_layout.use": True,
}
matplotlib.rcParams.update(_RC)

VARIABLES = {value: f"var(--qp-{name}, {value})" for name, value in COLORS.items()} | {
    PAPER: f"var(--qp-paper, {PAPER})"
}


def handle(color: str) -> dict:
    """How `plot` shall draw a point that a reader can drag: a finger finds its ring."""
    name = COLORS[color]
    ring = {"markeredgewidth": 9, "markeredgecolor": (name, 0.2)}
    return {"color": name, "markersize": 14, "clip_on": False, **ring}


class Figure:
    """A Matplotlib figure that displays itself as accessible inline SVG.

    Args:
        alt: what the figure shows, in a sentence, for readers who do not see it.
        caption: the message, printed below the figure. May be empty.
        size: width and height in inches. Up to a width of 4.6, letters have 10 px or
            more on a phone of 360 px.
        rows, cols: the grid of axes, `fig.axes` in reading order, `fig.ax` the first.
        sharex, sharey: as in `Figure.subplots` of Matplotlib.

    Raises:
        ValueError: if `alt` says too little to stand for the figure.
    """

    def __init__(
        self,
        alt: str,
        caption: str = "",
        *,
        size: tuple[float, float] = (4.6, 3.4),
        rows: int = 1,
        cols: int = 1,
        sharex: bool = False,
        sharey: bool = False,
    ):
        if len(alt.split()) < 4:
            raise ValueError(
                f"alt={alt!r} says too little: describe in a sentence what is seen"
            )
        self.alt, self.caption = " ".join(alt.split()), " ".join(caption.split())
        self.figure = MatplotlibFigure(figsize=size)
        grid = self.figure.subplots(
            rows, cols, squeeze=False, sharex=sharex, sharey=sharey
        )
        self.parts: dict[str, object] = {}
        self.hidden: set[str] = set()
        self.choices: list[dict] = []
        self.placed: list[tuple] = []
        self.axes = list(grid.flat)
        self.ax = self.axes[0]

    def part(self, artist, name: str, hidden: bool = False):
        """Name what a script shall move: a line, a rectangle, a polygon, a text.

        Returns `artist`. In the drawing its group bears `data-part="name"`. What is
        `hidden` is drawn, but not shown until a script makes it visible.

        Raises:
            ValueError: if the name is taken, or is not a word in small letters.
        """
        if not re.fullmatch(r"[a-z][a-z0-9-]*", name):
            raise ValueError(f"part {name!r}: small letters, digits and - only")
        if name in self.parts:
            raise ValueError(f"part {name!r} is there already: name each one once")
        self.parts[name] = artist
        artist.set_gid(f"part-{name}")
        self.hidden |= {name} if hidden else set()
        return artist

    def sets(self, artist, **controls):
        """Make an artist a place to click: it sets these controls of an explorable.

        What a click does, a control must do as well. Returns `artist`.
        """
        artist.set_gid(f"choice-{len(self.choices)}")
        self.choices.append(controls)
        return artist

    def place(self, diagram, ax) -> None:
        """Put a `Diagram` where `ax` stands, as large as there is room for it."""
        ax.axis("off")
        self.placed.append((diagram, ax))

    def scales(self) -> list[dict]:
        """Where the axes lie in the drawing, for a script that turns data into places.

        Returns:
            One dict for each of `axes`: `box`, the left, top, right and bottom edge in
            units of the SVG; `x` and `y`, the data at the left and right, bottom and
            top; `log`, the names of those that are logarithmic.
        """
        self.svg()  # the layout is made when it is drawn
        found = []
        for ax in self.axes:
            scales = {"x": ax.get_xscale(), "y": ax.get_yscale()}
            found.append(
                {
                    "box": self._box(ax),
                    "x": [float(v) for v in ax.get_xlim()],
                    "y": [float(v) for v in ax.get_ylim()],
                    "log": [name for name, kind in scales.items() if kind == "log"],
                }
            )
        return found

    def _box(self, ax) -> list[float]:
        """The left, top, right and bottom edge of axes, once they have been drawn."""
        width, height = (72 * side for side in self.figure.get_size_inches())
        at = ax.get_position()
        edges = at.x0 * width, (1 - at.y1) * height
        edges += at.x1 * width, (1 - at.y0) * height
        return [round(float(edge), 2) for edge in edges]

    def svg(self, salt: str | None = None) -> str:
        """The drawing alone, without caption: one `<svg>` element.

        Args:
            salt: what the names of its inner parts hang on; of figures that replace
                each other it is the same. None: the text for those who do not see it.
        """
        buffer = io.StringIO()
        salt = hashlib.sha256((salt or self.alt).encode()).hexdigest()[:12]
        with matplotlib.rc_context({"svg.hashsalt": salt}), warnings.catch_warnings():
            # The reader's browser sets the text, in a font that has the glyph.
            warnings.filterwarnings("ignore", message="Glyph .* missing from font")
            FigureCanvasSVG(self.figure).print_svg(buffer, metadata={"Date": None})
        # A second layout would begin at the first one's places, and end elsewhere.
        self.figure.set_layout_engine("none")
        drawn = _tidy(buffer.getvalue(), self.alt).removesuffix("</svg>")
        drawn = _CHOICE.sub(lambda m: _choice(self.choices[int(m[1])]), drawn)
        for name in self.hidden:
            mark = f' data-part="{name}"'
            drawn = drawn.replace(mark, f'{mark} style="display:none"')
        inner = [diagram.nested(self._box(ax)) for diagram, ax in self.placed]
        return "\n".join([drawn.rstrip(), *inner, "</svg>"])

    def __repr__(self) -> str:
        return f"Figure: {self.caption or self.alt}"

    def _repr_html_(self) -> str:
        return framed(self.svg(), self.caption)


def framed(svg: str, caption: str, kind: str = "qp-figure") -> str:
    """A drawing as a `<figure>` of class `kind`, with the caption that it may have."""
    words = f"<figcaption>{html.escape(caption)}</figcaption>" if caption else ""
    return f'<figure class="{kind}" style="margin:1em 0">{svg}{words}</figure>'


def scaled(width: float | str, height: float | str, most: float) -> str:
    """The style of a drawing that is as wide as there is room, `most` pixels at most.

    Its shape is known before it is drawn: a page need not draw what is out of sight.
    """
    shape = f"height:auto;aspect-ratio:{width}/{height}"
    return f"width:100%;max-width:{most:.0f}px;{shape}"


# A hundredth of a point cannot be seen; more digits would be half of the file.
_PLACES = re.compile(r' (?:d|x|y|width|height|points|transform)="[^"]*"')
_NUMBER = re.compile(r"-?\d+\.\d{3,}")


def _short(number: re.Match) -> str:
    text = f"{float(number[0]):.2f}".rstrip("0").rstrip(".")
    return "0" if text in ("-0", "") else text


_CHOICE = re.compile(r' data-choice="(\d+)"')


def _choice(controls: dict) -> str:
    """The attribute that says what a click on a part sets; explorable.js reads it."""
    value = html.escape(json.dumps(controls, separators=(",", ":")), quote=True)
    return f' data-set="{value}" style="cursor:pointer"'


def _tidy(svg: str, alt: str) -> str:
    """Make Matplotlib's SVG document an element of a page."""
    svg = svg[svg.index("<svg") :].strip()
    svg = re.sub(r"<metadata>.*?</metadata>\s*", "", svg, flags=re.S)
    svg = re.sub(r"<!--.*?-->\s*", "", svg, flags=re.S)
    # It would hold for the whole page. What it asks for, the drawing's root says.
    svg = re.sub(r"<defs>\s*<style\b.*?</style>\s*</defs>\s*", "", svg, flags=re.S)
    width, height = re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', svg).groups()
    style = f"{scaled(width, height, float(width) * 96 / 72)};stroke-linejoin:round"
    label = html.escape(alt, quote=True)
    svg = re.sub(
        r'<svg [^>]*?viewBox="([^"]+)"[^>]*>',
        lambda m: (
            f'<svg xmlns="http://www.w3.org/2000/svg" '
            f'xmlns:xlink="http://www.w3.org/1999/xlink" viewBox="{m[1]}" '
            f'role="img" aria-label="{label}" style="{style}">'
        ),
        svg,
        count=1,
    )
    family = "var(--qp-font, system-ui, sans-serif)"
    svg = re.sub(r"'DejaVu Sans'(, [^;\"]*)?", family, svg)
    for value, variable in VARIABLES.items():
        svg = re.sub(rf"(?<=: ){value}\b", variable, svg)
    svg = _PLACES.sub(lambda m: _NUMBER.sub(_short, m[0]), svg)
    svg = re.sub(r' id="(part|choice)-([^"]+)"', r' data-\1="\2"', svg)
    used = set(re.findall(r'(?:url\(#|href="#)([^)"]+)', svg))
    svg = re.sub(
        r' id="([^"]+)"', lambda m: m[0] if m[1] in used else "", svg
    )  # Matplotlib names every group; two figures on a page would share the names
    return re.sub(r"\n\s*", "\n", svg)
