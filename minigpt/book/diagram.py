"""Architectures, drawn from the code that they show, in one style.

    from minigpt.book import diagram

    diagram.block("post", norm="layernorm", highlight="norm")

The stream runs down, as the code is read. What stands where is found by tracing
`forward` of the block itself, so a drawing cannot disagree with it. Every function
returns a `Diagram`, which displays itself; its words have the same size on a phone.
docs/figures.md says what colours and lines mean.
"""

from dataclasses import dataclass
from functools import cache

from torch import nn
from torch.fx import symbolic_trace

from minigpt.block import BLOCKS
from minigpt.book.canvas import KINDS, LEFT, WIDTH, Canvas, Diagram, text_width
from minigpt.gpt import FINAL_NORM, MLPS, NORMS, GPTConfig
from minigpt.ladder import body
from minigpt.swiglu import GATES

__all__ = ["attention_head", "block", "chain", "gpt", "mlp", "norm", "orders", "rung"]

# What a reader calls the words of a config.
LABELS = {
    "layernorm": "LayerNorm",
    "rmsnorm": "RMSNorm",
    "gelu": "MLP",
    "gelu_tanh": "MLP",
    "swiglu": "SwiGLU",
    "plain": "Plain",
    "residual": "Residual",
    "post": "Post-LN",
    "pre": "Pre-LN",
    "sandwich": "Sandwich",
    "reordered": "Reordered",
}
# What a norm does of LayerNorm's four steps; nothing where it leaves one out.
STEPS = {
    "layernorm": ("− mean", "÷ standard deviation", "× gain", "+ shift"),
    "rmsnorm": ("", "÷ root mean square", "× gain", ""),
}
BENDS = {"gelu": "GELU", "gelu_tanh": "GELU (tanh)", "swiglu": "SiLU", "geglu": "GELU"}
BENDS |= {"reglu": "ReLU", "glu": "sigmoid", "bilinear": ""}
HIGHLIGHTS = ("attention", "mlp", "norm", "dropout", "residual")


def _known(field: str, value: str, words) -> str:
    if value not in words:
        raise ValueError(
            f"{field}={value!r} is unknown; choose one of {', '.join(words)}"
        )
    return value


def _highlights(value: str | tuple[str, ...]) -> frozenset[str]:
    words = (value,) if isinstance(value, str) else tuple(value)
    return frozenset(_known("highlight", word, HIGHLIGHTS) for word in words if word)


# What stands where -------------------------------------------------------------------


@dataclass(frozen=True)
class Piece:
    """A way of the stream: through modules on it, or a branch that is added to it.

    Args:
        modules: names of the block's attributes, in the order of their calls.
        added: whether they stand on a branch whose result is added.
    """

    modules: tuple[str, ...]
    added: bool


@cache
def pieces(order: str) -> tuple[tuple[Piece, ...], ...]:
    """How a block of this order is wired, from a trace of its `forward`.

    Args:
        order: a key of `BLOCKS`.

    Returns:
        The pieces of attention's line of code, then those of the MLP's.
    """
    _known("order", order, BLOCKS)
    names = ("attn", "mlp", "attn_norm", "mlp_norm")
    trace = symbolic_trace(BLOCKS[order](**{name: nn.Identity() for name in names}))
    node = next(n for n in trace.graph.nodes if n.op == "output").args[0]
    found: list[Piece] = []
    while node.op != "placeholder":
        if node.op == "call_module":
            found.append(Piece((node.target,), added=False))
            node = node.args[0]
        else:  # the one operation between them is an addition
            stream, end = node.args
            branch = []
            while end is not stream:
                branch.append(end.target)
                end = end.args[0]
            found.append(Piece(tuple(reversed(branch)), added=True))
            node = stream
    found.reverse()
    second = next(i for i, piece in enumerate(found) if "mlp" in piece.modules)
    return tuple(found[:second]), tuple(found[second:])


def code_lines(order: str) -> list[str]:
    """The lines of the block's `forward`, one for each sublayer, without `self.`."""
    names = ("attn", "mlp", "attn_norm", "mlp_norm")
    made = BLOCKS[order](**{name: nn.Identity() for name in names})
    lines = [line.replace("self.", "") for line in body(type(made).forward)]
    return [line for line in lines if line.startswith("x = ")]


