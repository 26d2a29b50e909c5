"""Checks of chapters 6 and 7: LayerNorm and RMSNorm, and what their exercises ask."""

import os
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from minigpt.book.check import answer as answers
from minigpt.book.check.judge import Judge, close, judged, numbers

__all__ = [
    "layer_norm_backward",
    "layernorm",
    "on_the_sphere",
    "partial_rms_norm",
    "plus_one_norm",
    "rmsnorm",
]

TINY = 1e-12  # an eps that plays no part


class _Norm:
    """The reader's norm, class or function, called as norm(x, weight, bias, eps)."""

    def __init__(self, judge: Judge, answer, signatures: tuple[str, str], shift: bool):
        self.judge, self.answer, self.shift = judge, answer, shift
        self.of_class, self.of_function = signatures
        answers.wants(judge, answer, f"{self.of_class} or {self.of_function}")
        self.made = answers.is_class(answer) or self._maker()
        self.extra: Tensor | None = None  # what an unwanted shift was set to

    def _maker(self) -> bool:
        """Whether a function makes norms, as `lambda size, eps: ...` does."""
        parameters = answers._parameters(self.answer) or []
        first = parameters[0].name.lower() if parameters else ""
        few = [p for p in parameters if p.default is p.empty]
        return first in answers.ALIASES["size"] and len(few) <= 2

    def module(self, size: int, eps: float) -> nn.Module:
        """A fresh module of the reader's class."""
        return answers.build(self.judge, self.answer, self.of_class, size=size, eps=eps)

    def __call__(
        self,
        x: Tensor,
        weight: Tensor | None = None,
        bias: Tensor | None = None,
        eps: float = TINY,
    ) -> Tensor:
        """The reader's output for x; gain 1 and shift 0 where none are given."""
        size = x.shape[-1]
        if self.made:
            function = self.module(size, eps)
            gain, shift = self.parameters(function, size, needed=weight is not None)
            if gain is not None:
                answers.assign(gain, torch.ones(size) if weight is None else weight)
            if shift is not None:
                value = torch.zeros(size) if bias is None else bias
                answers.assign(shift, value)
            elif bias is not None and self.shift:
                self._no_parameter(function, "shift", "bias", "zeros")
            function = function.to(x.dtype)
            shapes = [f"{n} {tuple(p.shape)}" for n, p in function.named_parameters()]
            given = f"x: {answers._text(x)}"
            if shapes:
                given += f"; its parameters: {', '.join(shapes)}"
            value = self.judge.call(function, x, given=given)
        else:
            ones = torch.ones(size, dtype=x.dtype) if weight is None else weight
            arguments = {"x": x, "weight": ones.to(x.dtype)}
            if self.shift:
                zeros = torch.zeros(size) if bias is None else bias
                arguments["bias"] = zeros.to(x.dtype)
            arguments["eps"] = eps
            value = answers.invoke(
                self.judge, self.answer, self.of_function, **arguments
            )
        return self.judge.tensor(value, x.shape, what="your norm")

    def parameters(self, module: nn.Module, size: int, needed: bool):
        """Gain and shift of a module: by name, else by what they begin with."""
        named = dict(module.named_parameters())
        vectors = {n: p for n, p in named.items() if p.numel() == size}
        if len(vectors) < len(named):
            self._no_parameter(module, "gain", "weight", "ones")
        if not vectors:
            if needed:
                self._no_parameter(module, "gain", "weight", "ones")
            return None, None
        gains = answers.by_name(vectors, "weight")
        shifts = answers.by_name(vectors, "bias")
        rest = [n for n in vectors if n not in gains + shifts]
        if not gains:
            ones = [n for n in rest if (vectors[n] == 1).all()]
            gains = ones or [n for n in rest if vectors[n].any()] or rest[:1]
        if not shifts:
            shifts = [n for n in rest if n not in gains]
        gain = vectors[gains[0]] if gains else None
        return gain, (vectors[shifts[0]] if shifts else None)

    def _no_parameter(self, module: nn.Module, role: str, name: str, start: str):
        plain = answers.plain_tensors(module)
        buffers = [n for n, _ in module.named_buffers()]
        others = [f"{n} {tuple(p.shape)}" for n, p in module.named_parameters()]
        fix = f"`self.{name} = nn.Parameter(torch.{start}(size))`"
        if plain:
            text = (
                f"`self.{plain[0]}` is a plain tensor: no optimizer finds it, and it "
                f"is not saved with the model. Register it: {fix}."
            )
        elif buffers:
            text = f"`{buffers[0]}` is a buffer, which is not trained. Make it {fix}."
        elif others:
            text = (
                f"The {role} has one number for each place of a token, {fix}. The "
                f"parameters found in your module are not that: {', '.join(others)}."
            )
        else:
            text = f"Your module has no parameter for the {role}: {fix}."
        self.judge.fail(text, (), f"the {role} is a parameter")


# The shared stages --------------------------------------------------------------------


def _shape(judge: Judge, norm: _Norm):
    with judge.mechanism("shape"):
        x = _random(2, 3, 4)
        y = norm(x)
        if y.dtype != x.dtype:
            got = str(y.dtype).removeprefix("torch.")
            judge.fail(
                f"The input is float32, and your output is {got}: a fixed type is "
                "written into the code. Go back with `.to(x.dtype)`.",
                [("expected", "float32"), ("yours", got)],
                "the type of the output",
            )
        if not y.isfinite().all():
            judge.compare(y, torch.zeros_like(y), x=x)
        if not torch.equal(y, norm(x)):
            judge.fail(
                "Two calls with the same input give different outputs: something in "
                "your norm is random.",
                (),
                "the same output every time",
            )


def _random(*shape: int, seed: int = 1, dtype: torch.dtype = torch.float32) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype)


