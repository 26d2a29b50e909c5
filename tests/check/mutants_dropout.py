"""Wrong and right dropouts, and the exercises of chapter 9."""

import numpy as np
import torch
import torch.nn.functional as F
from planted import Mutant
from torch import nn

from minigpt.dropout import Dropout as BookDropout
from minigpt.dropout import dropout as book_dropout


def keep(x, p):
    return (torch.rand_like(x) >= p).to(x.dtype)


def right(x, p, training):
    if not training or p == 0:
        return x
    if p == 1:
        return x * 0
    return x * keep(x, p) / (1 - p)


def training_only(change):
    """A function that returns x in evaluation, and `change(x, p)` in training."""
    return lambda x, p, training: change(x, p) if training else x


def scaled_in_eval(x, p, training):
    return x * keep(x, p) if training else x * (1 - p)


def scaled_twice_in_eval(x, p, training):
    return (x * keep(x, p) if training else x) / (1 - p)


def multiplied_in_eval(x, p, training):
    return right(x, p, True) if training else x * p


def in_place(x, p, training):
    if training:
        x[torch.rand_like(x) < p] = 0
        return x / (1 - p)
    return x


def one_for_row(x, p):
    return x * (torch.rand(*x.shape[:-1], 1) >= p) / (1 - p)


def one_for_column(x, p):
    mask = torch.rand(*x.shape[:-2], 1, x.shape[-1]) >= p if x.ndim > 1 else keep(x, p)
    return x * mask / (1 - p)


def one_for_batch(x, p):
    return x * (torch.rand(x.shape[1:]) >= p) / (1 - p)


def seeded(x, p):
    torch.manual_seed(0)
    return x * keep(x, p) / (1 - p)


def kept_seed(x, p):
    generator = torch.Generator().manual_seed(42)
    return x * (torch.rand(x.shape, generator=generator) >= p) / (1 - p)


def no_edge(x, p):
    return x * keep(x, p) / (1 - p)


def float_mask(x, p):
    return (
        x * torch.where(torch.rand(x.shape) >= p, 1.0, 0.0) / (1 - p)
        if p < 1
        else 0.0 * x
    )


def cut(x, p):
    return (x.detach() * keep(x, p) / (1 - p)) if p < 1 else 0 * x


class NoMode(nn.Module):
    def __init__(self, p):
        super().__init__()
        self.p = p

    def forward(self, x):
        return F.dropout(x, self.p)


class MaskInInit(nn.Module):
    def __init__(self, p):
        super().__init__()
        self.p = p
        self.seed = int(torch.randint(1000, ()))

    def forward(self, x):
        if not self.training:
            return x
        generator = torch.Generator().manual_seed(self.seed)
        return x * (torch.rand(x.shape, generator=generator) >= self.p) / (1 - self.p)


class Stuck(nn.Module):
    def __init__(self, p):
        super().__init__()
        self.p, self.on = p, True

    def eval(self):
        self.on = False
        return super().eval()

    def forward(self, x):
        return right(x, self.p, self.on)


DROPOUT = [
    Mutant(
        "active in evaluation",
        lambda x, p, training: right(x, p, True),
        "In evaluation values are still dropped",
    ),
    Mutant("F.dropout without the mode", NoMode, "self.training"),
    Mutant("unscaled", training_only(lambda x, p: x * keep(x, p)), "not scaled up"),
    Mutant("scaled in evaluation", scaled_in_eval, "multiplied by 1 - p. With the"),
    Mutant("divided in evaluation", scaled_twice_in_eval, "still divided by 1 - p"),
    Mutant("multiplied by p in evaluation", multiplied_in_eval, "multiplied by p."),
    Mutant(
        "zero in evaluation",
        lambda x, p, training: right(x, p, training) * training,
        "becomes zero",
    ),
    Mutant(
        "mask the wrong way round",
        training_only(lambda x, p: x * (torch.rand_like(x) < p) / (1 - p)),
        "wrong way round",
    ),
    Mutant(
        "normal numbers",
        training_only(lambda x, p: x * (torch.randn_like(x) > p) / (1 - p)),
        "randn",
    ),
    Mutant(
        "a mask of fractions",
        training_only(lambda x, p: x * torch.rand_like(x) / (1 - p)),
        "0 or 1",
    ),
    Mutant(
        "nothing dropped", training_only(lambda x, p: x / (1 - p)), "nothing is dropped"
    ),
    Mutant(
        "half dropped",
        training_only(lambda x, p: x * keep(x, 0.5) / (1 - p)),
        "half of the values",
    ),
    Mutant(
        "multiplied by 1 - p",
        training_only(lambda x, p: x * keep(x, p) * (1 - p)),
        "multiplied by 1 - p: 0.8",
    ),
    Mutant(
        "divided by p",
        training_only(lambda x, p: x * keep(x, p) / p),
        "divided by p: 5",
    ),
    Mutant("doubled", training_only(lambda x, p: x * keep(x, p) * 2), "doubled"),
    Mutant(
        "divided by the root",
        training_only(lambda x, p: x * keep(x, p) / (1 - p) ** 0.5),
        "root of 1 - p",
    ),
    Mutant("one coin for a row", training_only(one_for_row), "of a row"),
    Mutant("one coin for a column", training_only(one_for_column), "of a column"),
    Mutant("one mask for the batch", training_only(one_for_batch), "of the batch"),
    Mutant("seeded in the call", training_only(kept_seed), "Every call drops the same"),
    Mutant("mask of the module", MaskInInit, "drawn in `__init__`"),
    Mutant("p = 1", training_only(no_edge), "With p=1"),
    Mutant("float32 mask", training_only(float_mask), "another type"),
    Mutant("cut off", training_only(cut), "No gradient passes"),
    Mutant("input changed", in_place, "in place"),
    Mutant("train() forgotten", Stuck, "nothing is dropped any more"),
]


