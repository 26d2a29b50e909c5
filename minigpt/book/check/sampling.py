"""Checks of chapter 14: which tokens may be drawn, and the draw itself."""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from minigpt.book.check import answer as answers
from minigpt.book.check.judge import Judge, close, judged, numbers

__all__ = ["filter_logits", "sample", "top_k", "top_p"]

_ROWS = 2000  # draws from one row: shares are good to about 0.03


def _log(*probabilities: float) -> Tensor:
    return torch.tensor(probabilities).log()


# Which tokens are kept ----------------------------------------------------------------


def _kept_by_k(logits: Tensor, k: int) -> Tensor:
    best = logits.topk(min(k, logits.shape[-1]), dim=-1).indices
    return torch.zeros_like(logits, dtype=torch.bool).scatter(-1, best, True)


def _kept_by_p(logits: Tensor, p: float) -> Tensor:
    """The smallest set whose mass reaches p; the best token always."""
    probabilities, order = logits.double().softmax(-1).sort(-1, descending=True)
    before = probabilities.cumsum(-1) - probabilities
    keep = before < p - 1e-9  # the inputs here are binary fractions
    keep[..., 0] = True
    if p >= 1:
        keep[:] = True
    return torch.zeros_like(keep).scatter(-1, order, keep)


class _Filter:
    """The reader's filter: logits in, logits out, minus infinity where one is taken."""

    def __init__(self, judge: Judge, run: Callable[[Tensor], object]):
        self.judge, self.run = judge, run

    def __call__(self, logits: Tensor, **rows) -> Tensor:
        """The kept tokens as a mask; the kept logits are checked on the way."""
        judge = self.judge
        y = judge.tensor(self.run(logits), logits.shape, what="your function").detach()
        if (y.isnan() | (y == math.inf)).any():
            judge.fail(
                "Your output has nan or plus infinity in it.", self._rows(logits, y)
            )
        kept = y > -1e4
        sums = y.sum(-1)
        if (
            (y >= 0).all() and close(sums, torch.ones_like(sums), 1e-3)
        ) and logits.min() < 0:
            judge.fail(
                "Probabilities came back, and logits are wanted: leave the softmax to "
                "the caller, and set what is taken away to minus infinity.",
                self._rows(logits, y),
            )
        changed = kept & ((y - logits).abs() > 1e-4)
        if changed.any():
            zero = changed & (y == 0)
            text = (
                "Tokens that are taken away get the logit 0, and the softmax gives e "
                "to the 0 a share. Set them to minus infinity."
                if torch.equal(zero, changed)
                else "Logits that are kept have to stay as they are, in their places."
            )
            judge.fail(text, self._rows(logits, y))
        return kept

    @staticmethod
    def _rows(logits: Tensor, y: Tensor) -> list:
        wrong = (y - logits).abs().nan_to_num(9.0, 9.0, 9.0).reshape(-1, y.shape[-1])
        at = int(wrong.amax(-1).argmax())
        return [
            ("logits", numbers(logits.reshape(-1, y.shape[-1])[at])),
            ("yours", numbers(y.reshape(-1, y.shape[-1])[at])),
        ]


def _which(kept: Tensor) -> str:
    places = kept.nonzero().flatten().tolist()
    return "tokens " + ", ".join(map(str, places)) if places else "no token"


def _same(
    judge: Judge, kept: Tensor, right: Tensor, mistakes: list, logits: Tensor, **given
):
    """Compare sets of kept tokens, row by row, and name the mistake that fits all."""
    wrong_rows = (kept != right).any(-1).nonzero().flatten()
    if not len(wrong_rows):
        return
    at = int(wrong_rows[0])
    rows = [
        ("probabilities", numbers(logits[at].softmax(-1))),
        *((name, str(value)) for name, value in given.items()),
        ("expected", f"{_which(right[at])} kept"),
        ("yours", f"{_which(kept[at])} kept"),
    ]
    for sentence, wrong in mistakes:
        if torch.equal(kept, wrong) and not torch.equal(wrong, right):
            judge.fail(sentence, rows)
    more, less = (kept & ~right).any(), (right & ~kept).any()
    text = "Other tokens are kept than should be."
    if more and not less:
        text = "Too many tokens are kept."
    if less and not more:
        text = "Too few tokens are kept."
    judge.fail(text, rows)