def _each_token(judge: Judge, norm: _Norm):
    """Change another token, and see whether the first one's output moves."""
    x = _random(3, 3, 4)
    with judge.mechanism("each token by itself"):
        before = norm(x).detach()

        def after(place: tuple) -> Tensor:
            changed = x.clone()
            changed[place] = 2 - 3 * changed[place]
            return norm(changed)[0, 0].detach()

        others = {
            "sentence": (0, slice(1, None)),
            "batch": (slice(1, None), 0),
            "both": (slice(1, None), slice(1, None)),
        }
        moved = {
            name: not close(after(place), before[0, 0], 1e-3)
            for name, place in others.items()
        }
        if not any(moved.values()):
            return
        which = next(name for name, moves in moved.items() if moves)
        place = (*others[which], slice(1, None))  # number 0 of those tokens stays
        per_number = close(after(place)[0], before[0, 0, 0], 1e-3)
        if moved["sentence"] and (moved["batch"] or moved["both"]):
            where = (
                "over batch and time, as BatchNorm does"
                if per_number
                else "over the whole tensor: `mean()` and `var()` without `dim`, say"
            )
        elif moved["sentence"]:
            where = (
                "along the sentence, the wrong axis: `dim=1` here"
                if per_number
                else "over a whole sentence, all its tokens together"
            )
        else:
            where = "along the batch, the wrong axis: `dim=0`"
        judge.fail(
            "Your statistics are taken " + where + ". Other tokens were changed, and "
            "this token's output changed with them. Each token has its own: `dim=-1`.",
            [
                ("x[0, 0]", numbers(x[0, 0])),
                ("expected", numbers(before[0, 0]) + "   as before the change"),
                ("yours", numbers(after(others[which]))),
            ],
        )


def _unasked(right: Tensor) -> list:
    """What a gain of 1 must not do."""
    return [
        (
            "Every number is twice what it should be, though the gain is 1. Is the "
            "gain 1 + weight, as in Gemma? Here it is the weight itself.",
            2 * right,
        ),
        (
            "The gain of 1 is added to every number. A gain is multiplied.",
            right + 1,
        ),
    ]


def _gain(judge: Judge, norm: _Norm, normed: Callable, name: str, extra: bool = False):
    """The gain: one number for each place, multiplied in once, after the division."""
    x = torch.tensor([[[1.0, -2.0, 3.0, 2.0, -1.0]]])
    w = torch.tensor([2.0, 0.5, -1.0, 3.0, 1.5])
    b = torch.tensor([0.25, 0.75, -0.5, 1.5, -1.0]) if norm.shift or extra else None
    if norm.made:
        with judge.mechanism("the gain is a parameter"):
            fresh = norm.module(5, TINY)
            gain, _ = norm.parameters(fresh, 5, needed=True)
            if not gain.requires_grad:
                judge.fail("Your gain does not ask for a gradient: `requires_grad`.")
            if not (gain == 1).all():
                judge.fail(
                    "Your gain does not begin at 1, so a fresh norm already rescales "
                    "what it normalises: begin with `torch.ones(size)`.",
                    [("expected", "1  1  1  1  1"), ("yours", numbers(gain.detach()))],
                )
    hat = normed(x)
    right = hat * w if b is None or not norm.shift else hat * w + b
    with judge.mechanism("the gain"):
        mistakes = [
            ("The gain is not used: the output is the same for every `weight`.", hat),
            (
                "The gain is applied twice: expected {expected}, got {yours}. With a "
                "gain of 1 that does not show.",
                hat * w * w,
            ),
            ("You divide by the gain, and should multiply.", hat / w),
            (
                "The gain is multiplied in before the statistics are taken, so the "
                "norm removes part of it again. First normalise, then multiply.",
                normed(x * w),
            ),
            ("The gain's sign is lost: weights may be negative.", hat * w.abs()),
            ("One gain is used for all places; each place has its own.", hat * w[0]),
            (
                "The gain is summed over the places: `*` is wanted, and no `@`.",
                lambda: (hat @ w).unsqueeze(-1).expand_as(hat),
            ),
        ]
        bias = b if b is not None else torch.zeros(5)
        for text, output in [*mistakes]:  # the same, where a shift is set as well
            if norm.shift:
                mistakes.append(
                    (text, output + bias if isinstance(output, Tensor) else output)
                )
        if norm.shift:
            mistakes += [
                ("The shift is not used: `+ bias` comes last.", hat * w),
                (
                    "The shift is added before the gain, which then scales it too: "
                    "`normed * weight + bias`.",
                    (hat + b) * w,
                ),
                ("The shift is subtracted, and should be added.", hat * w - b),
                ("Gain and shift are exchanged.", hat * b + w),
            ]
        elif extra:
            mistakes += [
                (
                    f"Your {name} adds a shift. It has a gain only; leave the bias "
                    "out.",
                    hat * w + b,
                )
            ]
        y = norm(x, w, b if norm.shift or norm.made else None)
        given = {"x": x, "weight": w} | ({"bias": b} if norm.shift else {})
        judge.compare(y, right, mistakes, **given)


