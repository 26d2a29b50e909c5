"""Wrong and right gated MLPs, and the exercises of chapters 3 and 10."""

import torch
import torch.nn.functional as F
from planted import Mutant
from torch import nn

from minigpt.swiglu import SwiGLU as BookSwiGLU


def function(inner):
    """swiglu(x, gate, up, down) around what is made of a = gate(x) and b = up(x)."""
    return lambda x, gate, up, down: F.linear(
        inner(F.linear(x, gate), F.linear(x, up)), down
    )


def module(inner, names=("gate", "up", "down"), bias=False):
    class SwiGLU(nn.Module):
        def __init__(self, d_model, d_ff):
            super().__init__()
            for name, sizes in zip(
                names, ((d_model, d_ff), (d_model, d_ff), (d_ff, d_model))
            ):
                setattr(self, name, nn.Linear(*sizes, bias=bias))

        def forward(self, x):
            gate, up, down = (getattr(self, name) for name in names)
            return down(inner(gate(x), up(x)))

    return SwiGLU


def overflowing(a, b):
    return a * a.exp() / (1 + a.exp()) * b


def gate_cut(a, b):
    return F.silu(a).detach() * b


def up_cut(a, b):
    return F.silu(a) * b.detach()


class TwoMatrices(nn.Module):
    def __init__(self, d_model, d_ff):
        super().__init__()
        self.up, self.down = nn.Linear(d_model, d_ff), nn.Linear(d_ff, d_model)

    def forward(self, x):
        h = self.up(x)
        return self.down(F.silu(h) * h)


class Narrow(nn.Module):
    def __init__(self, d_model, d_ff):
        super().__init__()
        self.gate, self.up = nn.Linear(d_model, d_ff), nn.Linear(d_model, d_ff)

    def forward(self, x):
        return F.silu(self.gate(x)) * self.up(x)


class InList(nn.Module):
    def __init__(self, d_model, d_ff):
        super().__init__()
        self.maps = [
            nn.Linear(d_model, d_ff),
            nn.Linear(d_model, d_ff),
            nn.Linear(d_ff, d_model),
        ]

    def forward(self, x):
        return self.maps[2](F.silu(self.maps[0](x)) * self.maps[1](x))


class Residual(BookSwiGLU):
    def forward(self, x):
        return x + super().forward(x)


def in_place(x, gate, up, down):
    h = F.silu(F.linear(x, gate)) * F.linear(x, up)
    x.copy_(F.linear(h, down))
    return x


INNER = {
    "swapped": (lambda a, b: a * F.silu(b), "swapped"),
    "sigmoid": (lambda a, b: a.sigmoid() * b, "A sigmoid stands"),
    "GELU": (lambda a, b: F.gelu(a) * b, "GEGLU"),
    "tanh GELU": (lambda a, b: F.gelu(a, approximate="tanh") * b, "tanh form"),
    "ReLU": (lambda a, b: a.relu() * b, "ReGLU"),
    "tanh": (lambda a, b: a.tanh() * b, "A tanh stands"),
    "SiLU missing": (lambda a, b: a * b, "SiLU is missing"),
    "SiLU of the product": (lambda a, b: F.silu(a * b), "of the product"),
    "SiLU of both": (lambda a, b: F.silu(a) * F.silu(b), "taken of both"),
    "added": (lambda a, b: F.silu(a) + b, "are added"),
    "up not used": (lambda a, b: F.silu(a), "`up` is not used"),
    "gate not used": (lambda a, b: b, "The gate is not used"),
    "gate for both": (lambda a, b: F.silu(a) * a, "gate is used for both"),
    "up for both": (lambda a, b: F.silu(b) * b, "`up` is used for both"),
    "wrong sign": (lambda a, b: a * (-a).sigmoid() * b, "wrong sign"),
    "gate plus sigmoid": (lambda a, b: (a + a.sigmoid()) * b, "plus sigmoid"),
    "softmax": (lambda a, b: a.softmax(-1) * b, "A softmax"),
    "approximate GELU": (lambda a, b: a * (1.702 * a).sigmoid() * b, "1.702"),
    "overflow": (overflowing, "infinite"),
    "gate cut off": (gate_cut, "gate passes no gradient"),
    "up cut off": (up_cut, "`up` passes no gradient"),
}
SWIGLU = [
    *(Mutant(name, function(inner), word) for name, (inner, word) in INNER.items()),
    Mutant("two matrices", TwoMatrices, "matrix is missing"),
    Mutant("no down", Narrow, "shape (2, 3, 6)"),
    Mutant("in a list", InList, "hides its layers"),
    Mutant("residual inside", Residual, "residual belongs to the block"),
    Mutant("input changed", in_place, "in place"),
]