_THREE = torch.stack(  # three rows, the best token in another place in each
    [
        _log(0.25, 0.5, 0.125, 0.0625, 0.0625),
        _log(0.0625, 0.125, 0.0625, 0.5, 0.25) + 3.0,
        _log(0.5, 0.0625, 0.25, 0.0625, 0.125) - 1.0,
    ]
)


def _judge_k(judge: Judge, run: Callable[[Tensor, int], object]):
    """All mechanisms of top-k."""
    logits = _THREE

    def kept(logits: Tensor, k: int) -> Tensor:
        return _Filter(judge, lambda t: run(t, k))(logits)

    with judge.mechanism("shape"):
        kept(logits, 2)
    with judge.mechanism("the k largest stay"):
        row = logits[:1]
        order = row.argsort(-1, descending=True)

        def places(lower: int, upper: int) -> Tensor:
            return torch.zeros_like(row, dtype=torch.bool).scatter(
                -1, order[:, lower:upper], True
            )

        first = torch.tensor([[True, True, False, False, False]])
        _same(
            judge,
            kept(row, 3),
            places(0, 3),
            [
                ("The smallest are kept; the largest should be.", ~places(0, 2)),
                ("The largest are taken away; they should stay.", ~places(0, 3)),
                ("One token too few is kept: k - 1.", places(0, 2)),
                ("One token too many is kept: k + 1.", places(0, 4)),
                ("Nothing is taken away.", places(0, 5)),
                ("Everything is taken away.", places(0, 0)),
                (
                    "The first places are kept, whatever stands there: those are "
                    "indices "
                    "of the sorted row.",
                    first | torch.tensor([[0, 0, 1, 0, 0]]).bool(),
                ),
                ("Only the best token is kept.", places(0, 1)),
                (
                    "The token at the threshold is taken away: compare with `<`, not "
                    "`<=`.",
                    places(0, 2),
                ),
            ],
            row,
            k=3,
        )
    with judge.mechanism("each row by itself"):
        whole = logits >= logits.flatten().topk(2).values[-1]
        first = logits >= logits[0].topk(2).values[-1]
        _same(
            judge,
            kept(logits, 2),
            _kept_by_k(logits, 2),
            [
                (
                    "The k largest of the whole batch are kept; each row has its own.",
                    whole,
                ),
                ("The threshold of the first row is used for all rows.", first),
                (
                    "The places of the first row are used for all rows.",
                    _kept_by_k(logits[:1], 2).expand_as(logits),
                ),
            ],
            logits,
            k=2,
        )
    with judge.mechanism("ties"):
        tied = _log(0.125, 0.25, 0.25, 0.25, 0.125)[None]
        y = kept(tied, 2)
        rows = [
            ("probabilities", numbers(tied[0].softmax(-1))),
            ("k", "2"),
            ("expected", "2 kept, any of tokens 1, 2, 3"),
            ("yours", f"{_which(y[0])} kept"),
        ]
        if int(y.sum()) == 3:
            judge.fail(
                "Ties are kept beyond k: three tokens stand level at the threshold and "
                "all stay, so 3 are kept for k=2. Keep the k *places* that `topk` "
                "returns, not all that reach its last value.",
                rows,
            )
        if int(y.sum()) != 2 or y[0, 0] or y[0, 4]:
            judge.fail("Where tokens stand level, still exactly k are kept.", rows)
    with judge.mechanism("k at its limits"):
        for k in (1, 5, 50):
            y = kept(logits, k)
            _same(judge, y, _kept_by_k(logits, k), [], logits, k=k)