def _types(judge: Judge, norm: _Norm, formula: Callable):
    """The dtype that came in goes out; the arithmetic is not done in halves."""
    weight = torch.tensor([1.0, -0.5, 2.0, 1.5])
    x = torch.tensor([[[1.0, 2.0, 3.0, 6.0]]])
    for dtype in (torch.float16, torch.bfloat16, torch.float64):
        with judge.mechanism("the type of the output"):
            y = norm(x.to(dtype), weight.to(dtype))
            if y.dtype != dtype:
                name = str(dtype).removeprefix("torch.")
                got = str(y.dtype).removeprefix("torch.")
                back = (
                    "It is not cast back: end with `.to(x.dtype)`, after the gain."
                    if dtype != torch.float64
                    else "A fixed `.float()` loses digits; go back with `.to(x.dtype)`."
                )
                judge.fail(
                    f"The input is {name}, and your output is {got}. {back}",
                    [
                        ("input", f"{name} {tuple(x.shape)}"),
                        ("expected", name),
                        ("yours", got),
                    ],
                )
            wide = formula(x.to(dtype).double(), weight.to(dtype).double(), TINY)
            judge.compare(y, wide, (), 0.02 if dtype != torch.float64 else 1e-4, x=x)
    with judge.mechanism("half precision"):
        big = torch.tensor([[[-300.0, 300.0, 600.0, -900.0]]])
        small = torch.tensor([[[1e-4, -2e-4, 3e-4, -1e-4]]])
        for x, eps, what in (
            (
                big,
                1e-5,
                "large numbers: the square of 300 is above 65504, the largest number "
                "of float16",
            ),
            (
                small,
                TINY,
                "small numbers: the square of 0.0001 is zero in float16, and so is a "
                "small eps",
            ),
        ):
            half = x.half()
            judge.compare(
                norm(half, eps=eps),
                formula(half.double(), torch.ones(4).double(), eps),
                (),
                0.01,
                f"In float16 your norm fails for {what}. Take the statistics in "
                "float32: `x.float()` *before* the square.",
                x=half,
                eps=f"{eps:g}",
            )
        zero = norm(torch.zeros(1, 1, 4, dtype=torch.float16), eps=TINY)
        judge.compare(
            zero,
            torch.zeros(1, 1, 4),
            (),
            fallback="A row of zeros in float16 becomes no number, because a small eps "
            "is zero in float16. Go to float32 before eps is added.",
            x=torch.zeros(1, 1, 4),
            eps="1e-12",
        )


def _ranks(judge: Judge, norm: _Norm, formula: Callable):
    """Any number of leading dimensions, a batch of one, and input with gaps."""
    shapes = {
        "a batch of one": (1, 1, 5),
        "one vector": (5,),
        "two dimensions": (3, 5),
        "four dimensions": (2, 1, 3, 5),
    }
    for name, shape in shapes.items():
        with judge.mechanism(name):
            x, w = _random(*shape, seed=3), _random(5, seed=4)
            judge.compare(norm(x, w), formula(x.double(), w.double(), TINY), (), x=x)
    with judge.mechanism("input that is not contiguous"):
        x, w = _random(5, 3, 2, seed=5).permute(2, 1, 0), _random(5, seed=4)
        judge.compare(norm(x, w), formula(x.double(), w.double(), TINY), (), x=x)


def _gradient(judge: Judge, norm: _Norm, formula: Callable, frozen: Callable):
    """The gradient for x, and for the gain."""
    x = torch.tensor([[1.0, -2.0, 3.0, 2.0]], dtype=torch.float64)
    w, g = (
        torch.tensor([2.0, 0.5, -1.0, 3.0]).double(),
        torch.tensor([[1.0, 2.0, -1.0, 0.5]]),
    )
    g = g.double()
    with judge.mechanism("the gradient"):
        xs = x.clone().requires_grad_()
        y = norm(xs, w, eps=0.1)
        if not y.requires_grad:
            judge.fail(
                "No gradient passes your norm. Something cuts it: `.detach()`, "
                "`.data`, `.item()`, `torch.tensor(...)` or `torch.no_grad()`."
            )
        found = _grad(judge, y, xs, g)
        mine = x.clone().requires_grad_()
        (expected,) = torch.autograd.grad(formula(mine, w, 0.1), mine, g)
        still = x.clone().requires_grad_()
        (cut,) = torch.autograd.grad(frozen(still, w, 0.1), still, g)
        judge.compare(
            found,
            expected,
            [
                (
                    "The output is right and its gradient is not: the statistics are "
                    "cut off the graph (`.detach()`, `.item()`, `no_grad`), so they "
                    "count as constants.",
                    cut,
                )
            ],
            1e-3,
            "The output is right and its gradient for x is not.",
            x=x,
            eps="0.1",
        )
    if norm.made:
        with judge.mechanism("the gradient of the gain"):
            module = norm.module(4, 0.1).double()
            y = judge.call(module, x)
            gain, _ = norm.parameters(module, 4, needed=True)
            if y.requires_grad:
                y.sum().backward()
            if gain.grad is None:
                judge.fail(
                    "The gain gets no gradient, so it would never be trained. Use "
                    "`self.weight` itself, without `.data` or `.detach()`."
                )
            hat = formula(x, torch.ones(4).double(), 0.1)
            judge.compare(gain.grad.reshape(4), hat[0], (), 1e-3, x=x)


def _grad(judge: Judge, y: Tensor, x: Tensor, g: Tensor) -> Tensor:
    try:
        (found,) = torch.autograd.grad(y, x, g.to(y.dtype), allow_unused=True)
    except RuntimeError as error:
        judge.fail(
            "The way back stops with an error. Something writes in place into a tensor "
            "that the gradient still needs.",
            [("error", str(error).splitlines()[0][:150])],
        )
    if found is None:
        judge.fail("Your output does not depend on x for the gradient: was x copied?")
    return found


def _unseen(judge: Judge, norm: _Norm, formula: Callable):
    """Numbers that nobody has seen before; nothing of them is printed."""
    with judge.mechanism("numbers never seen before"):
        seed = int.from_bytes(os.urandom(4), "little")
        for shape in ((2, 3, 7), (4, 16)):
            x, w = _random(*shape, seed=seed), _random(shape[-1], seed=seed + 1)
            right = formula(x.double(), w.double(), 0.3)
            if not close(norm(x, w, eps=0.3), right, 1e-3):
                judge.fail(
                    "All inputs tried so far came out right, a new one does not. Are "
                    "results or sizes written into the code?"
                )


# RMSNorm ------------------------------------------------------------------------------


def _rms(x: Tensor, w: Tensor, eps: float) -> Tensor:
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * w


def _rms_frozen(x: Tensor, w: Tensor, eps: float) -> Tensor:
    return x * torch.rsqrt(x.detach().square().mean(-1, keepdim=True) + eps) * w


