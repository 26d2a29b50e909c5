"""Checks of chapter 9: dropout, and what its exercises make of it."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from minigpt.book.check import answer as answers
from minigpt.book.check.judge import Judge, close, judged, number, numbers

__all__ = ["drop_connect", "dropout", "stochastic_depth"]

_SIGNATURES = ("Dropout(p)", "dropout(x, p, training)")


class _Drop:
    """The reader's dropout, class or function, called as drop(x, p, training)."""

    def __init__(self, judge: Judge, answer):
        self.judge, self.answer = judge, answer
        answers.wants(judge, answer, " or ".join(_SIGNATURES))
        parameters = answers._parameters(answer) or []
        few = [p for p in parameters if p.default is p.empty]
        maker = len(few) == 1 and few[0].name.lower() in answers.ALIASES["p"]
        self.made = answers.is_class(answer) or maker

    def module(self, p: float) -> nn.Module:
        return answers.build(self.judge, self.answer, _SIGNATURES[0], p=p)

    def __call__(self, x: Tensor, p: float, training: bool) -> Tensor:
        if self.made:
            module = self.module(p)
            module.train() if training else module.eval()
            mode = "train()" if training else "eval()"
            given = f"x: {answers._text(x)}, p={p}, after {mode}"
            value = self.judge.call(module, x, given=given)
        else:
            value = answers.invoke(
                self.judge, self.answer, _SIGNATURES[1], x=x, p=p, training=training
            )
        return self.judge.tensor(value, x.shape, what="your dropout")