def _judge_p(judge: Judge, run: Callable[[Tensor, float], object]):
    """All mechanisms of top-p."""
    logits = _THREE

    def kept(logits: Tensor, p: float) -> Tensor:
        return _Filter(judge, lambda t: run(t, p))(logits)

    with judge.mechanism("shape"):
        kept(logits, 0.9)
    row = _log(0.125, 0.5, 0.25, 0.0625, 0.0625)[None]
    order = row.argsort(-1, descending=True)

    def best(n: int) -> Tensor:
        return torch.zeros_like(row, dtype=torch.bool).scatter(-1, order[:, :n], True)

    def unsorted(p: float) -> Tensor:
        mass = row.softmax(-1)
        return mass.cumsum(-1) - mass < p

    with judge.mechanism("the best token always stays"):
        _same(
            judge,
            kept(row, 0.3),
            best(1),
            [
                (
                    "The first token is dropped: its probability 0.5 is above "
                    "p=0.3, so "
                    "nothing at all is left to draw from. The token that crosses p "
                    "stays; compare the mass *before* it with p.",
                    best(0),
                ),
                (
                    "Everything but the best token stays: the mask is the wrong "
                    "way round.",
                    ~best(1),
                ),
                ("Nothing is taken away.", best(5)),
                ("The rarest tokens are kept: sort with `descending=True`.", ~best(3)),
                ("The rarest tokens are kept: sort with `descending=True`.", ~best(2)),
            ],
            row,
            p=0.3,
        )
    with judge.mechanism("the token that crosses p"):
        _same(
            judge,
            kept(row, 0.8),
            best(3),
            [
                (
                    "The token that crosses p is dropped: 0.5 + 0.25 is below 0.8, so "
                    "one more is needed to reach it.",
                    best(2),
                ),
                ("One token too many is kept.", best(4)),
                (
                    "The mass is summed in the order of the vocabulary, without "
                    "sorting.",
                    unsorted(0.8),
                ),
                (
                    "The mask of the sorted row is used for the row itself: it has to "
                    "go back to the places that the tokens came from (`scatter`).",
                    torch.tensor([[True, True, True, False, False]]),
                ),
                (
                    "Single probabilities are compared with p or 1 - p; their sum is.",
                    row.softmax(-1) > 0.2,
                ),
                ("Only the best token is kept.", best(1)),
                ("Nothing is taken away.", best(5)),
                ("Everything is taken away.", best(0)),
                ("The rarest tokens are kept: sort with `descending=True`.", ~best(1)),
                ("The rarest tokens are kept: sort with `descending=True`.", ~best(0)),
            ],
            row,
            p=0.8,
        )
    with judge.mechanism("p reached exactly"):
        level = torch.zeros(1, 4)  # the softmax is 1/4 each, without any rounding
        for p, right in ((0.25, 1), (0.5, 2), (0.75, 3)):
            mine = kept(level, p)
            rows = [
                ("probabilities", "0.25  0.25  0.25  0.25"),
                ("p", str(p)),
                ("expected", f"{right} kept"),
                ("yours", f"{int(mine.sum())} kept"),
            ]
            if int(mine.sum()) == right + 1:
                judge.fail(
                    f"{right} tokens reach p={p} exactly, and one more is kept. The "
                    "smallest set whose mass *reaches* p is wanted: keep where the "
                    "mass before a token is below p, `<`, not `<=`.",
                    rows,
                )
            if int(mine.sum()) > right:
                judge.fail(
                    "Ties are all kept: tokens are compared with the probability of "
                    "the last one kept. Keep places, as many as it takes.",
                    rows,
                )
            if int(mine.sum()) != right:
                judge.fail("The mass that is kept does not reach p.", rows)
    with judge.mechanism("each row by itself"):
        mass = logits.softmax(-1)
        _same(
            judge,
            kept(logits, 0.7),
            _kept_by_p(logits, 0.7),
            [
                (
                    "The places of the first row are used for all rows.",
                    _kept_by_p(logits[:1], 0.7).expand_as(logits),
                ),
                (
                    "The mask of the sorted rows is used without going back to the "
                    "places "
                    "that the tokens came from (`scatter`).",
                    torch.tensor([[True, True, False, False, False]] * 3),
                ),
                (
                    "The mass is summed over the whole batch; each row has its own.",
                    _kept_by_p(mass.flatten().log()[None], 0.7).reshape_as(mass),
                ),
            ],
            logits,
            p=0.7,
        )
    with judge.mechanism("p at its limits"):
        for p in (0.0, 1e-6):
            y = kept(row, p)
            _same(
                judge,
                y,
                best(1),
                [
                    ("Nothing is left: the best token always stays.", best(0)),
                    ("p=0 is taken for no limit at all.", best(5)),
                ],
                row,
                p=p,
            )
        y = kept(row, 1.0)
        _same(judge, y, best(5), [], row, p=1.0)
        generator = torch.Generator().manual_seed(81)
        many = torch.randn(1, 2000, generator=generator)
        y = kept(many, 1.0)
        if not y.all():
            judge.fail(
                "With p=1 a token is taken away: the running sum of float32 does not "
                "end at exactly 1.",
                [("expected", "2000 kept"), ("yours", f"{int(y.sum())} kept")],
            )