@dataclass(frozen=True)
class Look:
    """The words of a block, and how large its parts are drawn."""

    order: str
    norm: str
    mlp: str
    dropout: bool
    small: bool = False

    def __post_init__(self):
        _known("order", self.order, BLOCKS)
        _known("norm", self.norm, NORMS)
        _known("mlp", self.mlp, MLPS)

    def parts(self, piece: Piece) -> list[str]:
        """The piece's modules, and dropout, with which each sublayer ends."""
        found = []
        for module in piece.modules:
            found.append(module)
            if self.dropout and module in ("attn", "mlp"):
                found.append("dropout")
        return found

    def kind(self, module: str) -> str:
        if "norm" in module:
            return "norm"
        return {"attn": "attention"}.get(module, module)

    def label(self, module: str) -> str:
        kind = self.kind(module)
        return {"norm": LABELS[self.norm], "mlp": LABELS[self.mlp]}.get(kind, kind)

    def length(self, module: str) -> float:
        kind = self.kind(module)
        if not self.small:
            return {"attention": 42, "mlp": 38, "norm": 26, "dropout": 24}[kind]
        if kind == "norm":
            return 11 if self.norm == "layernorm" else 5
        return 8 if kind == "dropout" else 34

    def breadth(self, module: str) -> float:
        kind = self.kind(module)
        if not self.small:
            return {"norm": 112, "dropout": 96}.get(kind, 128)
        return {"norm": 20, "dropout": 13}.get(kind, 22)

    @property
    def aside(self) -> float:
        """How far from the stream the branches run."""
        return 27 if self.small else 140

    def sentence(self) -> str:
        """The whole block in words, for the alt text."""
        said = []
        for group in pieces(self.order):
            for piece in group:
                words = [self.label(part) for part in self.parts(piece)]
                if piece.added:
                    listed = ", ".join(words[:-1])
                    way = f"{listed} and {words[-1]}" if listed else words[-1]
                    said.append(f"a branch through {way} is added to the stream")
                else:
                    said.append(f"{' and '.join(words)} on the way itself")
        return "; ".join(said)


# The block ---------------------------------------------------------------------------


def _draw_block(canvas: Canvas, look: Look, s: float, code: bool) -> float:
    """Draw a block from `s` on, and return where it ends."""
    lines = code_lines(look.order) if code else ["", ""]
    for group, line in zip(pieces(look.order), lines):
        if line:
            s = _draw_code(canvas, line, s)
        on_stream = [p for piece in group if not piece.added for p in look.parts(piece)]
        room = PITCH - sum(look.length(part) + 6 for part in on_stream)
        for piece in group:
            if piece.added:
                s = _draw_branch(canvas, look, piece, s, room)
            else:
                s = _draw_on_stream(canvas, look, piece, s, room)
    return s


def _draw_code(canvas: Canvas, line: str, s: float) -> float:
    """The line of code at the right of the stream, in two lines if it is long."""
    rows, room = [line], LEFT + WIDTH - 18
    if text_width(line, 12, mono=True) > room:
        at = line.index("(") + 1
        rows = [line[:at], "    " + line[at:]]
    for row in rows:
        canvas.text(s + 10, 16, row, size=12, mono=True)
        s += 17
    return s + 9


def _draw_branch(
    canvas: Canvas, look: Look, piece: Piece, s: float, room: float
) -> float:
    parts, start = look.parts(piece), s
    lead, gap, tail, after = 20.0, 12.0, 18.0, 26.0
    if look.small:  # a small sublayer fills its room, whatever it holds
        after = 10
        lead = gap = tail = (room - after - sum(map(look.length, parts))) / (
            len(parts) + 1
        )
    s += lead
    for part in parts:
        _draw_part(canvas, look, part, s, look.aside)
        s += look.length(part) + gap
    end = s - gap + tail
    canvas.line((start, 0), (start, look.aside), (end, look.aside), (end, 0))
    if not look.small:
        canvas.arrow(start + lead - 1, look.aside)
        canvas.arrow(end, 10, (0, -1))
    canvas.node("plus", end, 0)
    return end + after