@judged("RMSNorm")
def rmsnorm(judge: Judge, answer):
    """Judge `class RMSNorm(nn.Module)` with `RMSNorm(size, eps)`, or a function.

    Args:
        answer: a class whose objects take x (..., D) and have a gain of D numbers that
            begins at 1, under any name; or a function `rms_norm(x, weight, eps)`.
    """
    norm = _Norm(
        judge, answer, ("RMSNorm(size, eps)", "rms_norm(x, weight, eps)"), shift=False
    )
    _shape(judge, norm)
    _each_token(judge, norm)
    one = torch.ones(5)
    x = torch.tensor([[[3.0, -1.0, 4.0, -5.0, 2.0]]])
    ms, c = x.square().mean(-1, keepdim=True), x - x.mean(-1, keepdim=True)
    with judge.mechanism("the root mean square"):
        y = norm(x)
        judge.compare(
            y,
            x / ms.sqrt(),
            [
                (
                    "The mean is subtracted. RMSNorm leaves the mean in: that is its "
                    "whole difference from LayerNorm.",
                    c / c.square().mean(-1, keepdim=True).sqrt(),
                ),
                (
                    "The mean is subtracted from x, though not in the mean square: "
                    "what is divided must be x itself.",
                    c / ms.sqrt(),
                ),
                (
                    "You divide by the standard deviation, which is taken around the "
                    "mean. The root mean square is taken around zero: `x.square()`.",
                    x / c.square().mean(-1, keepdim=True).sqrt(),
                ),
                (
                    "You divide by torch's `std`, which is taken around the mean, and "
                    "with n - 1. RMSNorm averages `x.square()` and subtracts nothing.",
                    x / x.std(-1, keepdim=True),
                ),
                (
                    "The mean is subtracted and the sum divided by n - 1. RMSNorm "
                    "subtracts nothing and divides by n.",
                    c / x.std(-1, keepdim=True),
                ),
                (
                    "The sum of squares is divided by n - 1. A mean square divides by "
                    "n: 5 numbers, not 4.",
                    x / (x.square().sum(-1, keepdim=True) / 4).sqrt(),
                ),
                ("The square root is missing: you divide by the mean square.", x / ms),
                (
                    "You divide by the vector's length, the root of the *sum* of "
                    "squares. Here the root of their *mean* is wanted.",
                    x / x.norm(dim=-1, keepdim=True),
                ),
                (
                    "You multiply by the root mean square, and should divide. (`rsqrt` "
                    "is already one over the root.)",
                    x * ms.sqrt(),
                ),
                (
                    "You divide by the mean of the absolute values; the mean of the "
                    "squares is wanted, and then its root.",
                    x / x.abs().mean(-1, keepdim=True),
                ),
                (
                    "You take the square of the mean; the mean of the squares is "
                    "wanted: first `square`, then `mean`.",
                    x / x.mean(-1, keepdim=True).abs(),
                ),
                (
                    "You return one over the root mean square; multiply x by it.",
                    (1 / ms.sqrt()).expand_as(x),
                ),
                (
                    "You return the root mean square; divide x by it.",
                    ms.sqrt().expand_as(x),
                ),
                (
                    "You divide the squares; x itself is what is divided.",
                    x.square() / ms.sqrt(),
                ),
                (
                    "Each number is divided by the root of its own square, so only "
                    "signs are left. The mean over `dim=-1` is missing.",
                    x.sign(),
                ),
                (
                    "You divide by the length over n; over the root of n it should be: "
                    "the mean is taken first, and then the root.",
                    x / (x.norm(dim=-1, keepdim=True) / 5),
                ),
                (
                    "You divide by *half* the mean square. `** 1/2` means `(... ** 1) "
                    "/ 2`; a root is `** 0.5` or `.sqrt()`.",
                    x / (ms / 2),
                ),
                (
                    "You divide by *twice* the mean square. `** -1/2` means `(... ** "
                    "-1) / 2`; one over a root is `** -0.5` or `.rsqrt()`.",
                    x / (2 * ms),
                ),
                (
                    "The mean square is divided out twice, with a root each time.",
                    x / ms.sqrt() / ms,
                ),
                (
                    "You divide by the largest number.",
                    x / x.abs().amax(-1, keepdim=True),
                ),
                ("The input comes back as it was: nothing is divided.", x),
                ("That is a softmax; RMSNorm divides by one number.", x.softmax(-1)),
                *_unasked(x / ms.sqrt()),
            ],
            fallback=_divisor(y, x),
            x=x,
        )
    with judge.mechanism("where epsilon stands"):
        x, eps = torch.tensor([[[0.1, -0.3, 0.2, 0.3, -0.2]]]), 0.1
        ms = x.square().mean(-1, keepdim=True)
        y = norm(x, eps=eps)
        judge.compare(
            y,
            _rms(x, one, eps),
            [
                (
                    "Your epsilon is outside the square root: with eps=0.1 the output "
                    "is {yours}, expected {expected}. It is added to the mean square, "
                    "and then comes the root.",
                    x / (ms.sqrt() + eps),
                ),
                *_ignored(y, norm, x),
                (
                    "Your epsilon is squared before it is added: eps already has the "
                    "unit of x squared.",
                    x / (ms + eps**2).sqrt(),
                ),
                (
                    "Your epsilon is added to the sum of squares, before the mean is "
                    "taken.",
                    x / ((x.square().sum(-1, keepdim=True) + eps) / 5).sqrt(),
                ),
                (
                    "Your epsilon is a lower limit of the mean square (`max`, "
                    "`clamp`); it is to be added.",
                    x / ms.clamp(min=eps).sqrt(),
                ),
                ("Your epsilon is added twice.", x / (ms + 2 * eps).sqrt()),
                (
                    "Your epsilon is added inside the root and outside again.",
                    x / ((ms + eps).sqrt() + eps),
                ),
                ("Your epsilon is subtracted.", x / (ms - eps).sqrt()),
                (
                    "Your epsilon is added to x before the square, or to the output.",
                    lambda: x / (x + eps).square().mean(-1, keepdim=True).sqrt(),
                ),
                (
                    "Your epsilon is added to the output. It belongs under the root, "
                    "to the mean square; look at the brackets.",
                    x / ms.sqrt() + eps,
                ),
                (
                    "You multiply by one over the root and then add epsilon to it; it "
                    "belongs into the root.",
                    x * (ms.rsqrt() + eps),
                ),
            ],
            x=x,
            eps="0.1",
        )
    _gain(judge, norm, lambda t: _rms(t, one, 0.0), "RMSNorm", extra=True)
    _large(judge, norm, _rms)
    _ranks(judge, norm, _rms)
    _types(judge, norm, _rms)
    _gradient(judge, norm, _rms, _rms_frozen)
    _unseen(judge, norm, _rms)