class Bernoulli(nn.Module):
    def __init__(self, prob):
        super().__init__()
        self.prob = prob

    def forward(self, t):
        if self.training and self.prob > 0:
            if self.prob == 1:
                return torch.zeros_like(t)
            out = t.clone()
            out[torch.bernoulli(torch.full(t.shape, self.prob)).bool()] = 0
            return out.div_(1 - self.prob)
        return t


class OfTorch(nn.Dropout):
    pass


def by_numpy(x, p, training):
    if not training:
        return x
    mask = torch.from_numpy(np.random.rand(*x.shape) >= p).to(x)
    return x * mask / max(1 - p, 1e-9)


DROPOUT_RIGHT = {
    "function": right,
    "the book's function": book_dropout,
    "the book's module": BookDropout,
    "bernoulli": Bernoulli,
    "subclass of torch's own": OfTorch,
    "functional": lambda x, p, training: F.dropout(x, p, training),
    "where": lambda x, p, training: (
        torch.where(torch.rand_like(x) < p, 0 * x, x / max(1 - p, 1e-9))
        if training
        else x
    ),
}


# DropConnect and stochastic depth -----------------------------------------------------


def connect(linear, x, p, training):
    return F.linear(x, right(linear.weight, p, training), linear.bias)


def connect_changes(linear, x, p, training):
    if training:
        linear.weight.data *= keep(linear.weight, p) / (1 - p)
    return linear(x)


CONNECT = [
    Mutant(
        "active in evaluation",
        lambda l, x, p, training: connect(l, x, p, True),
        "In evaluation",
    ),
    Mutant(
        "no bias",
        lambda linear, x, p, training: F.linear(x, right(linear.weight, p, training)),
        "bias is missing",
    ),
    Mutant(
        "bias dropped",
        lambda linear, x, p, training: F.linear(
            x, right(linear.weight, p, training), right(linear.bias, p, training)
        ),
        "is not dropped",
    ),
    Mutant(
        "dropout on x",
        lambda linear, x, p, training: linear(right(x, p, training)),
        "Whole inputs",
    ),
    Mutant(
        "dropout on the output",
        lambda linear, x, p, training: (
            right(linear(x) - linear.bias, p, training) + linear.bias
        ),
        "kept",
    ),
    Mutant(
        "unscaled",
        lambda linear, x, p, training: F.linear(
            x,
            linear.weight * keep(linear.weight, p) if training else linear.weight,
            linear.bias,
        ),
        "divided by 1 - p",
    ),
    Mutant(
        "p is kept",
        lambda linear, x, p, training: F.linear(
            x, right(linear.weight, 1 - p, training), linear.bias
        ),
        "share of entries",
    ),
    Mutant("nothing dropped", lambda linear, x, p, training: linear(x), "no entry"),
    Mutant("the layer changed", connect_changes, "for good"),
]
CONNECT.pop(4)


def depth(change):
    class StochasticDepth(nn.Module):
        def __init__(self, branch, p):
            super().__init__()
            self.branch, self.p = branch, p

        def forward(self, x):
            return change(x, self.branch(x), self.p, self.training)

    return StochasticDepth


def coins(x, p, *shape):
    return (torch.rand(shape or (len(x), *[1] * (x.ndim - 1))) >= p).to(x.dtype)


DEPTH_RIGHT = {
    "coins": depth(lambda x, f, p, on: x + (coins(x, p) / (1 - p) if on else 1) * f),
    "where": depth(
        lambda x, f, p, on: (
            torch.where(coins(x, p).bool(), x + f / (1 - p), x) if on else f + x
        )
    ),
}
DEPTH = [
    Mutant(
        "values, not samples",
        depth(lambda x, f, p, on: x + right(f, p, on)),
        "Single values",
    ),
    Mutant(
        "one coin for the batch",
        depth(
            lambda x, f, p, on: x + (coins(x, p, 1, 1, 1) / (1 - p) if on else 1) * f
        ),
        "whole batch",
    ),
    Mutant(
        "unscaled",
        depth(lambda x, f, p, on: x + (coins(x, p) if on else 1) * f),
        "not divided by 1 - p where",
    ),
    Mutant(
        "scaled in evaluation",
        depth(lambda x, f, p, on: x + (coins(x, p) if on else 1 - p) * f),
        "scaled by 1 - p",
    ),
    Mutant(
        "active in evaluation",
        depth(lambda x, f, p, on: x + coins(x, p) / (1 - p) * f),
        "In evaluation the layer",
    ),
    Mutant(
        "the wrong way round",
        depth(lambda x, f, p, on: x + (coins(x, 1 - p) / (1 - p) if on else 1) * f),
        "wrong way round",
    ),
    Mutant(
        "the sum dropped",
        depth(lambda x, f, p, on: coins(x, p) / (1 - p) * (x + f) if on else x + f),
        "No sample is skipped",
    ),
    Mutant("residual missing", depth(lambda x, f, p, on: f), "residual is missing"),
]

MUTANTS = {"dropout": DROPOUT, "drop_connect": CONNECT, "stochastic_depth": DEPTH}
RIGHT = {
    "dropout": DROPOUT_RIGHT,
    "drop_connect": {
        "function": connect,
        "matrix product": lambda linear, x, p, training: (
            x @ F.dropout(linear.weight, p, training).T + linear.bias
        ),
    },
    "stochastic_depth": DEPTH_RIGHT,
}
NOTED = {"dropout": by_numpy}