def _draw_on_stream(
    canvas: Canvas, look: Look, piece: Piece, s: float, room: float
) -> float:
    gap, end, slack = 14, 8, 0.0
    if look.small:
        gap, end = 6, 0
        plain = piece.modules[0] in ("attn", "mlp")
        slack = room / 2 if plain else 0
    s += slack
    for part in look.parts(piece):
        _draw_part(canvas, look, part, s, 0)
        s += look.length(part) + gap
    return s + slack + end


def _draw_part(canvas: Canvas, look: Look, part: str, s: float, c: float) -> None:
    length, breadth = look.length(part), look.breadth(part)
    label, kind = look.label(part), look.kind(part)
    canvas.box(kind, s, c, length, breadth, label, name=part)
    if look.small and kind == "norm" and look.norm == "layernorm":
        canvas.slit(s + length / 2 - 1, c, 2, breadth + 2)  # it centres, and scales
    if look.small and kind == "mlp" and look.mlp in GATES:
        canvas.slit(s - 1, c, length + 2, 3)


def block(
    order: str = "pre",
    *,
    norm: str = "layernorm",
    mlp: str = "gelu",
    dropout: bool = False,
    highlight: str | tuple[str, ...] = (),
    code: bool = True,
    caption: str = "",
) -> Diagram:
    """One transformer block, with the two lines of its `forward` beside it.

    Args:
        order: a key of `minigpt.block.BLOCKS`.
        norm, mlp: keys of `minigpt.gpt.NORMS` and `MLPS`.
        dropout: whether each sublayer ends with dropout.
        highlight: what is drawn strong, the rest pale: "attention", "mlp", "norm",
            "dropout", "residual", or several of them.
        code: whether the lines of code are shown.
        caption: the message, printed below.

    Raises:
        ValueError: if a word is unknown.
    """
    look = Look(order, norm, mlp, dropout)
    canvas = Canvas(highlight=_highlights(highlight))
    stream = "stream" if order != "plain" else "muted"
    canvas.text(10, 16, "x")
    canvas.text(10, 30, "(B, T, D)", size=12, pale=True)
    end = _draw_block(canvas, look, 30, code)
    canvas.text(end + 2, 16, "x")
    canvas.text(end + 2, 30, "(B, T, D)", size=12, pale=True)
    canvas.line((2, 0), (end + 2, 0), kind=stream)
    canvas.arrow(end + 8, 0)
    alt = f"{LABELS[order]} block, from top to bottom: {look.sentence()}."
    return Diagram(canvas, alt, caption, view=(LEFT, 0, WIDTH, end + 14))


def rung(
    order: str,
    *,
    norm: str = "layernorm",
    mlp: str = "gelu",
    dropout: bool = False,
    highlight: str | tuple[str, ...] = (),
) -> Diagram:
    """The block as a small drawing without words, the stream running to the right.

    The arguments are those of `block`.
    """
    canvas = Canvas(turned=True, small=True, highlight=_highlights(highlight))
    look = Look(order, norm, mlp, dropout, small=True)
    _draw_small(canvas, look)
    alt = f"{LABELS[order]} block, from left to right: {look.sentence()}."
    return Diagram(canvas, alt, view=(0, 12 - SMALL[1], *SMALL))


SMALL = (220, 54)  # width and height of a small drawing
PITCH = 103  # what a sublayer takes of the width


def _draw_small(canvas: Canvas, look: Look) -> None:
    kind = "stream" if look.order != "plain" else "muted"
    canvas.line((0, 0), (SMALL[0], 0), kind=kind)
    _draw_block(canvas, look, 8, code=False)


