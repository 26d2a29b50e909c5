"""Checks of chapter 14: which tokens may be drawn, and the draw itself."""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from minigpt.book.check import answer as answers
from minigpt.book.check.judge import Judge, Verdict, close, judged, numbers

__all__ = ["filter_logits", "min_p_filter", "sample", "top_k", "top_p"]

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


def _three() -> Tensor:
    """Three rows, the best token in another place in each; new ones at each call."""
    return torch.stack(
        [
            _log(0.25, 0.5, 0.125, 0.0625, 0.0625),
            _log(0.0625, 0.125, 0.0625, 0.5, 0.25) + 3.0,
            _log(0.5, 0.0625, 0.25, 0.0625, 0.125) - 1.0,
        ]
    )


_UNSORTED = (0.06, 0.5, 0.09, 0.22, 0.13)  # no two alike, the best one not in front


_BEFORE_K = (
    "Top-p looks at the probabilities as they were before top-k. After top-k three "
    "tokens are left, with 0.4286, 0.3571 and 0.2143, and the first reaches 0.4."
)
_RAREST = "The rarest tokens are kept: sort with `descending=True`."
_UNSCATTERED = (
    "The mask of the sorted row is used for the row itself: it has to go back to the "
    "places that the tokens came from (`scatter`)."
)
_IN_VOCABULARY = "The mass is summed in the order of the vocabulary, without sorting."