@judged("top_k")
def top_k(judge: Judge, answer):
    """Judge `top_k(logits, k)`: all but the k best tokens become minus infinity.

    Args:
        answer: a function of logits (B, V) that returns logits (B, V): exactly k are
            kept in each row, ties or not, and all where k exceeds V.
    """
    signature = "top_k(logits, k)"
    answers.wants(judge, answer, signature, classes=False)
    _judge_k(
        judge, lambda t, k: answers.invoke(judge, answer, signature, logits=t, k=k)
    )


@judged("top_p")
def top_p(judge: Judge, answer):
    """Judge `top_p(logits, p)`: only the smallest set of tokens with mass p stays.

    Args:
        answer: a function of logits (B, V) that returns logits (B, V): the best tokens
            whose probabilities sum up to p or just above are kept, the best one always.
    """
    signature = "top_p(logits, p)"
    answers.wants(judge, answer, signature, classes=False)
    _judge_p(
        judge, lambda t, p: answers.invoke(judge, answer, signature, logits=t, p=p)
    )


@judged("filter_logits")
def filter_logits(judge: Judge, answer):
    """Judge `filter_logits(logits, top_k, top_p)`: both filters, top-k first.

    Args:
        answer: a function of logits (B, V) that returns logits (B, V); None for either
            number leaves that filter out.
    """
    signature = "filter_logits(logits, top_k, top_p)"
    answers.wants(judge, answer, signature, classes=False)

    def run(logits: Tensor, k: int | None, p: float | None):
        return answers.invoke(judge, answer, signature, logits=logits, top_k=k, top_p=p)

    with judge.mechanism("no filter"):
        kept = _Filter(judge, lambda t: run(t, None, None))(_THREE)
        if not kept.all():
            judge.fail("Without top_k and top_p every token stays.")
    for part, text in ((_judge_k, "top-k: "), (_judge_p, "top-p: ")):
        inner = Judge(judge.part)
        inner.fail = lambda sentence, rows=(), mechanism=None, i=inner, t=text: (
            judge.fail(sentence, rows, mechanism or t + i.now)
        )
        if part is _judge_k:
            part(inner, lambda t, k: run(t, k, None))
        else:
            part(inner, lambda t, p: run(t, None, p))
        judge.held += [text + held for held in inner.held]
    with judge.mechanism("top-k first, then top-p"):
        row = _log(0.375, 0.3125, 0.1875, 0.125)[None]
        kept = _Filter(judge, lambda t: run(t, 2, 0.5))(row)
        _same(
            judge,
            kept,
            torch.tensor([[True, False, False, False]]),
            [
                (
                    "Top-p looks at the probabilities as they were before top-k. "
                    "After top-k "
                    "two tokens are left, with 0.5455 and 0.4545, and the first "
                    "reaches 0.5.",
                    torch.tensor([[True, True, False, False]]),
                )
            ],
            row,
            top_k=2,
            top_p=0.5,
        )