def orders(*names: str, norm: str = "layernorm", mlp: str = "gelu", caption: str = ""):
    """Several orders below each other, small, each with its name.

    Args:
        names: keys of `BLOCKS`; all of them, if none is given.
        norm, mlp, caption: as in `block`.
    """
    canvas = Canvas(turned=True, small=True)
    said, top = [], 8
    for name in names or BLOCKS:
        look = Look(name, norm, mlp, False, small=True)
        canvas.origin = (0, top)
        canvas.text(0, 0, LABELS[name], bold=True)
        branches = any(piece.added for group in pieces(name) for piece in group)
        top += SMALL[1] + 2 if branches else 30
        canvas.origin = (0, top)
        _draw_small(canvas, look)
        said.append(f"{LABELS[name]}: {look.sentence()}.")
        top += 24
    height = top - 12
    return Diagram(canvas, " ".join(said), caption, view=(-4, 0, SMALL[0] + 8, height))


# The whole model ---------------------------------------------------------------------


def gpt(
    config: GPTConfig,
    *,
    highlight: str | tuple[str, ...] = (),
    code: bool = False,
    caption: str = "",
) -> Diagram:
    """A whole GPT: tokens, embeddings, N blocks, final norm, head, logits.

    Args:
        config: what it is made of.
        highlight, code, caption: as in `block`.

    Raises:
        ValueError: if `highlight` has an unknown word.
    """
    look = Look(config.order, config.norm, config.mlp, config.dropout > 0)
    canvas = Canvas(highlight=_highlights(highlight))
    s = _draw_embeddings(canvas, config)
    start, top = s - 14, s
    s = _draw_block(canvas, look, s + 18, code)
    canvas.frame(top - 4, s - top - 2, f"× {config.n_layers} blocks")
    s += 12
    if config.order in FINAL_NORM:
        canvas.box("norm", s, 0, 26, 112, LABELS[config.norm], name="final_norm")
        s += 40
    canvas.box("head", s, 0, 34, 128, "head", name="head")
    canvas.text(s + 17, 78, "(B, T, D) → (B, T, V)", size=12, pale=True)
    kind = "stream" if config.order != "plain" else "muted"
    canvas.line((start, 0), (s, 0), kind=kind)
    canvas.line((s, 0), (s + 54, 0))
    canvas.arrow(s + 58, 0)
    canvas.text(s + 70, 0, "logits (B, T, V)", anchor="middle")
    words = f"Tokens become embeddings, then {config.n_layers} blocks follow"
    ends = (
        f"{LABELS[config.norm]}, the head" if config.order in FINAL_NORM else "the head"
    )
    alt = f"{words}. In each: {look.sentence()}. At the end: {ends}, the logits."
    return Diagram(canvas, alt, caption, view=(LEFT, 0, WIDTH, s + 80))


def _draw_embeddings(canvas: Canvas, config: GPTConfig) -> float:
    """From the tokens to the start of the stream; returns where that is."""
    canvas.text(9, 0, "tokens (B, T)", anchor="middle")
    canvas.line((18, 0), (34, 0))
    canvas.box("embedding", 34, 0, 34, 128, "token embedding", name="tok_emb")
    canvas.text(51, 78, "(B, T) → (B, T, D)", size=12, pale=True)
    canvas.line((68, 0), (84, 0))
    s = 82
    if config.positions == "learned":
        canvas.box("embedding", 86, 172, 28, 148, "position embedding", name="pos_emb")
        canvas.line((100, 98), (100, 0))
        canvas.line((68, 0), (100, 0))
        canvas.arrow(100, 10, (0, -1))
        s = 116
        canvas.line((100, 0), (s, 0))
        canvas.node("plus", 100, 0)
    if config.dropout > 0:
        canvas.box("dropout", s + 8, 0, 24, 96, "dropout", name="drop")
        canvas.line((s - 10, 0), (s + 8, 0))
        s += 38
    return s + 14


# Inside the parts --------------------------------------------------------------------