def _judge_k(judge: Judge, run: Callable[[Tensor, int], object]):
    """All mechanisms of top-k."""
    logits = _three()

    def kept(logits: Tensor, k: int) -> Tensor:
        return _Filter(judge, lambda t: run(t, k))(logits)

    with judge.mechanism("shape"):
        kept(logits, 2)
    with judge.mechanism("the k largest stay"):
        row = _log(*_UNSORTED)[None]
        order = row.argsort(-1, descending=True)

        def places(lower: int, upper: int) -> Tensor:
            return torch.zeros_like(row, dtype=torch.bool).scatter(
                -1, order[:, lower:upper], True
            )

        _same(
            judge,
            kept(row, 3),
            places(0, 3),
            [
                ("The smallest are kept; the largest should be.", ~places(0, 2)),
                ("The largest are taken away; they should stay.", ~places(0, 3)),
                (
                    "One token too few is kept: k - 1. If you compare with the last "
                    "value of `topk`, take away what is `<` it, not `<=`.",
                    places(0, 2),
                ),
                ("One token too many is kept: k + 1.", places(0, 4)),
                ("Nothing is taken away.", places(0, 5)),
                ("Everything is taken away.", places(0, 0)),
                (
                    "The first places are kept, whatever stands there: those are "
                    "places of the sorted row.",
                    torch.tensor([[True, True, True, False, False]]),
                ),
                ("Only the best token is kept.", places(0, 1)),
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
    logits = _three()

    def kept(logits: Tensor, p: float) -> Tensor:
        return _Filter(judge, lambda t: run(t, p))(logits)

    with judge.mechanism("shape"):
        kept(logits, 0.9)
    row = _log(*_UNSORTED)[None]
    order = row.argsort(-1, descending=True)

    def best(n: int) -> Tensor:
        return torch.zeros_like(row, dtype=torch.bool).scatter(-1, order[:, :n], True)

    def first(n: int) -> Tensor:
        return torch.arange(5)[None] < n

    def unsorted(p: float) -> Tensor:
        mass = row.softmax(-1)
        return mass.cumsum(-1) - mass < p

    with judge.mechanism("the best token always stays"):
        _same(
            judge,
            kept(row, 0.2),
            best(1),
            [
                (
                    "The first token is dropped: its probability 0.5 is above p=0.2, "
                    "so nothing at all is left to draw from. The token that crosses p "
                    "stays; compare the mass *before* it with p.",
                    best(0),
                ),
                (
                    "Everything but the best token stays: the mask is the wrong way "
                    "round.",
                    ~best(1),
                ),
                (_RAREST, ~best(2)),
                (_RAREST, ~best(3)),
                (_UNSCATTERED, first(1)),
                (_IN_VOCABULARY, unsorted(0.2)),
                ("One token too many is kept.", best(2)),
                ("Nothing is taken away.", best(5)),
            ],
            row,
            p=0.2,
        )
    with judge.mechanism("the token that crosses p"):
        _same(
            judge,
            kept(row, 0.75),
            best(3),
            [
                (
                    "The token that crosses p is dropped: 0.5 + 0.22 is below 0.75, so "
                    "one more is needed to reach it.",
                    best(2),
                ),
                ("One token too many is kept.", best(4)),
                (_IN_VOCABULARY, unsorted(0.75)),
                (_UNSCATTERED, first(3)),
                (
                    "Only the best token is kept. Is each probability by itself "
                    "compared with p or 1 - p? The running sum is.",
                    best(1),
                ),
                ("Nothing is taken away.", best(5)),
                ("Everything is taken away.", best(0)),
                (_RAREST, ~best(1)),
            ],
            row,
            p=0.75,
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
                    f"{right} of four tokens reach p={p} exactly, one more is kept. "
                    "The smallest set whose mass *reaches* p is wanted: keep where the "
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
                (_UNSCATTERED, torch.tensor([[True, True, False, False, False]] * 3)),
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
        kept = _Filter(judge, lambda t: run(t, None, None))(_three())
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
        kept = _Filter(judge, lambda t: run(t, 3, 0.4))(row)
        _same(
            judge,
            kept,
            torch.tensor([[True, False, False, False]]),
            [
                (
                    _BEFORE_K,
                    torch.tensor([[True, True, False, False]]),
                )
            ],
            row,
            top_k=3,
            top_p=0.4,
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
        return _shares(ids, row.shape[-1])

    def expect(self, row: Tensor, right: Tensor, mistakes: list, **settings):
        """Compare the shares of 2000 draws with a distribution."""
        found = self.shares(row, **settings)
        self.tell(row, found, right, mistakes, settings)

    def tell(self, logits: Tensor, found: Tensor, right: Tensor, mistakes: list, given):
        """End the check if shares are not as they should be."""
        right = right.double()
        if _agree(found, right, 0.05):
            return
        at = 0
        if found.ndim > 1:
            at = next(
                i for i in range(len(found)) if not _agree(found[i], right[i], 0.05)
            )
        logits, *two = (t[at] if t.ndim > 1 else t for t in (logits, right, found))
        rows = [("probabilities", numbers(logits.softmax(-1)))]
        rows += [(name, str(value)) for name, value in given.items()]
        texts = ["  ".join(f"{v:.2f}" for v in t.tolist()) for t in two]
        rows += [("expected", texts[0]), ("yours", f"{texts[1]}  of {_ROWS} draws")]
        for sentence, wrong in mistakes:
            wrong = wrong.double()
            if not _agree(wrong, right, 0.06) and _agree(found, wrong, 0.05):
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


def _shares(ids: Tensor, vocab: int) -> Tensor:
    return torch.bincount(ids, minlength=vocab).double() / len(ids)


def _agree(found: Tensor, right: Tensor, within: float) -> bool:
    """Whether shares are near, and nothing was drawn that has no chance."""
    return _far(found, right) < within and not ((found > 0) & (right == 0)).any()


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
        draw(_three())
    row = _log(0.125, 0.5, 0.25, 0.125)
    p = row.softmax(-1)
    best = torch.tensor([0.0, 1.0, 0.0, 0.0])
    other = _log(0.5, 0.125, 0.125, 0.25)
    with judge.mechanism("the draw"):
        both = torch.stack([row, other + 1.0])
        ids = draw(both.repeat_interleave(_ROWS, 0))
        if ids.unique().numel() == 1:
            judge.fail(
                "Every row gets the same token: one draw is made for all rows. Each "
                "row has logits and a draw of its own."
            )
        found = torch.stack([_shares(ids[:_ROWS], 4), _shares(ids[_ROWS:], 4)])
        right = both.softmax(-1)
        shifted = both - both.amin(-1, keepdim=True)
        mistakes = [
            (
                "The best token always wins: `argmax` in place of a draw.",
                torch.eye(4)[both.argmax(-1)],
            ),
            (
                "All tokens are drawn alike: the logits are not used.",
                torch.full((2, 4), 0.25),
            ),
            (
                "The rarer tokens are drawn more often: a sign is wrong.",
                (-both).softmax(-1),
            ),
            (
                "The softmax is taken twice: probabilities went through it again.",
                right.softmax(-1),
            ),
            (
                "The softmax runs over the batch, `dim=0`: rows mix. It runs over the "
                "vocabulary, `dim=-1`.",
                both.softmax(0) / both.softmax(0).sum(-1, keepdim=True),
            ),
            (
                "Logits are drawn from as if they were probabilities; the softmax is "
                "missing.",
                shifted / shifted.sum(-1, keepdim=True),
            ),
            (
                "The first row's probabilities are used for all rows.",
                right[:1].expand(2, -1),
            ),
        ]
        draw.tell(both, found, right, mistakes, {})
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
                        "normalised afterwards, or is not used. It divides the "
                        "*logits*.",
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
        ids = draw(_three(), temperature=0.0)
        right = _three().argmax(-1)
        judge_rows = [("expected", str(right.tolist())), ("yours", str(ids.tolist()))]
        if not torch.equal(ids, right):
            judge.fail("Temperature 0 takes the best token of each row.", judge_rows)
        several = [draw(_three(), temperature=0.0, seed=s) for s in range(92, 100)]
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
                    "The tokens that top-k takes away get the logit 0, and e to the 0 "
                    "is a share. Set them to minus infinity.",
                    torch.where(kept > 0, row, torch.zeros(4)).softmax(-1),
                ),
                (
                    "The place within the k best came back, not the token: `topk` "
                    "returns indices; look the drawn place up in them.",
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
                "Ties are kept beyond k: three tokens stand level at the threshold, "
                "and all three are drawn for top_k=2. Keep the k *places* that `topk` "
                "returns, not all that reach its last value.",
                [
                    ("probabilities", numbers(tied.softmax(-1))),
                    ("top_k", "2"),
                    ("yours", "  ".join(f"{v:.2f}" for v in found.tolist())),
                ],
            )
        draw.expect(row, p, [], top_k=50)
        draw.expect(row, best, [], top_k=1)
        two = draw(_three().repeat(50, 1), top_k=1)
        if not torch.equal(two, _three().argmax(-1).repeat(50)):
            judge.fail("Top-k of one row is used for all rows; each has its own.")
    with judge.mechanism("top-p"):
        _sample_top_p(judge, draw)
        level = draw.shares(torch.zeros(4), top_p=0.5)  # 1/4 each, without rounding
        if int((level > 0).sum()) != 2:
            judge.fail(
                "Two tokens of four with 0.25 each reach p=0.5, and "
                f"{int((level > 0).sum())} are drawn. The smallest set whose mass "
                "*reaches* p is wanted. Compare the mass before a token, `< p`.",
                [("yours", "  ".join(f"{v:.2f}" for v in level.tolist()))],
            )
        draw.expect(
            row,
            best,
            [
                (
                    "`top_p=0` is taken for no limit at all, as by `if top_p:`. Ask "
                    "whether it `is not None`; the best token is left for 0.",
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
        near = torch.tensor([0.375, 0.3125, 0.1875, 0.125])
        draw.expect(
            near.log(),
            _only(near, 0),
            [
                (_BEFORE_K, _only(near, 0, 1)),
                ("With both filters given, top-k alone is used.", _only(near, 0, 1, 2)),
            ],
            top_k=3,
            top_p=0.4,
        )
    with judge.mechanism("the generator"):
        wide = torch.zeros(40, 50)
        one, two, other = (draw(wide, seed=s) for s in (95, 95, 96))
        if torch.equal(one, other):
            judge.fail(
                "Two seeds give the same tokens: the random numbers come from a "
                "generator made or seeded inside. Pass on the one that is given: "
                "`torch.multinomial(..., generator=generator)`."
            )
        if not torch.equal(one, two):
            judge.fail(
                "The draws do not follow `generator`: the same seed gives other "
                "tokens. Pass it on: `torch.multinomial(..., generator=generator)`."
            )
        before = torch.get_rng_state()
        draw(wide)
        if not torch.equal(before, torch.get_rng_state()):
            judge.fail(
                "Random numbers are also taken from torch's own generator; all have to "
                "come from `generator`."
            )
        draw(_three(), temperature=0.0, seed=97)
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


def _sample_top_p(judge: Judge, draw: _Sampler):
    """The nucleus of one row with p below the best token's probability, and above."""
    row = _log(*_UNSORTED)
    q = row.softmax(-1)
    back = (
        "Top-p's mask is not taken back to the places of the tokens: it is that of the "
        "sorted row (`scatter`).",
        _only(q, 0, 1, 2),
    )
    place = (
        "The place in the sorted row came back, not the token: look it up in the "
        "indices of `sort`.",
        torch.cat([q.sort(descending=True).values[:3] / 0.85, torch.zeros(2)]),
    )
    mistakes = [
        back,
        place,
        (
            "Top-p drops the token that crosses p: 0.5 + 0.22 is below 0.75, so one "
            "more is needed to reach it.",
            _only(q, 1, 3),
        ),
        ("Top-p keeps one token too many.", _only(q, 1, 2, 3, 4)),
        ("Top-p drops the first token.", _only(q, 3, 4)),
        ("Top-p keeps the best token only.", _only(q, 1)),
        ("Top-p is not used: every token is drawn.", q),
        (
            "Top-p sums in the order of the vocabulary, without sorting.",
            _only(q, 0, 1, 2, 3),
        ),
    ]
    try:
        low = draw.shares(row, top_p=0.2)
    except Verdict as found:
        if "no probabilities" not in found.sentence:
            raise
        judge.fail(
            "Top-p drops the first token: with p=0.2 the best one alone, 0.5, is above "
            "p, and nothing is left to draw from. The token that crosses p stays.",
            found.rows,
        )
    if low[0] < 1:  # else one of two mistakes, which a larger p tells apart
        draw.tell(
            row,
            low,
            _only(q, 1),
            [
                ("Top-p is not used: every token is drawn.", q),
                (
                    "Top-p keeps the rarest: sort with `descending=True`.",
                    _only(q, 0, 2, 4),
                ),
                (
                    "Top-p drops the first token: with p=0.2 the best one alone, 0.5, "
                    "is above p, and has to stay.",
                    _only(q, 0, 2, 3, 4),
                ),
                ("Top-p keeps one token too many.", _only(q, 1, 3)),
                (
                    "Top-p sums in the order of the vocabulary, without sorting.",
                    _only(q, 0, 1),
                ),
            ],
            {"top_p": 0.2},
        )
    draw.expect(row, _only(q, 1, 3, 4), mistakes, top_p=0.75)
    if low[0] == 1:
        judge.fail("With p=0.2 token 0 is drawn, and token 1 is the best.")


# The exercise of chapter 14 -----------------------------------------------------------


@judged("min_p_filter")
def min_p_filter(judge: Judge, answer):
    """Judge `min_p_filter(logits, min_p)`: what is likely enough beside the best stays.

    Args:
        answer: a function of logits (..., V) that returns logits (..., V): kept is what
            has at least `min_p` times the probability of the row's best; 0 keeps all.
    """
    signature = "min_p_filter(logits, min_p)"
    answers.wants(judge, answer, signature, classes=False)

    def kept(logits: Tensor, p: float) -> Tensor:
        def run(t: Tensor):
            return answers.invoke(judge, answer, signature, logits=t, min_p=p)

        return _Filter(judge, run)(logits)

    row = _log(*_UNSORTED)[None] + 3.0
    mass = row.softmax(-1)
    with judge.mechanism("shape"):
        kept(_three(), 0.3)
    with judge.mechanism("beside the best"):
        low = mass < 0.1
        _same(
            judge,
            kept(row, 0.2),
            ~low,
            [
                (
                    "Probabilities are compared with min_p alone: with min_p times "
                    "that of the best they should be, 0.2 times 0.5 here.",
                    mass >= 0.2,
                ),
                (
                    "Logits are compared as if they were probabilities: a ratio of "
                    "probabilities is a difference of logits, by the logarithm.",
                    row >= 0.2 * row.amax(-1, keepdim=True),
                ),
                (
                    "Logits are compared without the logarithm: their difference from "
                    "the best one is to be at least ln(min_p).",
                    row - row.amax(-1, keepdim=True) > -0.2,
                ),
                ("What should be kept is cut, and the other way round.", low),
                ("Nothing is taken away.", mass > 0),
                ("Everything is taken away.", mass < 0),
            ],
            row,
            min_p=0.2,
        )
    with judge.mechanism("each row by itself"):
        three = _three()
        p = three.softmax(-1)
        _same(
            judge,
            kept(three, 0.4),
            p >= 0.4 * p.amax(-1, keepdim=True),
            [
                (
                    "The best of the whole batch is looked at; each row has its own.",
                    three - three.max() >= math.log(0.4),
                )
            ],
            three,
            min_p=0.4,
        )
    with judge.mechanism("min_p at its limits"):
        for p, right in ((0.0, mass >= 0), (1.0, mass == mass.max())):
            _same(judge, kept(row, p), right, [], row, min_p=p)
    with judge.mechanism("the type of the output"):
        y = answers.invoke(judge, answer, signature, logits=row.half(), min_p=0.3)
        y = judge.tensor(y, row.shape, what="your function")
        if y.dtype != torch.float16:
            judge.fail("float16 came in, and another type came back.")
