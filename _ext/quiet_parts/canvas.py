"""A small canvas over Pillow: shapes in card units, drawn large and then reduced.

It also places a drawing that the pages show as SVG (`outline.draw_rung`): a block looks
alike on a card and on a page, and its geometry is decided in one place.
"""

import re
from pathlib import Path
from xml.etree import ElementTree as xml

import matplotlib
from PIL import Image, ImageDraw, ImageFont

from minigpt.book.figures import COLORS
from quiet_parts.settings import ASSETS

PAPER = "#fdfcfa"
SCALE = 2
SERIF = ASSETS / "vendor/source-serif/files/source-serif-4-latin-wght-normal.woff2"
MONO = Path(matplotlib.get_data_path()) / "fonts" / "ttf" / "DejaVuSansMono.ttf"
# The classes of the page's drawings: (colour, is it filled, width of the line).
INKS = {
    "qp-rms": ("norm", False, 2.4),
    "qp-stream": ("stream", False, 4),
    "qp-branch": ("muted", False, 1.5),
    "qp-plus": ("stream", False, 1.6),
    "qp-drop": ("muted", False, 1.5),
    "qp-attention": ("attention", True, 0),
    "qp-mlp": ("mlp", True, 0),
    "qp-norm": ("norm", True, 0),
}


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
        for shape in xml.fromstring(drawing):
            name = next(n for n in INKS if n in shape.get("class", "").split())
            kind, is_filled, thick = INKS[name]
            ink = COLORS[kind]
            look = {"fill": ink} if is_filled else {"line": ink, "thick": thick}
            if shape.tag == "path":
                for part in flatten(shape.get("d")):
                    self.path(part, ink, thick)
            elif shape.tag == "circle":
                at = (float(shape.get(key)) for key in ("cx", "cy", "r"))
                self.circle(*at, **{"fill": PAPER, **look})
            else:
                at = (float(shape.get(key)) for key in ("x", "y", "width", "height"))
                radius = float(shape.get("rx", 0))
                self.rect(*at, **{"fill": PAPER, **look}, radius=radius)


def flatten(path: str) -> list[list[tuple[float, float]]]:
    """The lines of an SVG path (of M, H, V, h, v, m, q) as points."""
    lines, x, y = [], 0.0, 0.0
    for command, numbers in re.findall(r"([MHVhvmq])([^MHVhvmq]*)", path):
        values = [float(n) for n in re.findall(r"-?[\d.]+", numbers)]
        base = (x, y) if command.islower() else (0.0, 0.0)
        if command in "Mm":
            x, y = base[0] + values[0], base[1] + values[1]
            lines.append([])
        elif command in "Hh":
            x = base[0] + values[0]
        elif command in "Vv":
            y = base[1] + values[0]
        else:
            (a, b, c, d), (p, q) = values, (x, y)
            for t in (i / 8 for i in range(1, 8)):
                bend, end = 2 * t * (1 - t), t * t
                lines[-1].append((p + bend * a + end * c, q + bend * b + end * d))
            x, y = p + c, q + d
        lines[-1].append((x, y))
    return lines
