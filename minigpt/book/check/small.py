"""Checks of chapters 1, 4, 11, 12 and 13: exercises of a few lines."""

import math
from collections.abc import Callable
from itertools import pairwise, product

import torch
from torch import Tensor

from minigpt.book.check import answer as answers
from minigpt.book.check.judge import Judge, judged, number

__all__ = [
    "crop",
    "encode_word",
    "flattery",
    "gain",
    "hold",
    "sees_the_future",
    "sign_flips",
]


@judged("encode_word")
def encode_word(judge: Judge, answer):
    """Judge `encode_word(word, ranks)`: the byte pairs of lowest rank are joined first.

    Args:
        answer: a function of a text and of a dict from bytes to rank that returns the
            ids, a list of int.
    """
    signature = "encode_word(word, ranks)"
    answers.wants(judge, answer, signature, classes=False)
    ranks = {bytes([b]): b for b in range(256)}
    for piece in (b"bc", b"ab", b"cd", b"aa", b"aaa", b"pqr", b"\xc3\xa9"):
        ranks[piece] = len(ranks)  # bc before ab and cd; no two parts make pqr

    def right(word: str, key=min) -> list[int]:
        parts = [bytes([b]) for b in word.encode()]
        while len(parts) > 1:
            joined = [a + b for a, b in pairwise(parts)]
            known = [i for i, j in enumerate(joined) if j in ranks]
            if not known:
                break
            at = key(known, key=lambda i: ranks[joined[i]])
            parts[at : at + 2] = [joined[at]]
        return [ranks[p] for p in parts]

    def longest(word: str) -> list[int]:
        data, ids = word.encode(), []
        while data:
            n = next(n for n in range(len(data), 0, -1) if data[:n] in ranks)
            ids.append(ranks[data[:n]])
            data = data[n:]
        return ids

    def once(word: str) -> list[int]:
        parts = [bytes([b]) for b in word.encode()]
        joined = [a + b for a, b in pairwise(parts)]
        known = [i for i, j in enumerate(joined) if j in ranks]
        if known:
            at = min(known, key=lambda i: ranks[joined[i]])
            parts[at : at + 2] = [joined[at]]
        return [ranks[p] for p in parts]

    def first(word: str) -> list[int]:
        return right(word, key=lambda known, key: known[0])

    cases = {
        "a single byte": ["x", "a"],
        "one pair": ["ab", "bc"],
        "the lowest rank first": ["pqr", "bcd", "abc", "abcd"],
        "again and again": ["aaa", "aaaaaa", "xaby"],
        "bytes, not letters": ["é", "né", "한"],
    }
    for name, words in cases.items():
        with judge.mechanism(name):
            for word in words:
                found = answers.invoke(judge, answer, signature, word=word, ranks=ranks)
                expected = right(word)
                if isinstance(found, (tuple, Tensor)):
                    found = list(found)
                rows = [
                    ("word", repr(word)),
                    ("expected", str(expected)),
                    ("yours", str(found)[:60]),
                ]
                if not isinstance(found, list):
                    judge.fail(
                        "A list of numbers is wanted, the ids of the parts.", rows
                    )
                found = [
                    f.item() if isinstance(f, Tensor) and f.numel() == 1 else f
                    for f in found
                ]
                if any(isinstance(f, bytes) for f in found):
                    judge.fail(
                        "The parts came back; their ids `ranks[part]` are wanted.", rows
                    )
                if not all(isinstance(f, int) for f in found):
                    judge.fail("The list is to hold whole numbers, the ids.", rows)
                if found == expected:
                    continue
                if found == list(word.encode()):
                    text = "Nothing is joined."
                elif found == [ord(c) for c in word]:
                    text = (
                        "Letters were taken apart; it begins with bytes, "
                        "`word.encode()`."
                    )
                elif found == first(word):
                    text = (
                        "The first known pair from the left is joined; the one of "
                        "lowest rank is wanted."
                    )
                elif found == longest(word):
                    text = (
                        "The longest known piece is taken from the left. The pair of "
                        "*lowest rank* is joined first: it was learned first."
                    )
                elif found == right(word, key=max):
                    text = (
                        "The pair of the highest rank is joined; the lowest is wanted."
                    )
                elif found == once(word):
                    text = (
                        "One pair is joined, and then it ends: go on until no "
                        "neighbours are a known piece."
                    )
                else:
                    text = "The ids are not those of byte-pair encoding."
                judge.fail(text, rows)