@judged("Dropout")
def dropout(judge: Judge, answer):
    """Judge `class Dropout(nn.Module)` with `Dropout(p)`, or a function.

    Args:
        answer: a class whose objects follow train() and eval(); or a function
            `dropout(x, p, training)`.
    """
    drop = _Drop(judge, answer)
    x = torch.tensor([[1.0, -2.0, 3.0, 0.5]])
    with judge.mechanism("shape"):
        drop(torch.ones(2, 3, 4), 0.5, True)
    with judge.mechanism("evaluation"):
        y = drop(torch.ones(20, 100), 0.2, False)
        zeros = (y == 0).float().mean().item()
        rows = [("expected", "1  1  1  ..."), ("yours", numbers(y[0]))]
        if zeros == 1:
            judge.fail("In evaluation everything becomes zero; return x.", rows)
        if zeros > 0.02:
            judge.fail(
                f"In evaluation values are still dropped: {zeros:.0%} of them with "
                "p=0.2. "
                + (
                    "Ask `self.training`; `F.dropout(x, p)` and "
                    "`nn.functional.dropout` drop whatever the mode is."
                    if drop.made
                    else "If `training` is false, return x."
                ),
                rows,
            )
        judge.compare(
            drop(x, 0.2, False),
            x,
            [
                (
                    "In evaluation the values are multiplied by 1 - p. With the "
                    "scaling done in training, evaluation returns x as it is.",
                    0.8 * x,
                ),
                (
                    "In evaluation the values are still divided by 1 - p: the scaling "
                    "belongs to training, too.",
                    x / 0.8,
                ),
                ("In evaluation the values are divided by p.", x / 0.2),
                ("In evaluation the values are multiplied by p.", x * 0.2),
            ],
            x=x,
            p="0.2",
        )
    ones = torch.ones(200, 100)
    _coins(judge, drop, ones)
    with judge.mechanism("how many are dropped"):
        y = drop(ones, 0.2, True)
        share = (y == 0).double().mean().item()
        rows = [("expected", "0.2"), ("yours", f"{share:.2f}")]
        if abs(share - 0.2) > 0.02:
            text = (
                f"With p=0.2, {share:.0%} of the values are zero; p is the share that "
                "is dropped."
            )
            if abs(share - 0.8) < 0.02:
                text = (
                    "The mask is the wrong way round: with p=0.2, 80% of the values "
                    "are dropped. p is the share to *drop*; keep where "
                    "`torch.rand_like(x) >= p`."
                )
            elif share == 0:
                text = (
                    "In training nothing is dropped: no value is zero with p=0.2."
                    if y.unique().numel() < 20
                    else "No value is zero: each is multiplied by a number of its own. "
                    "The mask has to be 0 or 1, `torch.rand_like(x) >= p`, say."
                )
            elif abs(share - 0.5) < 0.02:
                text = (
                    "With p=0.2, half of the values are dropped: p is not used, or the "
                    "random numbers are normal and not uniform (`rand`, not `randn`)."
                )
            elif abs(share - 0.58) < 0.02 or abs(share - 0.42) < 0.02:
                text = (
                    f"With p=0.2, {share:.0%} of the values are dropped: the random "
                    "numbers are normal (`randn`) and have to be uniform (`rand`)."
                )
            elif share == 1:
                text = "In training every value becomes zero."
            judge.fail(text, rows)
    with judge.mechanism("the scale of those kept"):
        kept = y[y != 0]
        values = kept.unique()
        if values.numel() > 1 and (values.max() - values.min()) > 1e-3:
            judge.fail(
                "The values that are kept are not all multiplied by one number: on "
                f"ones they lie between {number(values.min())} and "
                f"{number(values.max())}. Is the mask made of 0 and 1?"
            )
        got = values[0]
        wrong = {
            1.0: "The kept values are not scaled up: they stay 1, expected 1.25 with "
            "p=0.2. Divide them by 1 - p, so that the mean stays.",
            0.8: "The kept values are multiplied by 1 - p: 0.8, expected 1.25 with "
            "p=0.2. Divide by 1 - p.",
            5.0: "The kept values are divided by p: 5, expected 1.25 with p=0.2. "
            "Divide by 1 - p, the share that is kept.",
            0.2: "The kept values are multiplied by p: 0.2, expected 1.25 with p=0.2. "
            "Divide by 1 - p, the share that is kept.",
            1.5625: "The kept values are divided by 1 - p twice: 1.562, expected 1.25.",
            1.2: "The kept values are multiplied by 1 + p: 1.2, expected 1.25. Divide "
            "by 1 - p.",
            2.0: "The kept values are doubled whatever p is: 2, expected 1.25 with "
            "p=0.2. Divide by 1 - p.",
            0.8**-0.5: "The kept values are divided by the root of 1 - p. That keeps "
            "the mean square; dropout keeps the mean: divide by 1 - p.",
        }
        if abs(got - 1.25) > 1e-3:
            text = next((t for v, t in wrong.items() if abs(got - v) < 1e-3), None)
            judge.fail(
                text or "The kept values have the wrong scale: 1 / (1 - p) is wanted.",
                [("p", "0.2"), ("expected", "1.25"), ("yours", number(got))],
            )
        y = drop(x.expand(50, 4), 0.5, True)
        odd = (y != 0) & ((y - 2 * x).abs() > 1e-3)
        if odd.any():
            row = int(odd.any(1).nonzero()[0])
            judge.fail(
                "A kept value has to be x / (1 - p), also where x is negative or not "
                "1.",
                [
                    ("x", numbers(x[0])),
                    ("expected", numbers(2 * x[0]) + "   or 0"),
                    ("yours", numbers(y[row])),
                ],
            )
    with judge.mechanism("p = 0 and p = 1"):
        judge.compare(
            drop(x, 0.0, True),
            x,
            (),
            fallback="With p=0 nothing is dropped.",
            x=x,
            p="0",
        )
        judge.compare(
            drop(x, 1.0, True),
            0 * x,
            (),
            fallback="With p=1 everything is dropped, and 1 / (1 - p) is infinite: "
            "zero times infinity is no number. Return zeros for p=1.",
            x=x,
            p="1",
        )
    for dtype in (torch.float16, torch.bfloat16, torch.float64):
        with judge.mechanism("the type of the output"):
            y = drop(x.to(dtype), 0.5, True)
            name, got = (str(t).removeprefix("torch.") for t in (dtype, y.dtype))
            if y.dtype != dtype:
                judge.fail(
                    f"The input is {name}, and your output is {got}: a mask or random "
                    "numbers of another type came in.",
                    [("expected", name), ("yours", got)],
                )
    with judge.mechanism("input that is not contiguous"):
        wide = torch.arange(1.0, 2001.0).reshape(50, 40).T
        y = drop(wide, 0.5, True)
        if not ((y == 0) | ((y - 2 * wide).abs() < 1e-2)).all():
            judge.fail("Kept values stand in other places than they came from.")
    with judge.mechanism("the gradient"):
        xs = torch.ones(50, 40).requires_grad_()
        y = drop(xs, 0.2, True)
        if not y.requires_grad:
            judge.fail(
                "No gradient passes your dropout. Something cuts it: `.detach()`, "
                "`.data`, `torch.tensor(...)` or `torch.no_grad()`."
            )
        (found,) = torch.autograd.grad(y.sum(), xs)
        if not close(found, y.detach(), 1e-4):
            judge.fail(
                "The gradient is not the mask: where a value is dropped it is 0, where "
                "it is kept 1 / (1 - p).",
                [("expected", numbers(y.detach()[0])), ("yours", numbers(found[0]))],
            )
    if drop.made:
        with judge.mechanism("train() and eval()"):
            module = drop.module(0.5)
            module.eval()
            judge.call(module, x)
            module.train()
            y = judge.tensor(judge.call(module, ones), ones.shape, what="your dropout")
            if not (y == 0).any():
                judge.fail("After eval() and then train() nothing is dropped any more.")