def chain(
    parts: list[tuple[str, str]],
    alt: str,
    *,
    top: str = "x (B, T, D)",
    bottom: str = "(B, T, D)",
    times: str = "",
    of: str = "mlp",
    caption: str = "",
) -> Diagram:
    """Parts below each other, each of which replaces what it was given.

    Args:
        parts: kind and label. A "matrix" holds learned numbers and is filled, a "step"
            only computes; both have the colour of `of`. A kind of `canvas.KINDS`
            keeps its own.
        alt: what is seen, in a sentence.
        top, bottom: what goes in and comes out.
        times: how often the whole is repeated, such as "× 32"; a frame says so.
        of: "attention", "mlp" or "norm".
        caption: the message, printed below.
    """
    canvas, s = Canvas(), 34.0
    _known("of", of, ("attention", "mlp", "norm"))
    for kind, _ in parts:
        _known("kind", kind, KINDS)
    canvas.text(9, 92, top, anchor="middle")
    if times:
        s += 16
    for kind, label in parts:
        _draw_step(canvas, kind, label, s, 92, of)
        s += 46
    if times:
        canvas.frame(28, s - 34, times)
        s += 8
    canvas.line((18, 92), (s + 2, 92))
    canvas.arrow(s + 6, 92)
    canvas.text(s + 18, 92, bottom, anchor="middle")
    return Diagram(canvas, alt, caption, view=(LEFT, 0, WIDTH, s + 28))


def _draw_step(
    canvas: Canvas,
    kind: str,
    label: str,
    s: float,
    c: float,
    of: str,
    wide: float = 190,
    pale: bool = False,
) -> None:
    """A matrix or a step of the part `of`; another kind keeps its own colour."""
    part = of if kind in ("matrix", "step") else ""
    filled = kind != "step"
    canvas.box(kind, s, c, 32, wide, label, part=part, filled=filled, pale=pale)


def mlp(kind: str = "gelu", *, dropout: bool = False, caption: str = "") -> Diagram:
    """Inside the MLP: up, bend, down; or gate and up, multiplied, then down.

    Args:
        kind: a key of `minigpt.gpt.MLPS` or of `minigpt.swiglu.GATES`.
        dropout: whether it ends with dropout.
        caption: the message, printed below.
    """
    _known("kind", kind, BENDS)
    canvas = Canvas()
    canvas.text(9, 92, "x (B, T, D)", anchor="middle")
    s = (_draw_gate if kind in GATES else _draw_ungated)(canvas, BENDS[kind])
    _draw_step(canvas, "matrix", "down", s, 92, "mlp", 110)
    canvas.text(s + 16, 156, "F → D", size=12, pale=True)
    canvas.line((s - 16, 92), (s + 48, 92))
    s += 46
    if dropout:
        canvas.box("dropout", s, 92, 26, 96, "dropout")
        canvas.line((s - 14, 92), (s + 42, 92))
        s += 40
    canvas.arrow(s + 6, 92)
    canvas.text(s + 18, 92, "(B, T, D)", anchor="middle")
    way = (
        f"gate, bent by {BENDS[kind] or 'nothing'}, times up"
        if kind in GATES
        else (f"up, then {BENDS[kind]}")
    )
    alt = f"Inside the MLP, from top to bottom: {way}, then down" + (
        ", then dropout." if dropout else "."
    )
    return Diagram(canvas, alt, caption, view=(LEFT, 0, WIDTH, s + 28))


def _draw_ungated(canvas: Canvas, bend: str) -> float:
    canvas.line((18, 92), (138, 92))
    _draw_step(canvas, "matrix", "up", 34, 92, "mlp", 110)
    canvas.text(50, 156, "D → F", size=12, pale=True)
    _draw_step(canvas, "step", bend, 82, 92, "mlp", 110)
    return 130


def _draw_gate(canvas: Canvas, bend: str) -> float:
    left, right = 18, 166
    canvas.line((18, 92), (30, 92), (30, left), (150, left), (150, 83))
    canvas.line((30, 92), (30, right), (150, right), (150, 101))
    for name, c in (("gate", left), ("up", right)):
        _draw_step(canvas, "matrix", name, 46, c, "mlp", 100)
    if bend:
        _draw_step(canvas, "step", bend, 94, left, "mlp", 100)
    canvas.text(110, right + 8, "D → F", size=12, pale=True)
    canvas.arrow(150, 82, (0, 1))
    canvas.arrow(150, 102, (0, -1))
    canvas.node("times", 150, 92, "mlp")
    canvas.line((150, 92), (180, 92))
    return 180