def _divisor(y: Tensor, x: Tensor) -> str:
    """Whether the sum of squares was divided by another whole number than n."""
    squares = (x.square().sum() * (y / x).square()).flatten()
    number = round(squares[0].item()) if squares.isfinite().all() else 0
    if number < 2 or not close(squares, torch.full_like(squares, number), 1e-3):
        return ""
    n = x.shape[-1]
    return (
        f"It is as if the sum of squares were divided by {number}. Divide by the "
        f"number of numbers in a row, here {n}: `mean(-1)` does."
    )


def _ignored(y: Tensor, norm: _Norm, x: Tensor) -> list:
    """The mistake of an epsilon that is not the one that was given."""
    if not close(y, norm(x, eps=0.4), 1e-6):
        return []
    text = (
        "Your epsilon is not the one that was given: with eps=0.1 and with eps=0.4 the "
        "output is the same, {yours}, expected {expected} for 0.1. Is a fixed number "
        "written in the code, or eps left out?"
    )
    return [(text, y.detach())]


def _large(judge: Judge, norm: _Norm, formula: Callable):
    """A mean of thousands, and numbers of a million."""
    for name, x in (
        ("a large mean", 1e4 + _random(1, 1, 64, seed=6)),
        ("large numbers", 1e6 * _random(1, 1, 64, seed=6)),
    ):
        with judge.mechanism(name):
            right = formula(x.double(), torch.ones(64).double(), 1e-5)
            judge.compare(
                norm(x, eps=1e-5),
                right,
                (),
                2e-2,
                "The numbers of the input are around 10000 and differ by about 1, and "
                "the difference is lost in rounding. A variance as E[x²] - E[x]² "
                "subtracts two huge numbers; subtract the mean first, then square."
                if name == "a large mean"
                else "",
                x=x,
            )


# LayerNorm ----------------------------------------------------------------------------


def _ln(x: Tensor, w: Tensor, eps: float, b: Tensor | float = 0.0) -> Tensor:
    c = x - x.mean(-1, keepdim=True)
    return c * torch.rsqrt(c.square().mean(-1, keepdim=True) + eps) * w + b


def _ln_frozen(x: Tensor, w: Tensor, eps: float) -> Tensor:
    c = (x - x.mean(-1, keepdim=True)).detach()
    scale = torch.rsqrt(c.square().mean(-1, keepdim=True) + eps)
    return (x - x.detach().mean(-1, keepdim=True)) * scale * w


@judged("LayerNorm")
def layernorm(judge: Judge, answer):
    """Judge `class LayerNorm(nn.Module)` with `LayerNorm(size, eps)`, or a function.

    Args:
        answer: a class whose objects take x (..., D) and have a gain that begins at 1
            and a shift that begins at 0, under any names; or a function
            `layer_norm(x, weight, bias, eps)`.
    """
    norm = _Norm(
        judge,
        answer,
        ("LayerNorm(size, eps)", "layer_norm(x, weight, bias, eps)"),
        shift=True,
    )
    _shape(judge, norm)
    _each_token(judge, norm)
    one = torch.ones(5)
    x = torch.tensor([[[3.0, -1.0, 4.0, -5.0, 2.0]]])
    c, ms = x - x.mean(-1, keepdim=True), x.square().mean(-1, keepdim=True)
    var = c.square().mean(-1, keepdim=True)
    with judge.mechanism("mean and variance"):
        judge.compare(
            norm(x),
            c / var.sqrt(),
            [
                (
                    "The variance is divided by n - 1: {yours}, expected {expected}. "
                    "torch's `var` and `std` do so unless told `correction=0`; "
                    "LayerNorm divides by n.",
                    c / x.std(-1, keepdim=True),
                ),
                ("The mean is not subtracted before the division.", x / var.sqrt()),
                (
                    "The mean is not subtracted, and the standard deviation has n - 1.",
                    x / x.std(-1, keepdim=True),
                ),
                (
                    "The mean is never subtracted: that is RMSNorm.",
                    x / ms.sqrt(),
                ),
                (
                    "The mean is subtracted in the output, not in the variance: you "
                    "average x squared, and should average (x - mean) squared.",
                    c / ms.sqrt(),
                ),
                ("The square root is missing: you divide by the variance.", c / var),
                (
                    "The square root is missing, and the variance is divided by n - 1.",
                    c / x.var(-1, keepdim=True),
                ),
                ("The mean is subtracted, and nothing is divided.", c),
                (
                    "You multiply by the standard deviation, and should divide. "
                    "(`rsqrt` is already one over the root.)",
                    c * var.sqrt(),
                ),
                (
                    "You divide by the length of the centred vector; divide by the "
                    "root of the *mean* of its squares.",
                    c / c.norm(dim=-1, keepdim=True),
                ),
                (
                    "You divide by the mean of the absolute differences; the root of "
                    "the mean of their squares is wanted.",
                    c / c.abs().mean(-1, keepdim=True),
                ),
                (
                    "You subtract the median or another middle, not the mean.",
                    x - x.median(-1, keepdim=True).values,
                ),
                (
                    "You bring the numbers between smallest and largest to 0 and 1.",
                    (x + 5) / 9,
                ),
                (
                    "The mean is added, and should be subtracted.",
                    (2 * x - c) / var.sqrt(),
                ),
                (
                    "x is divided first and the mean subtracted afterwards.",
                    x / var.sqrt() - x.mean(),
                ),
                ("The input comes back as it was.", x),
                *_unasked(c / var.sqrt()),
            ],
            x=x,
        )
    with judge.mechanism("where epsilon stands"):
        x, eps = torch.tensor([[[0.1, -0.3, 0.2, 0.3, -0.2]]]), 0.1
        c = x - x.mean(-1, keepdim=True)
        var = c.square().mean(-1, keepdim=True)
        y = norm(x, eps=eps)
        judge.compare(
            y,
            _ln(x, one, eps),
            [
                (
                    "Your epsilon is outside the square root: with eps=0.1 the output "
                    "is {yours}, expected {expected}. It is added to the variance, and "
                    "then comes the root.",
                    c / (var.sqrt() + eps),
                ),
                *_ignored(y, norm, x),
                (
                    "Your epsilon is squared before it is added: eps already has the "
                    "unit of x squared.",
                    c / (var + eps**2).sqrt(),
                ),
                (
                    "Your epsilon is a lower limit of the variance (`max`, `clamp`); "
                    "it is to be added.",
                    c / var.clamp(min=eps).sqrt(),
                ),
                ("Your epsilon is added twice.", c / (var + 2 * eps).sqrt()),
                (
                    "Your epsilon is added inside the root and outside again.",
                    c / ((var + eps).sqrt() + eps),
                ),
                ("Your epsilon is subtracted.", c / (var - eps).sqrt()),
                ("Your epsilon is added to the output.", c / var.sqrt() + eps),
                (
                    "Your epsilon is added to the sum of squares, before the mean.",
                    c / ((c.square().sum(-1, keepdim=True) + eps) / 5).sqrt(),
                ),
            ],
            x=x,
            eps="0.1",
        )
    _gain(judge, norm, lambda t: _ln(t, one, 0.0), "LayerNorm")
    if norm.made:
        with judge.mechanism("the shift is a parameter"):
            fresh = norm.module(4, TINY)
            _, shift = norm.parameters(fresh, 4, needed=True)
            if shift.any():
                judge.fail(
                    "Your shift does not begin at 0: `torch.zeros(size)`.",
                    [("expected", "0  0  0  0"), ("yours", numbers(shift.detach()))],
                )
    _large(judge, norm, _ln)
    _ranks(judge, norm, _ln)
    _types(judge, norm, _ln)
    _gradient(judge, norm, _ln, _ln_frozen)
    _unseen(judge, norm, _ln)