@judged("gain")
def gain(judge: Judge, answer):
    """Judge `gain(bend)`: the g that keeps the mean square of a standard normal input.

    Args:
        answer: a function of a bend, such as `torch.relu`, that returns a number.
    """
    answers.wants(judge, answer, "gain(bend)", classes=False)
    z = torch.linspace(-12, 12, 24001, dtype=torch.float64)
    density = torch.exp(-z.square() / 2) / math.sqrt(2 * math.pi)

    def mean(values: Tensor) -> float:
        return float((values * density).sum() * (z[1] - z[0]))

    bends = {
        "ReLU": torch.relu,
        "no bend": lambda t: 1.0 * t,
        "tanh": torch.tanh,
        "GELU": torch.nn.functional.gelu,
        "a square": torch.square,
    }
    for name, bend in bends.items():
        kept = mean(bend(z).square())
        variance = kept - mean(bend(z)) ** 2
        right = kept**-0.5
        with judge.mechanism(name):
            found = judge.call(answer, bend, given=name)
            if found is None:
                judge.fail("Your function returns None. Is a `return` missing?")
            try:
                found = float(found)
            except (TypeError, ValueError, RuntimeError):
                judge.fail("One number is wanted.", [("yours", str(found)[:60])])
            if abs(found - right) < 0.01 * right:
                continue
            known = [
                (
                    1 / kept,
                    "That is the factor on the variance; the gain is its square root.",
                ),
                (
                    kept**0.5,
                    "That is upside down: the gain makes up for what the bend loses.",
                ),
                (
                    kept,
                    "That is what the bend keeps of the mean square. The gain is one "
                    "over its root.",
                ),
                (
                    variance**-0.5 if variance > 0 else math.nan,
                    "That keeps the *variance*, with the mean taken off. The next "
                    "layer sees the mean as well: the mean square is to be kept.",
                ),
                (
                    1 / mean(bend(z).abs()),
                    "That keeps the mean absolute value; the mean square is wanted.",
                ),
                (
                    mean(_slope(bend, z).square()) ** -0.5,
                    "That keeps the size of the gradient (the slope's mean square); "
                    "the signal's is wanted.",
                ),
                (
                    2**0.5,
                    "The root of 2 is right for ReLU alone; the bend is not used.",
                ),
            ]
            text = next(
                (t for v, t in known if abs(found - v) < 0.01 * v),
                "That is not the gain for this bend.",
            )
            judge.fail(
                text,
                [("bend", name), ("expected", number(right)), ("yours", number(found))],
            )


def _slope(bend: Callable[[Tensor], Tensor], z: Tensor) -> Tensor:
    leaf = z.clone().requires_grad_()
    return torch.autograd.grad(bend(leaf).sum(), leaf)[0]


@judged("crop")
def crop(judge: Judge, answer):
    """Judge `crop(model, context)`: a new GPT with fewer rows of positions.

    Args:
        answer: a function of a `minigpt.gpt.GPT` and a context no longer than its own
            (else ValueError that names both) that returns another GPT.
    """
    from minigpt.gpt import GPT, GPTConfig

    signature = "crop(model, context)"
    answers.wants(judge, answer, signature, classes=False)
    torch.manual_seed(0)
    sizes = {"vocab_size": 11, "context": 12, "n_layers": 2, "n_heads": 2, "d_model": 8}
    model = GPT(GPTConfig(**sizes)).eval()
    before = {n: p.detach().clone() for n, p in model.named_parameters()}

    def run(context: int):
        shorter = answers.invoke(judge, answer, signature, model=model, context=context)
        if any(
            not torch.equal(p, before.get(n, p + 1))
            for n, p in model.named_parameters()
        ):
            judge.fail(
                "The given model was changed; a new one is wanted.", (), "a new model"
            )
        return shorter

    with judge.mechanism("a new model"):
        shorter = run(5)
        if shorter is model:
            judge.fail("The given model came back; a new one is wanted.")
        # By its parts: the chapter's notebook defines a class GPT of its own.
        parts = shorter.state_dict() if isinstance(shorter, torch.nn.Module) else ()
        if set(parts) != set(model.state_dict()) or not hasattr(shorter, "config"):
            judge.fail(f"A GPT is wanted, and {type(shorter).__name__} came.")
    with judge.mechanism("its size"):
        rows = shorter.pos_emb.weight.shape[0]
        if shorter.config.context != 5 or rows != 5:
            judge.fail(
                "The new model's `config.context` and its position table have to be as "
                "long as asked.",
                [
                    ("expected", "context 5, 5 rows"),
                    ("yours", f"context {shorter.config.context}, {rows} rows"),
                ],
            )
    with judge.mechanism("the same logits"), torch.no_grad():
        ids = torch.tensor([[1, 7, 3, 0, 10]])
        y = judge.tensor(
            judge.call(shorter.eval(), ids), (1, 5, 11), what="the new model"
        )
        table = model.pos_emb.weight
        if not torch.equal(shorter.pos_emb.weight, table[:5]):
            last = torch.equal(shorter.pos_emb.weight, table[-5:])
            judge.fail(
                "The last rows of the position table were kept; the first are wanted, "
                "as every text begins at position 0."
                if last
                else "The position table does not hold the old model's first rows."
            )
        judge.compare(y, model(ids), (), 1e-5, "Are all other weights copied?")
    with judge.mechanism("weights of its own"):
        if any(
            a.data_ptr() == b.data_ptr()
            for a, b in zip(shorter.parameters(), model.parameters())
        ):
            judge.fail(
                "The two models share weights: training one would change the other."
            )
    with judge.mechanism("the same length"):
        run(12)
    with judge.mechanism("a longer context is refused"):
        positional, keywords = answers.place(
            judge, answer, signature, {"model": model, "context": 20}
        )
        try:
            answer(*positional, **keywords)
        except ValueError as error:
            if "20" not in str(error) or "12" not in str(error):
                judge.fail(
                    "Your error does not name both lengths, 20 and 12.",
                    [("yours", str(error)[:80])],
                )
        except Exception as error:
            judge.fail(
                "A longer context has to be refused with a ValueError that names both "
                f"lengths; a {type(error).__name__} came from inside.",
            )
        else:
            judge.fail(
                "A longer context is accepted, and nobody has trained its rows: raise "
                "a ValueError that names both lengths."
            )