def _coins(judge: Judge, drop: _Drop, ones: Tensor):
    """Each value has a coin of its own, and each call new ones."""
    with judge.mechanism("a coin for each value"):
        y = drop(torch.ones(40, 30, 20), 0.5, True) != 0
        if y.all() or not y.any():  # that is judged next
            return
        for axis, what in ((2, "of a row"), (1, "of a column"), (0, "of the batch")):
            if (y == y.select(axis, 0).unsqueeze(axis)).all():
                judge.fail(
                    f"All values {what} are dropped together: the mask has too few "
                    "numbers. Draw one for each value, `torch.rand_like(x)`."
                )
        first = drop(torch.ones(1, 1, 20), 0.5, True)
        small = [drop(torch.ones(1, 1, 20), 0.5, True) for _ in range(3)]
        if all(torch.equal(first, s) for s in small):
            judge.fail(
                "Every call drops the same values. New coins are tossed for each call: "
                "no `torch.manual_seed` inside, and no mask kept from before."
            )
        if drop.made:
            module = drop.module(0.5).train()
            calls = [judge.call(module, torch.ones(1, 1, 20)) for _ in range(4)]
            if all(torch.equal(calls[0], c) for c in calls):
                judge.fail(
                    "One module drops the same values in every call: the mask is drawn "
                    "in `__init__`. Draw it in `forward`."
                )
        state = torch.get_rng_state()
        again = [drop(torch.ones(1, 1, 20), 0.5, True)]
        torch.set_rng_state(state)
        again.append(drop(torch.ones(1, 1, 20), 0.5, True))
        if not torch.equal(*again):
            judge.notes.append(
                "Your random numbers are not torch's: `torch.manual_seed` does not "
                "repeat them."
            )


# The exercises of chapter 9 -----------------------------------------------------------


@judged("drop_connect")
def drop_connect(judge: Judge, answer):
    """Judge `drop_connect(linear, x, p, training)`: entries of the weight are dropped.

    Args:
        answer: a function that returns the output of `linear` with a weight thinned
            out, and the bias in full.
    """
    signature = "drop_connect(linear, x, p, training)"
    answers.wants(judge, answer, signature, classes=False)
    linear = nn.Linear(6, 3)
    generator = torch.Generator().manual_seed(41)
    with torch.no_grad():
        linear.weight.copy_(torch.randn(3, 6, generator=generator))
        linear.bias.copy_(torch.tensor([10.0, 20.0, 30.0]))
    x = torch.randn(2, 4, 6, generator=generator)
    weight, bias = linear.weight.detach().clone(), linear.bias.detach().clone()

    def run(x: Tensor, training: bool, p: float = 0.5) -> Tensor:
        value = answers.invoke(
            judge, answer, signature, linear=linear, x=x, p=p, training=training
        )
        if not (torch.equal(linear.weight, weight) and torch.equal(linear.bias, bias)):
            judge.fail(
                "The layer's own weight was changed, for good: drop entries of a copy "
                "and use `F.linear(x, copy, linear.bias)`.",
                (),
                "the layer is left alone",
            )
        return judge.tensor(value, (*x.shape[:-1], 3), what="your function").detach()

    with torch.no_grad():
        right = F.linear(x, weight, bias)
        with judge.mechanism("evaluation"):
            judge.compare(
                run(x, False),
                right,
                [("The bias is missing.", F.linear(x, weight))],
                fallback="In evaluation the output is that of `linear`.",
                x=x,
            )
        with judge.mechanism("the bias stays"):
            zero = torch.zeros(1, 6)
            for _ in range(8):
                judge.compare(
                    run(zero, True),
                    bias[None],
                    [
                        ("The bias is missing.", 0 * bias[None]),
                        ("The bias is scaled: only the weight is.", 2 * bias[None]),
                    ],
                    fallback="For x = 0 only the bias is left; it is not dropped.",
                    x=zero,
                )
        with judge.mechanism("what is dropped"):
            eye = torch.eye(6)
            draws = torch.stack([run(eye, True, 0.25) - bias for _ in range(60)])
            share = (draws.abs() < 1e-4).float().mean().item()
            kept = (draws / weight.T)[draws.abs() >= 1e-4]
            same_column = (
                (draws.abs() < 1e-4).all(1) | (draws.abs() > 1e-4).all(1)
            ).all()
            same_row = ((draws.abs() < 1e-4).all(2) | (draws.abs() > 1e-4).all(2)).all()
            rows = [("p", "0.25"), ("dropped", f"{share:.2f}")]
            if share < 0.01:
                judge.fail("In training no entry of the weight is dropped.", rows)
            if same_row:
                judge.fail(
                    "Whole inputs are dropped: that is dropout on x. Here single "
                    "entries of the weight are dropped.",
                    rows,
                )
            if same_column:
                judge.fail(
                    "Whole outputs are dropped: that is dropout on the output. Here "
                    "single entries of the weight are dropped.",
                    rows,
                )
            if abs(share - 0.25) > 0.08:
                judge.fail("p is the share of entries that is dropped.", rows)
            if (kept - 4 / 3).abs().max() > 1e-3:
                judge.fail(
                    "The entries that are kept are divided by 1 - p.",
                    [("expected", "1.333"), ("yours", number(kept[0]))],
                )
        with judge.mechanism("one weight for all tokens of a call"):
            same = torch.ones(1, 5, 6)
            outputs = run(same, True)[0]
            if not close(outputs, outputs[:1].expand_as(outputs), 1e-4):
                judge.fail(
                    "Equal tokens of one call get different outputs. One weight is "
                    "drawn for a call, and all tokens share it; dropout on x or on the "
                    "output tosses for each token."
                )