class Fused(nn.Module):
    def __init__(self, dim, hidden_dim):
        super().__init__()
        self.both, self.out = nn.Linear(dim, 2 * hidden_dim), nn.Linear(hidden_dim, dim)

    def forward(self, x):
        value, gate = self.both(x).chunk(2, dim=-1)
        return self.out(value * gate * torch.sigmoid(gate))


class OfParts(nn.Module):
    """Names that say nothing."""

    def __init__(self, d_model, d_ff):
        super().__init__()
        self.first = nn.Linear(d_model, d_ff)
        self.second = nn.Sequential(nn.Linear(d_model, d_ff), nn.SiLU())
        self.third = nn.Linear(d_ff, d_model)

    def forward(self, x):
        return self.third(self.first(x) * self.second(x))


SWIGLU_RIGHT = {
    "function": function(lambda a, b: F.silu(a) * b),
    "module": module(lambda a, b: a / (1 + torch.exp(-a)) * b),
    "the book's own": BookSwiGLU,
    "llama's names": module(lambda a, b: F.silu(a) * b, ("w1", "w3", "w2"), bias=True),
    "one matrix for two": Fused,
    "other names": OfParts,
    "einsum": lambda x, gate, up, down: torch.einsum(
        "...f,df->...d",
        F.silu(torch.einsum("...d,fd->...f", x, gate))
        * torch.einsum("...d,fd->...f", x, up),
        down,
    ),
}


# Folding, fused weights, the way back -------------------------------------------------


def folded(up, down, first=True, second=True):
    one = nn.Linear(up.in_features, down.out_features)
    with torch.no_grad():
        one.weight.copy_(down.weight @ up.weight)
        one.bias.zero_()
        if first and up.bias is not None:
            one.bias += down.weight @ up.bias
        if second and down.bias is not None:
            one.bias += down.bias
    return one


def fold_other_style(up, down):
    with torch.no_grad():
        zero = torch.zeros(1, up.in_features)
        bias = down(up(zero))[0]
        one = nn.Linear(up.in_features, down.out_features, bias=True)
        one.weight.copy_((down(up(torch.eye(up.in_features))) - bias).T)
        one.bias.copy_(bias)
    return one


def fold_in_down(up, down):
    with torch.no_grad():
        down.bias = nn.Parameter(
            down(up.bias) if up.bias is not None else torch.zeros(6)
        )
        down.weight = nn.Parameter(down.weight @ up.weight)
    return down


def fold_wrong_order(up, down):
    one = nn.Linear(up.in_features, down.out_features)
    one.weight.data = (up.weight.T @ down.weight.T).contiguous()
    return one


def fold_fresh_bias(up, down):
    one = nn.Linear(up.in_features, down.out_features)
    with torch.no_grad():
        one.weight.copy_(down.weight @ up.weight)
    return one


def fold_fresh(up, down):
    return nn.Linear(up.in_features, down.out_features, bias=False)


def fold_product(up, down):
    one = nn.Linear(up.in_features, down.out_features)
    with torch.no_grad():
        one.weight.copy_(up.weight @ down.weight)
    return one


FOLD = [
    Mutant(
        "bias of up forgotten",
        lambda u, d: folded(u, d, first=False),
        "bias of `up` is forgotten",
    ),
    Mutant(
        "bias of down forgotten",
        lambda u, d: folded(u, d, second=False),
        "bias of `down` is forgotten",
    ),
    Mutant("own bias left", fold_fresh_bias, "fresh bias"),
    Mutant("own weight left", fold_fresh, "fresh weight"),
    Mutant("two layers", lambda u, d: nn.Sequential(u, d), "Two layers in a row"),
    Mutant("transposed", fold_wrong_order, "wrong shape"),
    Mutant("wrong product", fold_product, "inner sizes"),
    Mutant("layers changed", fold_in_down, "were changed"),
    Mutant("a matrix", lambda u, d: d.weight @ u.weight, "a Tensor came"),
]