# The exercises of chapters 6 and 7 ----------------------------------------------------


@judged("layer_norm_backward")
def layer_norm_backward(judge: Judge, answer):
    """Judge `layer_norm_backward(grad_y, x, weight, eps)`: the gradient for x.

    Args:
        answer: a function that returns (..., D), made without autograd.
    """
    signature = "layer_norm_backward(grad_y, x, weight, eps)"
    answers.wants(judge, answer, signature, classes=False)

    def run(x: Tensor, w: Tensor, g: Tensor, eps: float) -> Tensor:
        value = answers.invoke(
            judge, answer, signature, grad_y=g, x=x, weight=w, eps=eps
        )
        return judge.tensor(value, x.shape, what="your function")

    def right(x: Tensor, w: Tensor, g: Tensor, eps: float) -> Tensor:
        leaf = x.detach().clone().requires_grad_()
        return torch.autograd.grad(_ln(leaf, w, eps), leaf, g)[0]

    x = torch.tensor([[1.0, -2.0, 3.0, 2.0]], dtype=torch.float64)
    g = torch.tensor([[1.0, 2.0, -1.0, 0.5]], dtype=torch.float64)
    w = torch.tensor([2.0, 0.5, -1.0, 3.0], dtype=torch.float64)

    def parts(x: Tensor, g: Tensor, eps: float):
        c = x - x.mean(-1, keepdim=True)
        s = (c.square().mean(-1, keepdim=True) + eps).sqrt()
        hat = c / s
        return hat, s, g.mean(-1, keepdim=True), (hat * g).mean(-1, keepdim=True)

    for name, weight in (("with a gain of 1", torch.ones(4).double()), ("the gain", w)):
        hat, s, mean, along = parts(x, g, TINY)
        late = ((g - mean - hat * along) / s) * weight
        gw = g * weight
        _, _, mean, along = parts(x, gw, TINY)
        with judge.mechanism(name):
            judge.compare(
                run(x, weight, g, TINY),
                right(x, weight, g, TINY),
                [
                    (
                        "The gain is multiplied in after the two means; it comes "
                        "first: `grad_y * weight`.",
                        late,
                    ),
                    ("The gain is not used.", late / weight),
                    (
                        "The division by the standard deviation is missing.",
                        gw - mean - hat * along,
                    ),
                    (
                        "The statistics count as constants: both means are missing.",
                        gw / s,
                    ),
                    (
                        "The mean of the gradient is not subtracted.",
                        (gw - hat * along) / s,
                    ),
                    (
                        "The term with x̂ is missing: the standard deviation depends "
                        "on x, too.",
                        (gw - mean) / s,
                    ),
                    (
                        "The term with x̂ has the wrong sign.",
                        (gw - mean + hat * along) / s,
                    ),
                    (
                        "The means are sums: divide by D.",
                        (gw - 4 * mean - 4 * hat * along) / s,
                    ),
                    (
                        "The term with x̂ takes x itself in place of x̂.",
                        (gw - mean - x * (x * gw).mean(-1, keepdim=True)) / s,
                    ),
                    (
                        "You divide by the variance; by its root it is.",
                        (gw - mean - hat * along) / s.square(),
                    ),
                    (
                        "You multiply by the standard deviation, and should divide.",
                        (gw - mean - hat * along) * s,
                    ),
                ],
                x=x,
                grad_y=g,
                weight=weight,
            )
    with judge.mechanism("where epsilon stands"):
        judge.compare(
            run(x, w, g, 2.0),
            right(x, w, g, 2.0),
            [
                ("Epsilon plays no part in your gradient.", right(x, w, g, TINY)),
                ("Your epsilon is always 1e-5.", right(x, w, g, 1e-5)),
            ],
            x=x,
            eps="2",
        )
    with judge.mechanism("any number of leading dimensions"):
        x, g, w = (
            _random(*s, seed=i).double()
            for i, s in enumerate(((2, 3, 5), (2, 3, 5), (5,)))
        )
        judge.compare(run(x, w, g, 0.1), right(x, w, g, 0.1), (), x=x, grad_y=g)