@judged("StochasticDepth")
def stochastic_depth(judge: Judge, answer):
    """Judge `class StochasticDepth(nn.Module)` with `StochasticDepth(branch, p)`.

    Args:
        answer: a class whose objects return x + branch(x) / (1 - p), or x bit for bit
            with probability p, for each sample; in evaluation x + branch(x).
    """
    signature = "StochasticDepth(branch, p)"
    answers.wants(judge, answer, signature, plain=False)
    generator = torch.Generator().manual_seed(42)
    branch = nn.Linear(4, 4)
    x = torch.randn(400, 3, 4, generator=generator)

    def run(x: Tensor, p: float, training: bool) -> Tensor:
        module = answers.build(judge, answer, signature, branch=branch, p=p).train(
            training
        )
        given = f"x: {answers._text(x)}, p={p}, training={training}"
        value = judge.call(module, x, given=given)
        return judge.tensor(value, x.shape, what="your layer").detach()

    with torch.no_grad():
        f = branch(x)
        with judge.mechanism("evaluation"):
            judge.compare(
                run(x, 0.2, False),
                x + f,
                [
                    (
                        "In evaluation the branch is scaled by 1 - p; it is added in "
                        "full.",
                        x + 0.8 * f,
                    ),
                    (
                        "In evaluation the branch is still divided by 1 - p.",
                        x + f / 0.8,
                    ),
                    ("In evaluation the branch is left out.", x),
                    ("The residual is missing.", f),
                ],
                fallback="In evaluation the layer is x + branch(x).",
                x=x,
            )
        with judge.mechanism("whole samples are skipped"):
            y = run(x, 0.2, True)
            skipped = (y == x).flatten(1).all(1)
            share = skipped.float().mean().item()
            rows = [("p", "0.2"), ("skipped samples", f"{share:.2f}")]
            if share == 0 and ((y - x).abs() < 1e-6).float().mean() > 0.1:
                judge.fail(
                    "Single values of the branch are dropped. Here one coin decides "
                    "for a whole sample: drop a tensor of ones of shape (B, 1, 1).",
                    rows,
                )
            if share in (0.0, 1.0):
                first = [run(x, 0.2, True) for _ in range(30)]
                all_at_once = {bool((t == x).all()) for t in first} == {True, False}
                judge.fail(
                    "One coin decides for the whole batch; each sample has its own."
                    if all_at_once
                    else "No sample is skipped bit for bit in training."
                    if share == 0
                    else "Every sample is skipped in training.",
                    rows,
                )
            if abs(share - 0.2) > 0.08:
                why = (
                    " The coin is the wrong way round."
                    if abs(share - 0.8) < 0.08
                    else ""
                )
                judge.fail(
                    f"p is the share of samples that skip the branch.{why}", rows
                )
        with judge.mechanism("the others add more"):
            keep = ~skipped
            judge.compare(
                y[keep],
                (x + f / 0.8)[keep],
                [
                    (
                        "The branch is not divided by 1 - p where it is added.",
                        (x + f)[keep],
                    ),
                    (
                        "The whole sum is divided by 1 - p; only the branch is.",
                        ((x + f) / 0.8)[keep],
                    ),
                    ("The branch is multiplied by 1 - p; divide.", (x + 0.8 * f)[keep]),
                    ("The residual is missing.", (f / 0.8)[keep]),
                ],
                x=x[keep],
                **{"f(x)": f[keep]},
            )
        with judge.mechanism("two dimensions"):
            flat = x[:, 0]
            y = run(flat, 0.5, True)
            skipped = (y == flat).all(1)
            judge.compare(
                y[~skipped],
                (flat + 2 * branch(flat))[~skipped],
                (),
                1e-3,
                x=flat[~skipped],
            )