@judged("hold")
def hold(judge: Judge, answer):
    """Judge `hold(done)`: 0 until four fifths of the time, then a straight line to 1.

    Args:
        answer: a function of the share of the time that is over, 0 to 1, that returns
            how far the learning rate has fallen, 0 to 1.
    """
    answers.wants(judge, answer, "hold(done)", classes=False)
    stages = {
        "the two ends": (0.0, 1.0),
        "the flat part": (0.1, 0.5, 0.79, 0.8),
        "the fall": (0.85, 0.9, 0.95),
    }

    def right(done: float) -> float:
        return max(0.0, (done - 0.8) / 0.2)

    for name, points in stages.items():
        with judge.mechanism(name):
            for done in points:
                found = judge.call(answer, done, given=f"done={done}")
                if found is None:
                    judge.fail("Your function returns None. Is a `return` missing?")
                if isinstance(found, Tensor) and found.numel() == 1:
                    found = found.item()
                if isinstance(found, bool) or not isinstance(found, (int, float)):
                    judge.fail("One number is wanted.", [("yours", str(found)[:60])])
                found, wanted = float(found), right(done)
                if abs(found - wanted) < 1e-6:
                    continue
                if abs(found - (1 - wanted)) < 1e-6:
                    text = (
                        "That is what is left of the rate; how far it has *fallen* is "
                        "wanted: 0 at the start, 1 at the end."
                    )
                elif abs(found - done) < 1e-6:
                    text = (
                        "That falls in a straight line from the start; the first 80 "
                        "per cent are flat."
                    )
                elif found < 0:
                    text = "Below zero: the flat part needs `max(0, ...)`."
                elif abs(found - max(0.0, done - 0.8)) < 1e-6:
                    text = (
                        "The fall does not reach 1: 0.2 of the time is left for it, so "
                        "divide by 0.2."
                    )
                elif done > 0.8 and found in (0.0, 1.0):
                    text = "A jump; a straight line from 0 to 1 is wanted."
                else:
                    text = "That is another curve."
                judge.fail(
                    text,
                    [
                        ("done", str(done)),
                        ("expected", number(wanted)),
                        ("yours", number(found)),
                    ],
                )


@judged("sees_the_future")
def sees_the_future(judge: Judge, answer):
    """Judge `sees_the_future(shift)`: whether a `TokenShift` lets a later token in.

    Args:
        answer: a function of a fresh module of width 32, called with (B, T, 32), that
            returns True or False. It may change the module.
    """
    from minigpt.gpt import TokenShift
    from minigpt.layernorm import LayerNorm

    class Leaky(TokenShift):
        def forward(self, x, before=None):
            h = self.norm(x)
            before = torch.zeros_like(h[:, :1]) if before is None else before
            return h + self.mix * torch.cat((h[:, 1:], before), dim=1)

    answers.wants(judge, answer, "sees_the_future(shift)", classes=False)
    stages = (
        ("the right shift", TokenShift, False),
        ("the leaking shift", Leaky, True),
    )
    for name, kind, right in stages:
        with judge.mechanism(name):
            for _ in range(3):
                shift = kind(LayerNorm(32), 32)
                found = judge.call(answer, shift, given=f"{name}, width 32")
                if isinstance(found, Tensor) and found.numel() == 1:
                    found = found.item()
                if not isinstance(found, bool):
                    judge.fail("True or False is wanted.", [("yours", str(found)[:60])])
                if found == right:
                    continue
                if right:
                    judge.fail(
                        "The leak is not found. `mix` begins at zero, and then no "
                        "other token has a share: give it another value first. Then "
                        "change the last token, and look at the outputs before it."
                    )
                judge.fail(
                    "The right shift is accused. A token's own output may change with "
                    "it: change the last token, and compare the outputs of the "
                    "*earlier* ones only."
                )


