"""The drawing on each chapter's card, 1040 by 230 units, from the chapter's matter.

Chapters that add a rung show the rung. Curves and bars are runs of the book, read from
`minigpt/book/records`. What `cards.DRAWN` says of a drawing is its text for the blind.
"""

import json
import math
from functools import partial
from itertools import pairwise
from statistics import fmean as mean

import torch

from minigpt.book import diagram, records
from minigpt.book.figures import COLORS
from minigpt.generate import Sampling
from minigpt.gpt import preset
from minigpt.ladder import RUNGS
from quiet_parts.canvas import Canvas, font, mix
from quiet_parts.settings import ROOT

WIDTH, HEIGHT = 1040, 230
RECORDS = ROOT / "minigpt" / "book" / "records"
ATTENTION, MLP, NORM = (COLORS[name] for name in ("attention", "mlp", "norm"))
STREAM, MUTED, INK = (COLORS[name] for name in ("stream", "muted", "ink"))


def record(name: str) -> dict:
    return json.loads((RECORDS / name).read_text("utf-8"))


def rung(canvas: Canvas, key: str):
    """The block of a preset, as the ladder shows it."""
    left, top, width, height = small(key).view
    zoom = min(WIDTH / width, HEIGHT / height)
    x = (WIDTH - width * zoom) / 2
    canvas.inside(x - left * zoom, -top * zoom, zoom).svg(small(key).svg())


def small(key: str) -> diagram.Diagram:
    config = preset(key, vocab_size=65)
    parts = {"norm": config.norm, "mlp": config.mlp, "dropout": config.dropout > 0}
    return diagram.rung(config.order, **parts)


def ladder(canvas: Canvas):
    step, zoom = (WIDTH - 140) / (len(RUNGS) - 1), 140 / 220
    for place, key in enumerate(RUNGS):
        left, top, _, height = small(key).view
        drop = (HEIGHT - height * zoom) * (1 - place / (len(RUNGS) - 1))
        at = place * step - left * zoom, drop - top * zoom
        canvas.inside(*at, zoom).svg(small(key).svg())


def text(canvas: Canvas):
    words, size = "First Citizen", WIDTH / 13
    face = font("mono", 38)
    for place, (letter, target) in enumerate(pairwise(words)):
        x = (place + 0.5) * size
        for top, sign, colour in ((10, letter, INK), (150, target, COLORS["accent"])):
            ground = mix(colour, 0.09)
            canvas.rect(x + 6, top, size - 12, 70, ground, radius=8)
            canvas.text(x + size / 2, top + 48, sign, face, colour, "ms")
        canvas.path([(x + size / 2, 92), (x + size / 2, 138)], STREAM, 3)
        tip = [(x + size / 2 - 9, 128), (x + size / 2 + 9, 128), (x + size / 2, 142)]
        canvas.area(tip, STREAM)


def attention(canvas: Canvas):
    tokens, ground = 8, 195
    gap = WIDTH / tokens
    middles = [(place + 0.5) * gap for place in range(tokens)]
    for query in range(1, tokens):
        weights = [
            math.exp(-0.55 * ((key * 5 + query * 3) % 7)) for key in range(query)
        ]
        for key, weight in enumerate(weights):
            share = weight / sum(weights)
            left, right = middles[key], middles[query]
            arc = half_ellipse(left, right, ground, 165 * (query - key) / (tokens - 1))
            canvas.path(arc, mix(ATTENTION, 0.25 + 0.75 * share), 1.5 + 9 * share)
    for middle in middles:
        canvas.circle(middle, ground, 19, ATTENTION)


def half_ellipse(left: float, right: float, ground: float, height: float) -> list:
    middle, half = (left + right) / 2, (right - left) / 2
    angles = (math.pi * step / 40 for step in range(41))
    return [
        (middle - half * math.cos(a), ground - height * math.sin(a)) for a in angles
    ]


def mlp(canvas: Canvas):
    tokens = 5
    gap = WIDTH / tokens
    for place in range(tokens):
        x = (place + 0.5) * gap
        for a, b in ((30, 98), (200, 132)):  # up, and down
            edges = [(x - 22, a), (x + 22, a), (x + 88, b), (x - 88, b)]
            canvas.area(edges, mix(MLP, 0.22))
        for y, half in ((12, 22), (200, 22), (98, 88)):
            height = 18 if half == 22 else 34
            canvas.rect(x - half, y, 2 * half, height, MLP, radius=5)