@judged("on_the_sphere")
def on_the_sphere(judge: Judge, answer):
    """Judge `on_the_sphere(x)`: LayerNorm as centring and `F.normalize`.

    Args:
        answer: a function of x (..., D) that returns vectors of length sqrt(D).
    """
    answers.wants(judge, answer, "on_the_sphere(x)", classes=False)
    x = torch.tensor([[1.0, -2.0, 3.0, 6.0]])
    c = x - x.mean(-1, keepdim=True)
    unit, raw = F.normalize(c, dim=-1), F.normalize(x, dim=-1)

    def run(x: Tensor) -> Tensor:
        value = answers.invoke(judge, answer, "on_the_sphere(x)", x=x)
        return judge.tensor(value, x.shape, what="your function")

    with judge.mechanism("plane and length"):
        judge.compare(
            run(x),
            2 * unit,
            [
                ("The length is 1; LayerNorm's output has length sqrt(D).", unit),
                ("The length is D; it is the *root* of D.", 4 * unit),
                ("The mean is not subtracted: that is RMSNorm.", 2 * raw),
                ("Neither is the mean subtracted nor the length sqrt(D).", raw),
                ("The mean is subtracted after the division.", 2 * (raw - raw.mean())),
                ("Divided by sqrt(D); multiply.", unit / 2),
                ("The standard deviation has n - 1.", c / x.std()),
            ],
            x=x,
        )
    with judge.mechanism("each token by itself"):
        many = _random(2, 3, 5, seed=7)
        middle = many - many.mean(-1, keepdim=True)
        judge.compare(
            run(many),
            _ln(many, torch.ones(5), TINY),
            [
                (
                    "The length is taken along the sentence, `dim=1`, the default of "
                    "`F.normalize`. Each token has its own: `dim=-1`.",
                    5**0.5 * F.normalize(middle, dim=1),
                ),
                (
                    "The mean is taken over all tokens; each has its own: `dim=-1`.",
                    5**0.5 * F.normalize(many - many.mean(), dim=-1),
                ),
            ],
            x=many,
        )
    with judge.mechanism("quiet tokens"):
        quiet = 1e-4 * x
        judge.compare(
            run(quiet),
            2 * unit,
            [
                (
                    "That is LayerNorm with its eps of 1e-5: `F.normalize` brings "
                    "quiet tokens to full length, and the exercise wants to see that.",
                    _ln(quiet, torch.ones(4), 1e-5),
                )
            ],
            x=quiet,
        )


@judged("partial_rms_norm")
def partial_rms_norm(judge: Judge, answer):
    """Judge `partial_rms_norm(x, weight, p, eps)`: the size from the first p D numbers.

    Args:
        answer: a function of x (..., D), the gain (D,), the share p and eps.
    """
    signature = "partial_rms_norm(x, weight, p, eps)"
    answers.wants(judge, answer, signature, classes=False)

    def run(x: Tensor, w: Tensor, p: float, eps: float = TINY) -> Tensor:
        value = answers.invoke(judge, answer, signature, x=x, weight=w, p=p, eps=eps)
        return judge.tensor(value, x.shape, what="your function")

    x = torch.tensor([[1.0, -2.0, 3.0, 6.0]])
    one, w = torch.ones(4), torch.tensor([2.0, 0.5, -1.0, 3.0])

    def by(part: Tensor, eps: float = 0.0) -> Tensor:
        return x / (part.square().mean(-1, keepdim=True) + eps).sqrt()

    with judge.mechanism("p = 1 is RMSNorm"):
        judge.compare(
            run(x, one, 1.0),
            by(x),
            [
                ("The mean is subtracted, and RMSNorm leaves it in.", _ln(x, one, 0.0)),
                ("The square root is missing.", x / x.square().mean()),
                ("The sum of squares is taken, not their mean.", x / x.norm()),
            ],
            x=x,
            p="1",
        )
    with judge.mechanism("the first p D numbers"):
        half = x[:, :2]
        judge.compare(
            run(x, one, 0.5),
            by(half),
            [
                ("p is not used: all numbers go into the mean square.", by(x)),
                ("The last numbers are taken; the first are wanted.", by(x[:, 2:])),
                (
                    "The sum over the part is divided by D, and by p D it should be.",
                    x / (half.square().sum(-1, keepdim=True) / 4).sqrt(),
                ),
                (
                    "Only the part is divided; all numbers are.",
                    torch.cat([half / half.square().mean().sqrt(), x[:, 2:]], -1),
                ),
                (
                    "The whole mean square is multiplied by p.",
                    x / (0.5 * x.square().mean()).sqrt(),
                ),
                (
                    "Every other number is taken; the first half is wanted.",
                    by(x[:, ::2]),
                ),
                ("One number too many is taken.", by(x[:, :3])),
                ("One number too few is taken.", by(x[:, :1])),
            ],
            x=x,
            p="0.5",
        )
    with judge.mechanism("gain and epsilon"):
        right = _random(3, 4, seed=8)
        part = right[:, :2].square().mean(-1, keepdim=True)
        judge.compare(
            run(right, w, 0.5, 0.1),
            right / (part + 0.1).sqrt() * w,
            [
                (
                    "Your epsilon is outside the square root.",
                    right / (part.sqrt() + 0.1) * w,
                ),
                ("Epsilon plays no part.", right / part.sqrt() * w),
                ("The gain is not used.", right / (part + 0.1).sqrt()),
            ],
            x=right,
            weight=w,
            eps="0.1",
        )
    with judge.mechanism("the type of the output"):
        y = run(x.half(), w.half(), 0.5)
        if y.dtype != torch.float16:
            judge.fail("float16 came in; go back with `.to(x.dtype)` at the end.")
    with judge.mechanism("a small share"):
        y = run(x, one, 0.01)
        judge.compare(
            y,
            by(x[:, :1]),
            (),
            fallback="One number at least is needed; for "
            "a share of less the mean of nothing is no number.",
            x=x,
            p="0.01",
        )


