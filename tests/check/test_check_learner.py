"""Chapter 7 played by a learner: attempts as they are typed, and what is said to each.

None is taken from the table of mutants. `python tests/check/test_check_learner.py`
prints them with their messages.
"""

import linecache
import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from minigpt.book import check

CLASS = """class RMSNorm(nn.Module):
    def __init__(self, size, eps=1e-6):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(size))

    def forward(self, x):
        {}
"""

# What was typed in `forward`, and what the message has to say.
ATTEMPTS = [
    (
        "rms = (x.pow(2).mean(-1, keepdim=True) + self.eps) ** 1/2\n        return "
        "self.weight * x / rms",
        "half* the mean square. `** 1/2`",
    ),
    (
        "return x * (x.pow(2).mean(-1, keepdim=True) + self.eps) ** -1/2 * self.weight",
        "`** -1/2` means",
    ),
    (
        "rms = x.norm(2, dim=-1, keepdim=True) / x.shape[-1]\n        return x / (rms "
        "+ self.eps) * self.weight",
        "length over n; over the root of n",
    ),
    (
        "return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True)) + self.eps * "
        "self.weight",
        "epsilon is added to the output",
    ),
    (
        "return x / math.sqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * "
        "self.weight",
        "`torch.sqrt` for `math.sqrt`",
    ),
    (
        "return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.esp) * "
        "self.weight",
        "Is that attribute spelled as in `__init__`",
    ),
    (
        "x = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps)\n        x * "
        "self.weight",
        "Is a `return` missing?",
    ),
    (
        "return (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps)) @ "
        "self.weight",
        "`@` written for `*`",
    ),
    (
        "ms = x.pow_(2).mean(-1, keepdim=True)\n        return x * torch.rsqrt(ms + "
        "self.eps) * self.weight",
        "a method that ends in `_`",
    ),
    (
        "var = x.var(-1, keepdim=True, unbiased=False)\n        return x / "
        "torch.sqrt(var + self.eps) * self.weight",
        "standard deviation, which is taken around the mean",
    ),
    (
        "return F.rms_norm(x, x.shape[-1:], self.weight)",
        "Is a fixed number written in the code, or eps left out?",
    ),
    (
        "y = x.float()\n        y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + "
        "self.eps)\n        return (y * self.weight).half()",
        "a fixed type is written into the code",
    ),
    (
        "rms = np.sqrt(np.mean(x.detach().numpy() ** 2, -1, keepdims=True) + "
        "self.eps)\n        return x / torch.from_numpy(rms) * self.weight",
        "NumPy knows neither gradients nor bfloat16",
    ),
    (
        "return x * torch.rsqrt(x.pow(2).sum(-1, keepdim=True) / 768 + self.eps) * "
        "self.weight",
        "divided by 768",
    ),
    (
        "return self.weight(x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + "
        "self.eps))",
        "multiplied with `*`",
    ),
]


def typed(source: str, number: int = 0) -> dict:
    """Run a cell, so that its lines can be shown as a notebook shows them."""
    name = f"<cell {number}>"
    linecache.cache[name] = (len(source), None, source.splitlines(True), name)
    names = {"torch": torch, "nn": nn, "F": F, "np": np, "math": math}
    exec(compile(source, name, "exec"), names)
    return names


def judged(number: int):
    source = CLASS.format(ATTEMPTS[number][0])
    return check.rmsnorm(typed(source, number)["RMSNorm"])


@pytest.mark.parametrize("number", range(len(ATTEMPTS)))
def test_every_attempt_is_told_something_true(number):
    result = judged(number)
    assert not result.passed
    assert ATTEMPTS[number][1] in result.sentence, result.message
    if "stops with an error" in result.sentence:  # with the line that was typed
        lines = CLASS.format(ATTEMPTS[number][0]).splitlines()
        (at,) = (int(n.split()[1]) for n, _ in result.rows if n.startswith("line"))
        assert lines[at - 1].strip() == dict(result.rows)[f"line {at}"]


def test_no_two_are_told_the_same():
    sentences = [judged(number).sentence for number in range(len(ATTEMPTS))]
    assert len(set(sentences)) == len(sentences)


def test_the_right_one_passes_at_last():
    body = (
        "y = x.float()\n        y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + "
        "self.eps)\n        return (y * self.weight).to(x.dtype)"
    )
    assert check.rmsnorm(typed(CLASS.format(body))["RMSNorm"]).passed


if __name__ == "__main__":
    for number, (body, _) in enumerate(ATTEMPTS):
        print("\n>>>", "; ".join(line.strip() for line in body.splitlines()))
        print(judged(number))