def depth(canvas: Canvas):
    layers = 16
    gap = WIDTH / layers
    for place in range(layers):
        share = 0.86**place
        kind = ATTENTION if place % 2 == 0 else MLP
        x, y = place * gap, HEIGHT / 2
        canvas.path([(x, y), (x + gap, y)], mix(STREAM, share), 9 * share + 1)
        canvas.rect(x + 12, y - 62, gap - 24, 124, mix(kind, share), radius=8)


def gpt(canvas: Canvas):
    blocks, y = 4, HEIGHT / 2
    canvas.path([(0, y), (WIDTH, y)], STREAM, 8)
    canvas.rect(40, y - 70, 110, 140, INK, radius=10)
    canvas.rect(WIDTH - 150, y - 70, 110, 140, INK, radius=10)
    canvas.rect(WIDTH - 200, y - 50, 20, 100, NORM, radius=10)
    for place in range(blocks):
        x = 190 + place * 164
        ground = mix(STREAM, 0.16)
        canvas.rect(x, y - 92, 146, 184, ground, radius=14)
        for at, kind in ((16, ATTENTION), (78, MLP)):
            canvas.rect(x + at, y - 30, 12, 60, NORM, radius=6)
            canvas.rect(x + at + 18, y - 44, 34, 88, kind, radius=6)


def train(canvas: Canvas):
    """The steps on a logarithmic axis, as the fall is steep at first."""
    for seed, colour in zip((1, 2, 1337), (ATTENTION, MLP, NORM)):
        lines = (RECORDS / f"plain_{seed}.jsonl").read_text("utf-8").splitlines()
        rows = [row for row in map(json.loads, lines) if "losses" in row]
        losses = [(row["step"], mean(row["losses"])) for row in rows]
        first, last = math.log(losses[0][0]), math.log(losses[-1][0])
        pairs = [((math.log(s) - first) / (last - first), v) for s, v in losses]
        curve(canvas, pairs, colour, low=1.2, high=4.1)


def curve(canvas: Canvas, pairs, colour, low, high, thick=4.0):
    """Pairs of a place from 0 to 1 and a value; the drawing's ground is `low`."""
    heights = [(min(max(v, low), high) - low) / (high - low) for _, v in pairs]
    points = [(x * WIDTH, HEIGHT * (1 - h)) for (x, _), h in zip(pairs, heights)]
    canvas.path(points, colour, thick)


def clinic(canvas: Canvas):
    runs = record("clinic.json")["runs"]
    for run in sorted(runs, key=lambda run: run["plan"] == "control"):
        healthy = run["plan"] == "control"
        steps, end = run["steps"], run["steps"][-1]
        values = [math.inf if v is None else v for v in run["val"]]
        pairs = [((s - steps[0]) / (end - steps[0]), v) for s, v in zip(steps, values)]
        colour = NORM if healthy else mix(COLORS["rose"], 0.55)
        curve(canvas, pairs, colour, 2.2, 3.6, 9 if healthy else 3)


def generate(canvas: Canvas):
    """A place of the text at which top-p of 0.9 keeps about seven characters."""
    said = records.speech()
    logits = torch.tensor(said["logits"])
    chances, kept = (Sampling(top_p=p).probabilities(logits) for p in (1.0, 0.9))
    counts = (kept > 0).sum(dim=-1).tolist()
    row = min(range(len(counts)), key=lambda n: abs(counts[n] - 7))
    told = zip(chances[row].tolist(), said["characters"])
    best = sorted(told, reverse=True)[:16]
    gap, face = WIDTH / len(best), font("mono", 26)
    for place, (chance, letter) in enumerate(best):
        inside = place < counts[row]
        colour = COLORS["accent"] if inside else mix(MUTED, 0.4)
        height = max(3, 185 * chance / best[0][0])
        x = place * gap
        canvas.rect(x + 7, 190 - height, gap - 14, height, colour, radius=3)
        sign = {"\n": "↵", " ": "␣"}.get(letter, letter)
        canvas.text(x + gap / 2, 222, sign, face, INK if inside else MUTED, "ms")


# The chapter that adds each rung.
ADDED = {"residual": "residual", "post": "layernorm", "pre": "block"}
ADDED |= {name: name for name in ("rmsnorm", "dropout", "swiglu")}
DRAWINGS = {
    "text": text,
    "attention": attention,
    "mlp": mlp,
    "depth": depth,
    "gpt": gpt,
    "train": train,
    "ladder": ladder,
    "generate": generate,
    "clinic": clinic,
    "index": ladder,
} | {chapter: partial(rung, key=key) for key, chapter in ADDED.items()}