def norm(kind: str = "layernorm", *, caption: str = "") -> Diagram:
    """The steps of a norm; what it leaves out of LayerNorm's is drawn pale.

    Args:
        kind: a key of `minigpt.gpt.NORMS`.
        caption: the message, printed below.
    """
    _known("kind", kind, NORMS)
    shapes = ("step", "step", "matrix", "matrix")
    canvas, s = Canvas(), 34.0
    canvas.text(9, 92, "one token (D)", anchor="middle")
    for what, does, all_ in zip(shapes, STEPS[kind], STEPS["layernorm"]):
        _draw_step(canvas, what, does or all_, s, 92, "norm", pale=not does)
        s += 46
    canvas.line((18, 92), (s, 92))
    canvas.arrow(s + 6, 92)
    canvas.text(s + 18, 92, "one token (D)", anchor="middle")
    alt = f"{LABELS[kind]}, step by step: {', '.join(filter(None, STEPS[kind]))}."
    if "" in STEPS[kind]:
        alt += " The mean and the shift are left out, drawn pale."
    return Diagram(canvas, alt, caption, view=(LEFT, 0, WIDTH, s + 28))


def attention_head(
    *,
    dropout: bool = False,
    highlight: str | tuple[str, ...] = (),
    caption: str = "",
) -> Diagram:
    """Inside attention: what each head computes, and what joins the heads.

    Args:
        dropout: whether weights are dropped.
        highlight: as in `block`.
        caption: the message, printed below.

    Raises:
        ValueError: if `highlight` has an unknown word.
    """
    canvas = Canvas(highlight=_highlights(highlight))
    steps = ["q · k / √K", "causal mask", "softmax"] + ["dropout"] * dropout
    _draw_inputs(canvas)
    s = _draw_weights(canvas, steps, 122)
    canvas.line((90, 182), (s + 30, 182), (s + 30, 92), (s + 60, 92))
    canvas.arrow(s, 172, (0, 1))
    canvas.node("times", s, 182, "attention")
    canvas.frame(42, s - 20, "× H heads", low=True)
    s += 60
    _draw_step(canvas, "matrix", "out", s, 92, "attention", 84)
    canvas.text(s + 16, 140, "H · K → D", size=11.5, pale=True)
    canvas.line((s + 32, 92), (s + 50, 92))
    canvas.arrow(s + 52, 92)
    canvas.text(s + 64, 92, "(B, T, D)", anchor="middle")
    alt = (
        "Inside attention, from top to bottom. In each head, x becomes query, key and "
        f"value; query and key pass {', '.join(steps)}; the weights multiply the "
        "values. The heads side by side pass the matrix out."
    )
    return Diagram(canvas, alt, caption, view=(LEFT, 0, WIDTH, s + 74))


def _draw_inputs(canvas: Canvas) -> None:
    """From x, query, key and value."""
    columns = {"query": 2, "key": 92, "value": 182}
    canvas.text(9, 92, "x (B, T, D)", anchor="middle")
    canvas.line((18, 92), (58, 92))
    canvas.line((34, 92), (34, 2), (58, 2))
    canvas.line((34, 92), (34, 182), (58, 182))
    for name, c in columns.items():
        _draw_step(canvas, "matrix", name, 58, c, "attention", 80)
        canvas.text(100, c + 5, "(B, T, K)", size=11.5, pale=True)
    canvas.line((90, 2), (122, 2))
    canvas.line((90, 92), (122, 92))


def _draw_weights(canvas: Canvas, steps: list[str], s: float) -> float:
    """From query and key to the weights; returns where they meet the values."""
    for step in steps:
        what = "dropout" if step == "dropout" else "step"
        _draw_step(canvas, what, step, s, 47, "attention", 150)
        canvas.line((s + 32, 47), (s + 46, 47))
        s += 44
    canvas.text(s + 4, 54, "weights (B, T, T)", size=11.5, pale=True)
    s += 24
    canvas.line((s - 30, 47), (s, 47), (s, 173))
    return s