# The draw -----------------------------------------------------------------------------

_SAMPLE = "sample(logits, temperature, top_k, top_p, generator)"


class _Sampler:
    """The reader's sampler, and the shares of the tokens it draws."""

    def __init__(self, judge: Judge, answer):
        self.judge, self.answer = judge, answer

    def __call__(
        self,
        logits: Tensor,
        temperature: float = 1.0,
        top_k: int | None = None,
        top_p: float | None = None,
        seed: int = 91,
    ) -> Tensor:
        self.generator = torch.Generator().manual_seed(seed)
        value = answers.invoke(
            self.judge,
            self.answer,
            _SAMPLE,
            logits=logits,
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
            generator=self.generator,
        )
        batch, vocab = logits.shape
        if isinstance(value, int) and not isinstance(value, bool):
            self.judge.fail(
                "One number came back, and a token for each row is wanted: a tensor "
                f"({batch},)."
            )
        if isinstance(value, Tensor) and tuple(value.shape) == (batch, 1):
            value = value[:, 0]
        if isinstance(value, Tensor) and tuple(value.shape) == (batch, vocab):
            self.judge.fail(
                "Something for each token of the vocabulary came back, logits or "
                "probabilities. One token id for each row is wanted, drawn by "
                "`torch.multinomial`."
            )
        ids = self.judge.tensor(value, (batch,), what="your function")
        if ids.dtype not in (torch.int64, torch.int32):
            self.judge.fail(
                "Token ids are whole numbers, int64, as `torch.multinomial` and "
                f"`argmax` return them; {str(ids.dtype).removeprefix('torch.')} came."
            )
        if ((ids < 0) | (ids >= vocab)).any():
            self.judge.fail(
                "An id outside the vocabulary came back.",
                [("vocabulary", f"0 to {vocab - 1}"), ("yours", str(int(ids.max())))],
            )
        return ids.long()

    def shares(self, row: Tensor, **settings) -> Tensor:
        ids = self(row.expand(_ROWS, -1).contiguous(), **settings)
        return torch.bincount(ids, minlength=row.shape[-1]).double() / _ROWS

    def expect(self, row: Tensor, right: Tensor, mistakes: list, **settings):
        """Compare the shares of 2000 draws with a distribution."""
        found = self.shares(row, **settings)
        right = right.double()
        if _far(found, right) < 0.05 and not ((found > 0) & (right == 0)).any():
            return
        rows = [("probabilities", numbers(row.softmax(-1)))]
        rows += [(name, str(value)) for name, value in settings.items()]
        rows += [
            ("expected", "  ".join(f"{v:.2f}" for v in right.tolist())),
            (
                "yours",
                "  ".join(f"{v:.2f}" for v in found.tolist()) + "  of 2000 draws",
            ),
        ]
        for sentence, wrong in mistakes:
            wrong = wrong.double()
            if _far(wrong, right) < 0.06 and not ((wrong > 0) & (right == 0)).any():
                continue
            if _far(found, wrong) < 0.05 and not ((found > 0) & (wrong == 0)).any():
                self.judge.fail(sentence, rows)
        more = ((found > 0) & (right == 0)).any()
        less = ((found == 0) & (right > 0.02)).any()
        text = "The shares of the draws are not the probabilities."
        if more and less:
            text = "Other tokens are drawn than should be."
        elif more:
            text = "Tokens are drawn that should have been taken away."
        elif less:
            text = "Tokens are never drawn that should have a chance."
        self.judge.fail(text, rows)