@judged("PlusOneNorm")
def plus_one_norm(judge: Judge, answer):
    """Judge `class PlusOneNorm(nn.Module)` with `PlusOneNorm(size, eps)`: gain 1 + w.

    Args:
        answer: a class whose `weight` begins at 0, with a method that takes over the
            numbers of an `RMSNorm`, called `take_over` or otherwise.
    """
    from minigpt.rmsnorm import RMSNorm

    signature = "PlusOneNorm(size, eps)"
    answers.wants(judge, answer, signature, plain=False)

    def make(eps: float = TINY) -> tuple[nn.Module, Tensor]:
        module = answers.build(judge, answer, signature, size=4, eps=eps)
        run(module, x)
        vectors = [p for p in module.parameters() if p.numel() == 4]
        if len(vectors) != 1:
            judge.fail(
                "One parameter of `size` numbers is wanted, `self.weight = "
                "nn.Parameter(torch.zeros(size))`.",
                [("yours", f"{len(vectors)} of them")],
                "the weight is a parameter",
            )
        return module, vectors[0]

    def run(module: nn.Module, x: Tensor) -> Tensor:
        given = f"x: {answers._text(x)}"
        return judge.tensor(
            judge.call(module, x, given=given), x.shape, what="your norm"
        )

    x, one = torch.tensor([[1.0, -2.0, 3.0, 6.0]]), torch.ones(4)
    w = torch.tensor([0.5, -0.5, 1.0, -2.0])
    with judge.mechanism("it begins as an RMSNorm"):
        module, weight = make()
        if not (weight == 0).all():
            judge.fail(
                "The weight begins at 0, so that the gain 1 + w begins at 1.",
                [("expected", "0  0  0  0"), ("yours", numbers(weight.detach()))],
            )
        judge.compare(
            run(module, x),
            _rms(x, one, 0.0),
            [
                ("The gain is the weight, 0 at first; 1 + weight is wanted.", 0 * x),
                ("The mean is subtracted: that is LayerNorm.", _ln(x, one, 0.0)),
            ],
            x=x,
        )
    with judge.mechanism("the gain is 1 + w"):
        answers.assign(weight, w)
        hat = _rms(x, one, 0.0)
        judge.compare(
            run(module, x),
            hat * (1 + w),
            [
                ("The gain is the weight; 1 + weight is wanted.", hat * w),
                ("1 is added to the output, not to the weight.", 1 + hat * w),
                ("The weight is added to the output.", hat + w),
                ("The weight is not used.", hat),
            ],
            x=x,
            weight=w,
        )
    with judge.mechanism("where epsilon stands"):
        module, _ = make(0.5)
        judge.compare(
            run(module, x),
            _rms(x, one, 0.5),
            [
                ("Epsilon plays no part, or is a fixed one.", hat),
                ("Epsilon is outside the root.", x / (x.square().mean().sqrt() + 0.5)),
            ],
            x=x,
            eps="0.5",
        )
    with judge.mechanism("the sum in bfloat16"), torch.no_grad():
        module, weight = make()
        answers.assign(weight, torch.full((4,), 0.003))
        module = module.to(torch.bfloat16)
        many = _random(1000, 4, seed=9).to(torch.bfloat16)
        y = run(module, many)
        if y.dtype != torch.bfloat16:
            judge.fail("bfloat16 came in; go back with `.to(x.dtype)` at the end.")
        hat = _rms(many.double(), one.double(), TINY)
        factor = ((y.double() * hat).sum() / hat.square().sum()).item()
        if factor < 1.0015:  # roundings of single numbers cancel in the mean
            judge.fail(
                "With w = 0.003 in bfloat16 the gain is 1: the next number after 1 is "
                "1.0078, so the sum is rounded back. Take it in float32: `1 + "
                "self.weight.float()`.",
                [("expected", "1.003"), ("yours", f"{factor:.3f}")],
            )
        hat = _rms(x, one, 0.0)
    with judge.mechanism("it takes over an RMSNorm"), torch.no_grad():
        norm = RMSNorm(4, eps=0.3)
        norm.weight.copy_(torch.tensor([0.5, 2.0, -1.0, 1.0]))
        own = [
            n
            for n, v in vars(type(module)).items()
            if callable(v)
            and not n.startswith("_")
            and n not in ("forward", "extra_repr")
        ]
        if not own:
            judge.fail(
                "A method that takes over the weights is missing, `take_over(self, "
                "norm)` say."
            )
        module, _ = make()
        name = "take_over" if "take_over" in own else own[0]
        judge.call(getattr(module, name), norm, given="an RMSNorm of size 4")
        right = norm(x)
        judge.compare(
            run(module, x),
            right,
            [
                (
                    "The weight is copied as it is; take 1 off it.",
                    _rms(x, 1 + norm.weight, 0.3),
                ),
                (
                    "The weight is copied as it is; take 1 off it. And eps is to be "
                    "taken over.",
                    _rms(x, 1 + norm.weight, TINY),
                ),
                (
                    "1 is added to the weight; take it off.",
                    _rms(x, 2 + norm.weight, 0.3),
                ),
                (
                    "The weight is taken over, and eps is not.",
                    _rms(x, norm.weight, TINY),
                ),
                ("Nothing is taken over.", hat),
            ],
            x=x,
        )