@judged("sign_flips")
def sign_flips(judge: Judge, answer):
    """Judge `sign_flips(values)`: the share of sign patterns that are as far from zero.

    Args:
        answer: a function of a list of numbers that returns a share, 0 to 1: of all
            patterns of signs, those whose sum is as far from 0 as the sum found.
    """
    signature = "sign_flips(values)"
    answers.wants(judge, answer, signature, classes=False)

    def sums(values: list[float]) -> list[float]:
        patterns = product((-1, 1), repeat=len(values))
        return [sum(s * v for s, v in zip(signs, values)) for signs in patterns]

    cases = {
        "all of one sign": [1.0, 2.0, 3.0, 4.0, 5.0],
        "mixed signs": [3.0, 1.0, -2.0, 4.0],
        "a sum below zero": [-3.0, -1.0, 2.0],
        "a sum of zero": [1.0, -1.0],
        "sums that differ by rounding": [0.1, 0.2, -0.3, 0.4],
    }
    for name, values in cases.items():
        with judge.mechanism(name):
            found = judge.call(answer, list(values), given=f"values: {values}")
            if isinstance(found, Tensor) and found.numel() == 1:
                found = found.item()
            if isinstance(found, bool) or not isinstance(found, (int, float)):
                judge.fail("One number is wanted.", [("yours", str(found)[:60])])
            total, every = sum(values), sums(values)
            far, n = [abs(s) for s in every], len(every)
            right = sum(s >= abs(total) - 1e-12 for s in far) / n
            if abs(found - right) < 1e-9:
                continue
            count = right * n
            known = [
                (
                    sum(s >= abs(total) for s in far) / n,
                    "Sums that should be equal differ in the last digit: compare with "
                    "a tolerance, `>= found - 1e-12`.",
                ),
                (
                    sum(s >= total - 1e-12 for s in every) / n,
                    "One side only is counted. As far from zero on either side counts: "
                    "compare absolute values.",
                ),
                (
                    sum(s > abs(total) + 1e-12 for s in far) / n,
                    "Only sums that are further away are counted. As far counts, too: "
                    "the pattern that was found is one of them.",
                ),
                (count, "That is a count; the share is wanted, of all patterns."),
                (100 * right, "That is in per cent; a share of 1 is wanted."),
                (1 - right, "That is the share of the others."),
            ]
            text = next((t for v, t in known if abs(found - v) < 1e-9), "")
            judge.fail(
                text or "That is not the share of the sign patterns.",
                [
                    ("values", str(values)),
                    ("expected", number(right)),
                    ("yours", number(found)),
                ],
            )


@judged("flattery")
def flattery(judge: Judge, answer):
    """Judge `flattery(n)`: how far the best of n equal runs lies below the truth.

    Args:
        answer: a function of n that returns the mean, over many simulations, of how far
            the smallest of n standard normal numbers lies below 0; positive.
    """
    answers.wants(judge, answer, "flattery(n)", classes=False)
    expected = {1: 0.0, 2: 0.5642, 8: 1.4236, 32: 2.0697}
    for n, right in expected.items():
        with judge.mechanism(f"n = {n}"):
            found = judge.call(answer, n, given=f"n={n}")
            if isinstance(found, Tensor) and found.numel() == 1:
                found = found.item()
            if isinstance(found, bool) or not isinstance(found, (int, float)):
                judge.fail("One number is wanted.", [("yours", str(found)[:60])])
            if abs(found - right) < 0.06:
                continue
            if abs(found + right) < 0.06:
                text = "The sign: a positive number says how far *below* it lies."
            elif n == 1 and abs(found - 0.8) < 0.05:
                text = (
                    "Absolute values are taken before the mean: with n = 1, luck is as "
                    "often bad as good."
                )
            elif n > 1 and abs(found) < 0.06:
                text = "That is the mean of the runs; the best of them is wanted."
            else:
                text = (
                    "That is another mean. Draw n numbers, take the best, and do so "
                    "many times: a few hundred times is not enough for two digits."
                )
            judge.fail(
                text,
                [
                    ("n", str(n)),
                    ("expected", f"{right:.2f}"),
                    ("yours", f"{found:.2f}"),
                ],
            )