def _far(a: Tensor, b: Tensor) -> float:
    return (a - b).abs().max().item()


def _only(probabilities: Tensor, *kept: int) -> Tensor:
    mask = torch.zeros_like(probabilities)
    mask[list(kept)] = 1.0
    return probabilities * mask / (probabilities * mask).sum()


@judged("sample")
def sample(judge: Judge, answer):
    """Judge `sample(logits, temperature, top_k, top_p, generator)`: an id for each row.

    Temperature comes first, then top-k, then top-p of what top-k left, then the draw.

    Args:
        answer: a function of logits (B, V) that returns ids (B,), int64. Temperature 0
            takes the best token and draws nothing; None for `top_k` or `top_p` leaves
            that filter out; all random numbers come from `generator`.
    """
    answers.wants(judge, answer, _SAMPLE, classes=False)
    draw = _Sampler(judge, answer)
    with judge.mechanism("shape"):
        draw(_THREE)
    row = _log(0.125, 0.5, 0.25, 0.125)
    p = row.softmax(-1)
    best = torch.tensor([0.0, 1.0, 0.0, 0.0])
    even = torch.full((4,), 0.25)
    with judge.mechanism("the draw"):
        draw.expect(
            row,
            p,
            [
                ("The best token always wins: `argmax` in place of a draw.", best),
                ("All tokens are drawn alike: the logits are not used.", even),
                (
                    "The rarer tokens are drawn more often: a sign is wrong.",
                    (-row).softmax(-1),
                ),
                (
                    "The softmax is taken twice: probabilities went through it again.",
                    p.softmax(-1),
                ),
                (
                    "Logits are drawn from as if they were probabilities; the softmax "
                    "is missing.",
                    (row - row.min()) / (row - row.min()).sum(),
                ),
            ],
        )
    with judge.mechanism("the softmax runs over the vocabulary"):
        batch = torch.stack([row + 4.0, row.flip(0)]).repeat(_ROWS // 2, 1)
        ids = draw(batch)
        for at, right in ((0, p), (1, p.flip(0))):
            found = torch.bincount(ids[at::2], minlength=4).double() / (_ROWS // 2)
            if _far(found, right) > 0.07:
                judge.fail(
                    "Rows mix: each row of logits has a softmax and a draw of its own, "
                    "along `dim=-1`.",
                    [
                        ("expected", "  ".join(f"{v:.2f}" for v in right.tolist())),
                        ("yours", "  ".join(f"{v:.2f}" for v in found.tolist())),
                    ],
                )
    with judge.mechanism("temperature"):
        for t in (0.5, 2.0):
            draw.expect(
                row,
                (row / t).softmax(-1),
                [
                    (
                        "The logits are multiplied by the temperature; they are "
                        "divided.",
                        (row * t).softmax(-1),
                    ),
                    (
                        "The temperature changes nothing: it divides what is "
                        "normalised "
                        "afterwards, or is not used. It divides the *logits*.",
                        p,
                    ),
                    (
                        "The temperature divides the probabilities before another "
                        "softmax; it divides the logits.",
                        (p / t).softmax(-1),
                    ),
                    ("The best token always wins.", best),
                ],
                temperature=t,
            )
    with judge.mechanism("temperature 0"):
        ids = draw(_THREE, temperature=0.0)
        right = _THREE.argmax(-1)
        judge_rows = [("expected", str(right.tolist())), ("yours", str(ids.tolist()))]
        if not torch.equal(ids, right):
            judge.fail("Temperature 0 takes the best token of each row.", judge_rows)
        several = [draw(_THREE, temperature=0.0, seed=s) for s in range(92, 100)]
        if any(not torch.equal(ids, other) for other in several):
            judge.fail("Temperature 0 takes the best token, whatever the seed.")
    with judge.mechanism("top-k"):
        kept = _only(p, 1, 2)
        draw.expect(
            row,
            kept,
            [
                ("Top-k keeps the smallest, not the largest.", _only(p, 0, 3)),
                ("Top-k is not used: every token is drawn.", p),
                ("Top-k keeps one token only.", best),
                ("Top-k keeps one token too many.", _only(p, 1, 2, 0)),
                ("Top-k keeps one token too many.", _only(p, 1, 2, 3)),
                (
                    "The tokens that top-k takes away get the logit 0, and e to "
                    "the 0 is "
                    "a share. Set them to minus infinity.",
                    torch.where(kept > 0, row, torch.zeros(4)).softmax(-1),
                ),
                (
                    "The place within the k best came back, not the token: `topk` "
                    "returns "
                    "indices; look the drawn place up in them.",
                    torch.tensor([2 / 3, 1 / 3, 0.0, 0.0]),
                ),
                (
                    "Top-k draws among the kept as if they were level.",
                    torch.tensor([0.0, 0.5, 0.5, 0.0]),
                ),
            ],
            top_k=2,
        )
        tied = _log(0.125, 0.25, 0.25, 0.25, 0.125)
        found = draw.shares(tied, top_k=2)
        if int((found > 0).sum()) == 3:
            judge.fail(
                "Ties are kept beyond k: three tokens stand level at the "
                "threshold, and "
                "all three are drawn for top_k=2. Keep the k *places* that `topk` "
                "returns, not all that reach its last value.",
                [
                    ("probabilities", numbers(tied.softmax(-1))),
                    ("top_k", "2"),
                    ("yours", "  ".join(f"{v:.2f}" for v in found.tolist())),
                ],
            )
        draw.expect(row, p, [], top_k=50)
        draw.expect(row, best, [], top_k=1)
        two = draw(_THREE.repeat(50, 1), top_k=1)
        if not torch.equal(two, _THREE.argmax(-1).repeat(50)):
            judge.fail("Top-k of one row is used for all rows; each has its own.")
    with judge.mechanism("top-p"):
        nucleus = _log(0.125, 0.5, 0.25, 0.0625, 0.0625)
        q = nucleus.softmax(-1)
        draw.expect(
            nucleus,
            _only(q, 1),
            [
                ("Top-p is not used: every token is drawn.", q),
                (
                    "Top-p keeps the rarest tokens: sort with `descending=True`.",
                    _only(q, 0, 3, 4),
                ),
                (
                    "Top-p drops the first token: with p=0.3 the best one alone, "
                    "0.5, is "
                    "above p, and has to stay.",
                    _only(q, 0, 2, 3, 4),
                ),
                ("Top-p keeps one token too many.", _only(q, 1, 2)),
                (
                    "The place in the sorted row came back, not the token: look it "
                    "up in "
                    "the indices of `sort`.",
                    torch.tensor([1.0, 0, 0, 0, 0]),
                ),
            ],
            top_p=0.3,
        )
        draw.expect(
            nucleus,
            _only(q, 0, 1, 2),
            [
                (
                    "Top-p drops the token that crosses p: 0.5 + 0.25 is below "
                    "0.8, so one "
                    "more is needed to reach it.",
                    _only(q, 1, 2),
                ),
                ("Top-p keeps one token too many.", _only(q, 0, 1, 2, 3)),
                ("Top-p keeps one token too many.", _only(q, 0, 1, 2, 4)),
                ("Top-p drops the first token.", _only(q, 0, 2)),
                ("Top-p keeps the best token only.", _only(q, 1)),
                ("Top-p is not used: every token is drawn.", q),
                (
                    "The kept tokens' mask is not taken back to their places "
                    "(`scatter`).",
                    _only(q, 0, 1, 2),
                ),
                (
                    "Top-p sums in the order of the vocabulary, without sorting.",
                    _only(q, 0, 1, 2),
                ),
                (
                    "Single probabilities are compared with p or 1 - p; their sum is.",
                    _only(q, 1, 2),
                ),
                (
                    "The place in the sorted row came back, not the token: look it "
                    "up in "
                    "the indices of `sort`.",
                    torch.tensor([4 / 7, 2 / 7, 1 / 7, 0, 0]),
                ),
            ],
            top_p=0.8,
        )
        far = _log(0.0625, 0.125, 0.0625, 0.25, 0.5)
        f = far.softmax(-1)
        draw.expect(
            far,
            _only(f, 3, 4),
            [
                (
                    "Top-p's mask is not taken back to the places of the tokens: it is "
                    "that of the sorted row (`scatter`).",
                    _only(f, 0, 1),
                ),
                ("Top-p sums in the order of the vocabulary, without sorting.", f),
                (
                    "Top-p sums in the order of the vocabulary, without sorting.",
                    _only(f, 0, 1, 2, 3),
                ),
            ],
            top_p=0.7,
        )
        level = draw.shares(torch.zeros(4), top_p=0.5)  # 1/4 each, without rounding
        if int((level > 0).sum()) != 2:
            judge.fail(
                "Two tokens of four with 0.25 each reach p=0.5, and "
                f"{int((level > 0).sum())} are drawn: the smallest set whose mass "
                "*reaches* p is wanted. Compare the mass before a token, `< p`.",
                [("yours", "  ".join(f"{v:.2f}" for v in level.tolist()))],
            )
        draw.expect(
            row,
            best,
            [
                (
                    "`top_p=0` is taken for no limit at all, as by `if top_p:`. "
                    "Ask whether "
                    "it `is not None`; the best token is left for 0.",
                    p,
                )
            ],
            top_p=0.0,
        )
        draw.expect(row, p, [], top_p=1.0)
    with judge.mechanism("temperature first, then top-p"):
        hot = (row / 4.0).softmax(-1)
        draw.expect(
            row,
            _only(hot, 1, 2),
            [
                (
                    "Top-p looks at the probabilities before the temperature: divide "
                    "first, then filter.",
                    best,
                ),
            ],
            temperature=4.0,
            top_p=0.5,
        )
    with judge.mechanism("top-k first, then top-p"):
        close_ = torch.tensor([0.375, 0.3125, 0.1875, 0.125])
        draw.expect(
            close_.log(),
            _only(close_, 0),
            [
                (
                    "Top-p looks at the probabilities as they were before top-k. After "
                    "top-k two tokens are left, with 0.5455 and 0.4545, and the first "
                    "reaches 0.5.",
                    _only(close_, 0, 1),
                ),
                ("With both filters given, top-k alone is used.", _only(close_, 0, 1)),
            ],
            top_k=2,
            top_p=0.5,
        )
    with judge.mechanism("the generator"):
        wide = torch.zeros(40, 50)
        one, two, other = (draw(wide, seed=s) for s in (95, 95, 96))
        if not torch.equal(one, two) or torch.equal(one, other):
            judge.fail(
                "The draws do not follow `generator`: the same seed gives other "
                "tokens, "
                "or another seed the same. Pass it on: "
                "`torch.multinomial(..., generator=generator)`."
            )
        before = torch.get_rng_state()
        draw(wide)
        if not torch.equal(before, torch.get_rng_state()):
            judge.fail(
                "Random numbers are also taken from torch's own generator; all have to "
                "come from `generator`."
            )
        draw(_THREE, temperature=0.0, seed=97)
        if not torch.equal(
            draw.generator.get_state(), torch.Generator().manual_seed(97).get_state()
        ):
            judge.notes.append(
                "A remark: at temperature 0 your code still takes random numbers, so "
                "the draws that follow change."
            )
    with judge.mechanism("a batch of one"):
        draw(row[None])
    with judge.mechanism("tokens that are ruled out"):
        barred = row.clone()
        barred[1] = -math.inf
        draw.expect(barred, barred.softmax(-1), [])
