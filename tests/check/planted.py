"""What the tables of mutants are made of."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import nn

__all__ = ["Mutant", "as_block", "as_layer_norm", "as_residual", "as_rms_norm"]


class Mutant(NamedTuple):
    """A planted mistake.

    Args:
        name: what was done.
        answer: the reader's class or function.
        word: what the message must say.
    """

    name: str
    answer: object
    word: str


def as_rms_norm(function: Callable) -> type[nn.Module]:
    """A module around f(x, weight, eps)."""

    class RMSNorm(nn.Module):
        def __init__(self, size, eps=1e-6):
            super().__init__()
            self.eps, self.weight = eps, nn.Parameter(torch.ones(size))

        def forward(self, x):
            return function(x, self.weight, self.eps)

    return RMSNorm


def as_layer_norm(function: Callable) -> type[nn.Module]:
    """A module around f(x, weight, bias, eps)."""

    class LayerNorm(nn.Module):
        def __init__(self, size, eps=1e-5):
            super().__init__()
            self.eps, self.weight = eps, nn.Parameter(torch.ones(size))
            self.bias = nn.Parameter(torch.zeros(size))

        def forward(self, x):
            return function(x, self.weight, self.bias, self.eps)

    return LayerNorm


def as_residual(function: Callable) -> type[nn.Module]:
    """A module around f(x, branch)."""

    class Residual(nn.Module):
        def __init__(self, branch):
            super().__init__()
            self.branch = branch

        def forward(self, x):
            return function(x, self.branch)

    return Residual


def as_block(function: Callable) -> type[nn.Module]:
    """A module around f(x, attn, mlp, attn_norm, mlp_norm)."""

    class Block(nn.Module):
        def __init__(self, attn, mlp, attn_norm, mlp_norm):
            super().__init__()
            self.attn, self.mlp = attn, mlp
            self.attn_norm, self.mlp_norm = attn_norm, mlp_norm

        def forward(self, x):
            return function(x, self.attn, self.mlp, self.attn_norm, self.mlp_norm)

    return Block