def from_fused(gate_up, down, first=0):
    mlp = BookSwiGLU(gate_up.shape[1], gate_up.shape[0] // 2)
    halves = gate_up.chunk(2)
    with torch.no_grad():
        mlp.gate.weight.copy_(halves[first])
        mlp.up.weight.copy_(halves[1 - first])
        mlp.down.weight.copy_(down)
    return mlp


def fused_by_state(gate_up, down):
    mlp = BookSwiGLU(gate_up.shape[1], gate_up.shape[0] // 2)
    gate, up = torch.split(gate_up, len(gate_up) // 2)
    mlp.load_state_dict({"gate.weight": gate, "up.weight": up, "down.weight": down})
    return mlp


def fused_views(gate_up, down):
    mlp = BookSwiGLU(gate_up.shape[1], gate_up.shape[0] // 2)
    gate, up = gate_up.chunk(2)
    mlp.gate.weight, mlp.up.weight = nn.Parameter(gate), nn.Parameter(up)
    mlp.down.weight = nn.Parameter(down)
    return mlp


def fused_alternating(gate_up, down):
    return from_fused(torch.cat([gate_up[::2], gate_up[1::2]]), down)


def fused_no_down(gate_up, down):
    return from_fused(gate_up, torch.randn_like(down))


def fused_whole(gate_up, down):
    mlp = BookSwiGLU(gate_up.shape[1], gate_up.shape[0])
    with torch.no_grad():
        mlp.gate.weight.copy_(gate_up)
        mlp.down.weight.copy_(down)
    return mlp


def fused_columns(gate_up, down):
    mlp = BookSwiGLU(gate_up.shape[1], gate_up.shape[0] // 2)
    gate, up = gate_up.chunk(2, dim=1)
    with torch.no_grad():
        mlp.gate.weight.copy_(gate)
        mlp.up.weight.copy_(up)
    return mlp


FUSED = [
    Mutant("swapped", lambda gate_up, down: from_fused(gate_up, down, 1), "swapped"),
    Mutant("alternating", fused_alternating, "alternating; here"),
    Mutant("views", fused_views, "shares memory"),
    Mutant("down not copied", fused_no_down, "all three weights"),
    Mutant("cut along the columns", fused_columns, "error"),
]


def way_back(a, b, grad_h):
    s = torch.sigmoid(a)
    return s * (1 + a * (1 - s)) * b * grad_h, a * s * grad_h


def way_back_by_steps(a, b, grad_h):
    """From the other form of the slope."""
    silu = a / (1 + torch.exp(-a))
    slope = silu + torch.sigmoid(a) * (1 - silu)
    return [grad_h * b * slope, grad_h * silu]


def back(first=None, second=None):
    def function(a, b, grad_h):
        s = torch.sigmoid(a)
        right = way_back(a, b, grad_h)
        return (
            first(a, b, grad_h, s) if first else right[0],
            second(a, b, grad_h, s) if second else right[1],
        )

    return function


WAY_BACK = [
    Mutant("one order", lambda a, b, g: way_back(a, b, g)[::-1], "wrong order"),
    Mutant("sigmoid constant", back(lambda a, b, g, s: s * b * g), "SiLU is a product"),
    Mutant(
        "slope of the sigmoid",
        back(lambda a, b, g, s: s * (1 - s) * b * g),
        "slope of the sigmoid",
    ),
    Mutant(
        "half of the rule",
        back(lambda a, b, g, s: a * s * (1 - s) * b * g),
        "half of the product rule",
    ),
    Mutant(
        "b missing",
        back(lambda a, b, g, s: s * (1 + a * (1 - s)) * g),
        "`b` is missing",
    ),
    Mutant(
        "grad_h missing in a",
        back(lambda a, b, g, s: s * (1 + a * (1 - s)) * b),
        "`grad_h` is missing.",
    ),
    Mutant(
        "grad_h missing in b",
        back(second=lambda a, b, g, s: a * s),
        "`grad_h` is missing in it",
    ),
    Mutant("a for SiLU(a)", back(second=lambda a, b, g, s: a * g), "this is a."),
    Mutant("sigmoid for SiLU", back(second=lambda a, b, g, s: s * g), "its sigmoid"),
    Mutant(
        "b for SiLU(a)", back(second=lambda a, b, g, s: b * g), "SiLU(a) is missing"
    ),
    Mutant("one only", lambda a, b, g: way_back(a, b, g)[0], "Two tensors"),
]

MUTANTS = {"swiglu": SWIGLU, "fold": FOLD, "from_fused": FUSED, "way_back": WAY_BACK}
RIGHT = {
    "swiglu": SWIGLU_RIGHT,
    "fold": {"products": folded, "by trying": fold_other_style},
    "from_fused": {"copies": from_fused, "a state dict": fused_by_state},
    "way_back": {"formula": way_back, "another form": way_back_by_steps},
}
AS_MODULES = {
    "swiglu": [
        (Mutant(name, None, word), module(inner))
        for name, (inner, word) in INNER.items()
    ]
}
