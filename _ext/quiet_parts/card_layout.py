"""Where number, name, question and drawing stand on a card."""

import io
import re

from PIL import Image

from minigpt.book.figures import COLORS
from quiet_parts.canvas import SCALE, Canvas, font
from quiet_parts.drawings import DRAWINGS, WIDTH

SIZE = (1200, 630)
LEFT = (SIZE[0] - WIDTH) // 2
ACCENT = "#5b3fa8"  # the site's accent, as in quiet-parts.css
COLOURS = 96  # of the palette: smooth edges, and a file well below 100 kB


def draw_card(name: str, words: dict) -> bytes:
    """The PNG file of a card."""
    canvas = Canvas.blank(*SIZE)
    canvas.rect(0, 0, 14, SIZE[1], ACCENT)
    top = 150
    if words["number"]:
        canvas.text(LEFT, 100, f"{words['number']:02}", font("mono", 40), ACCENT)
    if words["name"] != "The Quiet Parts":
        label = font("serif", 34, 500)
        canvas.text(LEFT + WIDTH, 100, "The Quiet Parts", label, COLORS["muted"], "rs")
        top = 190
    canvas.text(LEFT - 3, top, words["name"], font("serif", 92, 650), COLORS["ink"])
    write_question(canvas, top + 72, words["question"])
    DRAWINGS[name](canvas.inside(LEFT, 345))
    image = canvas.image.resize(SIZE, Image.Resampling.LANCZOS)
    image = image.quantize(COLOURS, Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)
    file = io.BytesIO()
    image.save(file, "PNG", optimize=True)
    return file.getvalue()


def write_question(canvas: Canvas, y: float, question: str):
    """On one line, as large as fits; code in it in the typewriter face."""
    parts = [p for p in re.split(r"(\bx \+ f\(x\))", question) if p]
    for size in range(46, 20, -2):
        faces = [
            font("mono", size * 0.86) if "f(x)" in part else font("serif", size, 420)
            for part in parts
        ]
        lengths = [face.getlength(part) / SCALE for face, part in zip(faces, parts)]
        if sum(lengths) <= WIDTH:
            break
    x = LEFT
    for face, part, length in zip(faces, parts, lengths):
        canvas.text(x, y, part, face, COLORS["muted"])
        x += length
