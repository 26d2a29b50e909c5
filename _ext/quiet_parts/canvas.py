"""A small canvas over Pillow: shapes in card units, drawn large and then reduced.

It also places a drawing of `minigpt.book.diagram`, which the pages show as SVG: a block
looks alike on a card and on a page, and its geometry is decided in one place.
"""

import re
from pathlib import Path
from xml.etree import ElementTree as xml

import matplotlib
from PIL import Image, ImageDraw, ImageFont

from minigpt.book.figures import PAPER as WHITE
from quiet_parts.settings import ASSETS

PAPER = "#fdfcfa"
SCALE = 2
PLACES = ("x", "y", "width", "height", "rx", "cx", "cy", "r")
SERIF = ASSETS / "vendor/source-serif/files/source-serif-4-latin-wght-normal.woff2"
MONO = Path(matplotlib.get_data_path()) / "fonts" / "ttf" / "DejaVuSansMono.ttf"


def mix(colour: str, share: float) -> str:
    """A colour thinned with paper: share 1 is the colour itself."""
    pairs = [(int(colour[i : i + 2], 16), int(PAPER[i : i + 2], 16)) for i in (1, 3, 5)]
    return "#" + "".join(f"{round(a * share + b * (1 - share)):02x}" for a, b in pairs)


def font(kind: str, size: float, weight: int = 400):
    """Source Serif at a weight, or the typewriter face for code."""
    pixels = round(size * SCALE)
    if kind == "mono":
        return ImageFont.truetype(str(MONO), pixels)
    face = ImageFont.truetype(str(SERIF), pixels)
    face.set_variation_by_axes([weight])
    return face


class Canvas:
    """Draws at an origin and a zoom of its own; `inside` gives one for a part of it."""

    def __init__(self, image, x: float = 0, y: float = 0, zoom: float = 1):
        self.image, self.x, self.y, self.zoom = image, x, y, zoom
        self.draw = ImageDraw.Draw(image)

    @classmethod
    def blank(cls, width: int, height: int) -> "Canvas":
        return cls(Image.new("RGB", (width * SCALE, height * SCALE), PAPER))

    def inside(self, x: float, y: float, zoom: float = 1) -> "Canvas":
        at = self.x + x * self.zoom, self.y + y * self.zoom
        return Canvas(self.image, *at, self.zoom * zoom)

    def points(self, pairs) -> list[tuple[float, float]]:
        k = self.zoom
        return [((self.x + x * k) * SCALE, (self.y + y * k) * SCALE) for x, y in pairs]

    def width(self, line: float) -> int:
        return max(1, round(line * self.zoom * SCALE)) if line else 0

    def rect(self, x, y, w, h, fill=None, line=None, thick=0.0, radius=0.0):
        half = thick / 2  # Pillow draws an outline inside the box, SVG across its edge
        corners = self.points([(x - half, y - half), (x + w + half, y + h + half)])
        box = [value for point in corners for value in point]
        round_by = (radius + half) * self.zoom * SCALE
        self.draw.rounded_rectangle(box, round_by, fill, line, self.width(thick))

    def circle(self, x, y, r, fill=None, line=None, thick=0.0):
        self.rect(x - r, y - r, 2 * r, 2 * r, fill, line, thick, r)

    def path(self, pairs, line, thick=2.0):
        points = self.points(pairs)
        self.draw.line(points, line, self.width(thick), joint="curve")

    def area(self, pairs, fill):
        self.draw.polygon(self.points(pairs), fill)

    def text(self, x, y, words, face, fill, anchor="ls"):
        self.draw.text(self.points([(x, y)])[0], words, fill, face, anchor)

    def svg(self, drawing: str):
        """A drawing of `minigpt.book.diagram` without words."""
        for shape in xml.fromstring(drawing):
            pairs = (part.split(":", 1) for part in shape.get("style").split(";"))
            style, name = dict(pairs), shape.tag.rpartition("}")[2]
            look = {"fill": ink(style, "fill"), "line": ink(style, "stroke")}
            thick = float(style.get("stroke-width", 0))
            numbers = {k: float(v) for k, v in shape.items() if k in PLACES}
            if name == "path":
                for part in flatten(shape.get("d")):
                    self.path(part, look["line"], thick)
            elif name == "rect":
                place = (numbers[key] for key in ("x", "y", "width", "height"))
                self.rect(*place, **look, thick=thick, radius=numbers["rx"])
            elif name == "circle":
                place = (numbers[key] for key in ("cx", "cy", "r"))
                self.circle(*place, **look, thick=thick)
            else:
                raise ValueError(f"a card cannot show <{name}>; teach Canvas.svg to")


def ink(style: dict, kind: str) -> str | None:
    """A fill or stroke: the colour that a variable of the page stands for."""
    found = re.search(r"#[0-9a-f]{6}", style.get(kind, "none"))
    if found is None:
        return None
    share = float(style.get(f"{kind}-opacity", 1)) * float(style.get("opacity", 1))
    return PAPER if found[0] == WHITE else mix(found[0], share)


def flatten(path: str) -> list[list[tuple[float, float]]]:
    """The lines of an SVG path (of M, L, H, V, Q) as points."""
    lines, x, y = [], 0.0, 0.0
    for command, numbers in re.findall(r"([A-Za-z])([^A-Za-z]*)", path):
        values = [float(n) for n in re.findall(r"-?[\d.]+", numbers)]
        if command == "M":
            lines.append([])
        if command == "Q":
            (a, b, c, d), (p, q) = values, (x, y)
            for t in (i / 8 for i in range(1, 8)):
                start, bend, end = (1 - t) ** 2, 2 * t * (1 - t), t * t
                place = start * p + bend * a + end * c, start * q + bend * b + end * d
                lines[-1].append(place)
            x, y = c, d
        elif command in "MLHV":
            x = x if command == "V" else values[0]
            y = y if command == "H" else values[-1]
        else:
            raise ValueError(f"a card cannot draw {command!r} of a path; teach flatten")
        lines[-1].append((x, y))
    return lines
