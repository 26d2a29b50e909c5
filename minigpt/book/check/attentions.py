"""Checks of chapter 2: causal attention, and the output of the last token alone."""

import itertools
import math
import os
from collections.abc import Callable, Iterable, Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from minigpt.book.check import answer as answers
from minigpt.book.check.judge import Judge, close, judged

__all__ = ["attention", "last_token"]

_SIGNATURES = ("CausalSelfAttention(d_model, n_heads)", "attend(q, k, v)")
D, H, T = 6, 2, 4
K = D // H

_Attend = Callable[[Tensor, Tensor, Tensor], Tensor]


def _hidden(t: int, diagonal: int = 1) -> Tensor:
    return torch.ones(t, t, dtype=torch.bool).triu(diagonal)


def _right(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    scores = q @ k.mT / math.sqrt(q.shape[-1])
    hidden = _hidden(q.shape[-2])
    return scores.masked_fill(hidden, -math.inf).softmax(-1) @ v


def _variant(
    scale: Callable[[Tensor], float] = lambda q: math.sqrt(q.shape[-1]),
    diagonal: int | None = 1,
    fill: float = -math.inf,
    dim: int = -1,
    soft: bool = True,
    swapped: bool = False,
    after: bool = False,
    turned: bool = False,
) -> _Attend:
    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        scores = (k @ q.mT if swapped else q @ k.mT) / scale(q)
        hidden = torch.zeros(scores.shape[-2:], dtype=torch.bool)
        if diagonal is not None:
            hidden = _hidden(q.shape[-2], diagonal)
        if turned:
            hidden = _hidden(q.shape[-2]).mT
        if not after:
            scores = scores.masked_fill(hidden, fill)
        weights = scores.softmax(dim) if soft else scores.masked_fill(hidden, 0.0)
        if after:
            weights = weights.masked_fill(hidden, 0.0)
        return weights @ v

    return attend


# What goes wrong between q, k, v and the output: the mechanism, and how to say it.
_ATTEND: list[tuple[str, str, _Attend]] = [
    (
        "the mask",
        "There is no mask: every token sees the whole sentence.",
        _variant(diagonal=None),
    ),
    (
        "the mask",
        "The mask is off by one: a token does not see itself, and the first sees "
        "nothing at all, which is 0 / 0. Hide what lies *above* the diagonal: "
        "`triu(1)`, not `triu(0)`.",
        _variant(diagonal=0),
    ),
    (
        "the mask",
        "The mask is off by one: a token sees the next one, too. Hide what lies above "
        "the diagonal: `triu(1)`, not `triu(2)`.",
        _variant(diagonal=2),
    ),
    (
        "the mask",
        "The mask is the wrong way round: a token sees itself and what comes after it, "
        "and not what came before.",
        _variant(turned=True),
    ),
    (
        "the mask",
        "The mask is applied after the softmax, so the weights that are left do not "
        "add up to 1. Set the hidden scores to minus infinity *before* the softmax.",
        _variant(after=True),
    ),
    (
        "the mask",
        "The hidden scores are set to 0, and the softmax gives e to the 0 a share. Set "
        "them to minus infinity.",
        _variant(fill=0.0),
    ),
    (
        "the mask",
        "1 is subtracted from the hidden scores; they are to be minus infinity.",
        lambda q, k, v: (
            (q @ k.mT / math.sqrt(q.shape[-1]) - 1.0 * _hidden(q.shape[-2])).softmax(-1)
            @ v
        ),
    ),
    (
        "the scale",
        "The division by the root of d_head is missing: scores of wide heads become "
        "large, and the softmax a choice of one.",
        _variant(scale=lambda q: 1.0),
    ),
    (
        "the scale",
        "The scores are divided by d_head; by its *root* they should be.",
        _variant(scale=lambda q: q.shape[-1]),
    ),
    (
        "the scale",
        "The scores are multiplied by the root of d_head, and should be divided.",
        _variant(scale=lambda q: 1 / math.sqrt(q.shape[-1])),
    ),
    (
        "the scale",
        "The scores are divided by the root of d_model. Each head's products have "
        "d_head terms, so the root of d_head is wanted.",
        _variant(scale=lambda q: math.sqrt(q.shape[-1] * q.shape[-3])),
    ),
    (
        "the scale",
        "The scores are divided by the root of the number of tokens; the root of "
        "d_head is wanted.",
        _variant(scale=lambda q: math.sqrt(q.shape[-2])),
    ),
    (
        "the scale",
        "The scores are divided by the root of the number of heads; the root of d_head "
        "is wanted.",
        _variant(scale=lambda q: math.sqrt(q.shape[-3])),
    ),
    (
        "the softmax",
        "The softmax runs over the queries, `dim=-2`: the weights of one token do not "
        "add up to 1. It runs over the keys, `dim=-1`.",
        _variant(dim=-2),
    ),
    (
        "the softmax",
        "The softmax runs over the heads, `dim=1`; it runs over the keys, `dim=-1`.",
        _variant(dim=1),
    ),
    (
        "the softmax",
        "The softmax is missing: scores are used as weights.",
        _variant(soft=False),
    ),
    (
        "queries and keys",
        "Queries and keys are exchanged: the scores are k @ q transposed, so a row "
        "belongs to a key. Row t is to hold what query t finds.",
        _variant(swapped=True),
    ),
    (
        "the softmax",
        "The softmax is taken twice.",
        lambda q, k, v: (
            (q @ k.mT / math.sqrt(q.shape[-1]))
            .masked_fill(_hidden(q.shape[-2]), -math.inf)
            .softmax(-1)
            .masked_fill(_hidden(q.shape[-2]), -math.inf)
            .softmax(-1)
            @ v
        ),
    ),
    (
        "the values",
        "The weights are applied to the keys; they mix the values.",
        lambda q, k, v: _right(q, k, k),
    ),
    (
        "the values",
        "The weights are applied to the queries; they mix the values.",
        lambda q, k, v: _right(q, k, q),
    ),
    (
        "the values",
        "The weights stand transposed before the values.",
        lambda q, k, v: (
            (q @ k.mT / math.sqrt(q.shape[-1]))
            .masked_fill(_hidden(q.shape[-2]), -math.inf)
            .softmax(-1)
            .mT
            @ v
        ),
    ),
    (
        "queries and keys",
        "The keys are not used: the scores come from q and q.",
        lambda q, k, v: _right(q, q, v),
    ),
    (
        "queries and keys",
        "The queries are not used: the scores come from k and k.",
        lambda q, k, v: _right(k, k, v),
    ),
    (
        "the softmax",
        "Each token takes a plain mean of what it may see: the scores are not used.",
        lambda q, k, v: _right(0 * q, k, v),
    ),
]


@judged("Attention")
def attention(judge: Judge, answer):
    """Judge `class CausalSelfAttention(nn.Module)`, or a function `attend(q, k, v)`.

    Args:
        answer: a class with `CausalSelfAttention(d_model, n_heads)` whose objects take
            x (B, T, D), made of `nn.Linear` maps under any names: queries, keys and
            values in one, apart, or head by head, and one for the output; or a
            function of queries, keys and values (B, H, T, K).
    """
    answers.wants(judge, answer, " or ".join(_SIGNATURES))
    parameters = answers._parameters(answer) or []
    few = [p for p in parameters if p.default is p.empty]
    if answers.is_class(answer) or len(few) == 2:
        _module(judge, answer)
    else:
        _function(judge, answer)


def _normal(*shape: int, seed: int = 61, scale: float = 1.0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return scale * torch.randn(*shape, generator=generator)


def _look_ahead(judge: Judge, run: Callable[[Tensor], Tensor], x: Tensor):
    """Change the last token: no earlier output may move, its own must."""
    with judge.mechanism("the future stays hidden"), torch.no_grad():
        y = run(x)
        changed = x.clone()
        changed[..., -1, :] += 2.0
        moved = (run(changed) - y).abs().flatten(0, -3).amax((0, -1)) > 1e-4
        if moved[:-1].any():
            place = int(moved.nonzero()[0])
            judge.fail(
                f"Token {x.shape[-2] - 1} was changed, and the output of token {place} "
                "changed with it: it sees the future.",
                [
                    ("expected", "only the last output changes"),
                    (
                        "yours",
                        "outputs "
                        + ", ".join(map(str, moved.nonzero().flatten().tolist()))
                        + " change",
                    ),
                ],
            )
        if not moved[-1]:
            judge.fail("The last token was changed, and its own output did not move.")


# As a function of queries, keys and values --------------------------------------------


def _function(judge: Judge, answer):
    def run(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        value = answers.invoke(judge, answer, _SIGNATURES[1], q=q, k=k, v=v)
        return judge.tensor(value, q.shape, what="your attention")

    q, k, v = (_normal(2, H, T, K, seed=s, scale=1.5) for s in (62, 63, 64))
    with judge.mechanism("shape"):
        run(q, k, v)
    # Values of one place for each token: the output is the row of weights itself.
    q, k = (_normal(2, H, 3, 4, seed=s, scale=1.5) for s in (62, 63))
    places = torch.eye(3, 4).expand(2, H, 3, 4).contiguous()
    _compared(
        judge,
        run,
        (q, k, places),
        {"q @ k.T": q @ k.mT, "v": "a 1 in place t for token t: you see the weights"},
    )
    q, k, v = (_normal(2, H, T, K, seed=s, scale=1.5) for s in (62, 63, 64))
    _compared(judge, run, (q, k, v), {"q": q, "k": k, "v": v})
    judge.held += ["the mask", "the scale", "the softmax", "the values"]
    _rest(
        judge,
        lambda t: run(t, t.flip(-1), 2 * t),
        lambda t: _right(t, t.flip(-1), 2 * t),
        lambda b, t: _normal(b, H, t, K, seed=65),
    )


def _compared(judge: Judge, run: Callable, qkv: tuple, given: dict):
    mistakes = [(m, s, f(*qkv)) for m, s, f in _ATTEND]
    _tell(judge, run(*qkv), _right(*qkv), mistakes, given)


def _tell(judge: Judge, y: Tensor, right: Tensor, mistakes: list, given: dict):
    """Compare, and take the mechanism from the mistake that fits."""
    if close(y, right, 1e-4):
        return
    for mechanism, sentence, output in mistakes:
        fits = close(y, output, 1e-4, equal_nan=True)
        if fits and not close(output, right, 1e-4):
            judge.now = mechanism
            judge.compare(y, right, [(sentence, y.detach().clone())], **given)
            judge.fail(sentence)  # not a number: the same in both, so not compared
    judge.now = "the weighted mean"
    judge.compare(y, right, (), fallback="No known mistake fits.", **given)


def _rest(judge: Judge, run: Callable, right: Callable, fresh: Callable):
    """One sequence, one token, gaps, types, the way back, and new numbers."""
    with torch.no_grad():
        for name, x in (
            ("a batch of one", fresh(1, 5)),
            ("a single token", fresh(2, 1)),
        ):
            with judge.mechanism(name):
                judge.compare(run(x), right(x), x=x)
        with judge.mechanism("large scores"):
            x = 30 * fresh(1, 5)
            judge.compare(
                run(x),
                right(x),
                (),
                1e-3,
                "Large scores overflow: subtract the largest before `exp`, as "
                "`softmax` does.",
                x=x,
            )
        with judge.mechanism("input that is not contiguous"):
            x = fresh(2, 5).mT.contiguous().mT
            judge.compare(run(x), right(x), x=x)
        with judge.mechanism("numbers never seen before"):
            seed = int.from_bytes(os.urandom(4), "little")
            noise = torch.Generator().manual_seed(seed)
            x = fresh(3, 6)
            x = x + torch.randn(x.shape, generator=noise)
            if not close(run(x), right(x), 1e-3):
                judge.fail(
                    "All inputs tried so far came out right, a new one does not. Are "
                    "results or sizes written into the code?"
                )
    with judge.mechanism("the gradient"):
        x = fresh(1, 4).requires_grad_()
        y, t = run(x), x.detach().clone().requires_grad_()
        if not y.requires_grad:
            judge.fail(
                "No gradient passes your attention. Something cuts it: `.detach()`, "
                "`.data`, `torch.tensor(...)` or `torch.no_grad()`."
            )
        g = torch.linspace(-1, 2, y.numel()).reshape(y.shape)
        (found,) = torch.autograd.grad(y, x, g)
        (wanted,) = torch.autograd.grad(right(t), t, g)
        judge.compare(
            found,
            wanted,
            (),
            1e-3,
            "The output is right and its gradient is not: a part of the way is cut off "
            "the graph.",
            x=x.detach(),
        )
    with judge.mechanism("the type of the output"), torch.no_grad():
        for dtype in (torch.bfloat16, torch.float64):
            x = fresh(1, 4).to(dtype)
            y = run(x)
            name, got = (str(d).removeprefix("torch.") for d in (dtype, y.dtype))
            if y.dtype != dtype:
                judge.fail(
                    f"The input is {name}, and your output is {got}: a mask or scale "
                    "of another type came in.",
                    [("expected", name), ("yours", got)],
                )
            if not y.isfinite().all():
                judge.fail(f"In {name} the output is no number.")


# As a module --------------------------------------------------------------------------

# A layout turns x into queries, keys and values (B, H, T, K), and has an output map.
_Layout = tuple[Callable[[Tensor], tuple[Tensor, Tensor, Tensor]], Callable, bool]


def _module(judge: Judge, answer):
    x = _normal(2, T, D)

    def make() -> nn.Module:
        return answers.build(judge, answer, _SIGNATURES[0], d_model=D, n_heads=H).eval()

    module = make()

    def run(x: Tensor) -> Tensor:
        value = judge.call(module.to(x.dtype), x, given=f"x: {answers._text(x)}")
        return judge.tensor(value, x.shape, what="your attention")

    with judge.mechanism("shape"):
        run(x)
    with judge.mechanism("the maps"):
        wanted = 4 * D * D
        matrices = sum(p.numel() for p in module.parameters() if p.ndim > 1)
        if matrices == 0:
            plain = answers.plain_tensors(module)
            lists = [
                n
                for n, v in vars(module).items()
                if isinstance(v, (list, dict)) and not n.startswith("_") and v
            ]
            why = (
                f"`self.{lists[0]}` hides its layers from torch: use `nn.ModuleList`."
                if lists
                else f"`self.{plain[0]}` is a plain tensor; use `nn.Parameter`."
                if plain
                else "Queries, keys, values and the output have a matrix each."
            )
            judge.fail(f"Your module has no parameters. {why}")
        if matrices != wanted:
            lists = [
                n
                for n, v in vars(module).items()
                if isinstance(v, (list, dict)) and not n.startswith("_") and v
            ]
            why = (
                f" `self.{lists[0]}` hides its layers from torch: use `nn.ModuleList`."
                if lists
                else " The output map is missing, or one of the others."
                if matrices == 3 * D * D
                else ""
            )
            judge.fail(
                "Queries, keys, values and the output have a matrix of D x D each, all "
                f"heads together.{why}",
                [
                    ("expected", f"{wanted} numbers for D = {D}"),
                    ("yours", str(matrices)),
                ],
            )
    with torch.no_grad():
        for i, parameter in enumerate(module.parameters()):
            parameter.copy_(_normal(*parameter.shape, seed=70 + i, scale=0.8))
        y = run(x)
        if not torch.equal(y, run(x)):
            judge.fail(
                "After eval() two calls with one input differ: dropout is still "
                "active. `F.scaled_dot_product_attention` and `F.dropout` need to be "
                "told: 0 unless `self.training`.",
                (),
                "evaluation",
            )
        layouts = list(_layouts(module))
        match = next((lay for lay in layouts if close(y, _through(lay, x), 1e-4)), None)
        if match is None:
            _tell_module(judge, run, x, y, layouts)
    judge.held += [
        "the mask",
        "the scale",
        "the softmax",
        "the heads",
        "the output map",
    ]
    _look_ahead(judge, run, x)
    _rest(
        judge, run, lambda t: _through(match, t), lambda b, t: _normal(b, t, D, seed=66)
    )


def _merge(y: Tensor, interleaved: bool = False) -> Tensor:
    B, _, T_, _ = y.shape
    order = (0, 2, 3, 1) if interleaved else (0, 2, 1, 3)
    return y.permute(*order).reshape(B, T_, -1)


def _through(layout: _Layout, x: Tensor, attend: _Attend = _right) -> Tensor:
    split, out, interleaved = layout
    return out(_merge(attend(*split(x)), interleaved))


def _heads(x: Tensor, interleaved: bool = False) -> Tensor:
    B, T_, _ = x.shape
    if interleaved:
        return x.reshape(B, T_, -1, H).permute(0, 3, 1, 2)
    return x.reshape(B, T_, H, -1).transpose(1, 2)


def _layouts(module: nn.Module) -> Iterator[_Layout]:
    """Ways to read a module's maps as queries, keys, values and output."""
    linear = [(n, m) for n, m in module.named_modules() if isinstance(m, nn.Linear)]
    maps: list[tuple[str, Callable]] = [(n, m) for n, m in linear]
    sizes = {n: m.weight.shape[0] for n, m in linear}
    for owner_name, owner in module.named_modules():
        if isinstance(owner, nn.Linear):
            continue
        own = dict(owner.named_parameters(recurse=False))
        for name, weight in own.items():
            if weight.ndim != 2:
                continue
            bias = own.get(name.replace("weight", "bias")) if "weight" in name else None
            full = f"{owner_name}.{name}".lstrip(".")
            if weight.shape[0] in (D, 3 * D, K) and weight.shape[1] == D:
                maps.insert(
                    0, (full, lambda x, w=weight, b=bias: F.linear(x, w.to(x.dtype), b))
                )
                sizes[full] = weight.shape[0]
            elif weight.shape[0] == D:
                maps.insert(0, (full, lambda x, w=weight: x @ w.to(x.dtype)))
                sizes[full] = weight.shape[1]
    packed = [(n, m) for n, m in maps if sizes[n] == 3 * D]
    square = [(n, m) for n, m in maps if sizes[n] == D]
    small = [(n, m) for n, m in maps if sizes[n] == K]
    orders = list(itertools.permutations(range(3)))
    if packed and square:
        name, both = packed[0]
        out = square[-1][1]
        if "qkv" in name.lower():  # the name says which comes first
            orders = orders[:1]
        for inter in (False, True):
            for order in orders:
                yield (_packed(both, order, inter), out, inter)
        for order in orders:  # head by head: each head's q, k and v together
            yield (_packed_by_head(both, order), out, False)
    elif len(square) == 4:
        names = [n for n, _ in square]
        for inter in (False, True):
            for a, b, c, d in _likely(itertools.permutations(range(4)), names):
                chosen = [square[i][1] for i in (a, b, c)]
                yield (_apart(chosen, inter), square[d][1], inter)
    elif len(small) == 3 * H and square:
        functions = [m for _, m in small]
        for by_head in (True, False):
            names = [small[i if by_head else i * H][0] for i in range(3)]
            for order in _likely(orders, names):
                yield (_lists(functions, order, by_head), square[-1][1], False)


def _likely(orders: Iterable[tuple], names: list[str]) -> list[tuple]:
    """The orders that fit the maps' names; all of them where names say nothing."""
    ranked = sorted(orders, key=lambda order: -_fit(order, names))
    best = _fit(ranked[0], names)
    return [o for o in ranked if _fit(o, names) == best] if best >= 3 else ranked


_ROLES = (("q",), ("k",), ("v",), ("o", "proj", "c_proj"))


def _fit(order: tuple, names: list[str]) -> int:
    """How many names of maps begin like the role that an order gives them."""
    total = 0
    for role, index in zip(_ROLES, order):
        parts = [p.lower() for p in names[index].split(".") if not p.isdigit()]
        last = (parts or [""])[-1].removeprefix("w_").removeprefix("w")
        total += last.startswith(role)
    return total


def _packed(both: Callable, order: tuple, inter: bool) -> Callable:
    def split(x: Tensor):
        parts = both(x).chunk(3, -1)
        return tuple(_heads(parts[i], inter) for i in order)

    return split


def _packed_by_head(both: Callable, order: tuple) -> Callable:
    def split(x: Tensor):
        parts = _heads(both(x)).chunk(3, -1)
        return tuple(parts[i] for i in order)

    return split


def _apart(maps: list, inter: bool) -> Callable:
    return lambda x: tuple(_heads(m(x), inter) for m in maps)


def _lists(maps: list, order: tuple, by_head: bool) -> Callable:
    def split(x: Tensor):
        rows = [maps[3 * h : 3 * h + 3] for h in range(H)]
        if not by_head:
            rows = [[maps[i * H + h] for i in range(3)] for h in range(H)]
        return tuple(torch.stack([row[i](x) for row in rows], 1) for i in order)

    return split


def _tell_module(judge: Judge, run: Callable, x: Tensor, y: Tensor, layouts: list):
    """Try every mistake with every layout, the documented one first."""
    if not layouts:
        _look_ahead(judge, run, x)
        judge.fail(
            "The future is hidden, but the check cannot read your maps, so it cannot "
            "say whether the numbers are right. It knows `nn.Linear` maps for queries, "
            "keys and values (one of 3 D, three of D, or three for each head) and one "
            "for the output. Or let it judge a function `attend(q, k, v)`.",
            (),
            "the maps",
        )
    first = layouts[0]
    right = _through(first, x)
    plain = layouts[: len(layouts)]
    for layout in plain:
        mistakes = [(m, s, _through(layout, x, f)) for m, s, f in _ATTEND]
        mistakes += _of_heads(layout, x)
        right = _through(layout, x)
        for mechanism, sentence, output in mistakes:
            if (
                output.shape == y.shape
                and close(y, output, 1e-4, equal_nan=True)
                and not close(output, right, 1e-4)
            ):
                _tell(judge, y, right, [(mechanism, sentence, output)], {"x": x})
    _look_ahead(judge, run, x)
    judge.now = "the weighted mean"
    right = _through(first, x)
    judge.compare(
        y,
        right,
        (),
        fallback="The future is hidden, but the numbers are not "
        "those of attention, and no known mistake fits.",
        x=x,
    )


def _of_heads(layout: _Layout, x: Tensor) -> list[tuple[str, str, Tensor]]:
    """Mistakes in splitting and merging heads, and around them."""
    split, out, inter = layout
    q, k, v = split(x)
    y = _right(q, k, v)
    B, T_ = x.shape[:2]
    flat = [_merge(t, inter) for t in (q, k, v)]
    cut = [t.reshape(B, H, T_, -1) for t in flat]
    one = _right(*(t.unsqueeze(1) for t in flat)).squeeze(1)
    heads = "the heads"
    found = [
        (
            heads,
            "The heads are merged in the wrong order: the output (B, H, T, K) is "
            "reshaped without going back to (B, T, H, K), so tokens and heads mix. "
            "First `transpose(1, 2)`, then `reshape`.",
            out(y.reshape(B, T_, -1)),
        ),
        (
            heads,
            "The heads are merged in another order than they were split: their numbers "
            "are interleaved. Head 0 comes first, whole, then head 1.",
            out(_merge(y, not inter)),
        ),
        (
            heads,
            "The heads stand in reverse order when they are merged.",
            out(_merge(y.flip(1), inter)),
        ),
        (
            heads,
            "The heads are cut wrongly: `view(B, H, T, K)` on (B, T, D) mixes tokens "
            "and heads. First `view(B, T, H, K)`, then `transpose(1, 2)`.",
            out(_merge(_right(*cut), inter)),
        ),
        (
            heads,
            "The heads are cut and merged by `view(B, H, T, K)` and back, which mixes "
            "tokens and heads. First `view(B, T, H, K)`, then `transpose(1, 2)`.",
            out(_right(*cut).reshape(B, T_, -1)),
        ),
        (
            heads,
            "There is one head of width D: `n_heads` is not used.",
            out(one),
        ),
        (
            heads,
            "The heads are summed; they stand side by side.",
            out(y.sum(1).repeat(1, 1, H)),
        ),
        (
            heads,
            "Heads attend to heads: the products run over (B, T, H, K), and the two "
            "middle axes were not exchanged.",
            out(_right(*(t.transpose(1, 2) for t in (q, k, v))).reshape(B, T_, -1)),
        ),
        ("the output map", "The output map is not used.", _merge(y, inter)),
        (
            "the output map",
            "The output map is applied twice.",
            out(out(_merge(y, inter))),
        ),
        (
            "the output map",
            "The input is added: the residual belongs to the block, not here.",
            x + out(_merge(y, inter)),
        ),
        (
            "the maps",
            "Queries, keys and values are not mapped: attention runs on x itself.",
            out(_merge(_right(*(_heads(x),) * 3))),
        ),
        (
            "the maps",
            "The values are not mapped: x itself is mixed.",
            out(_merge(_right(q, k, _heads(x, inter)), inter)),
        ),
        (
            "the heads",
            "There is one head of width D, and its scores are divided by the root of "
            "d_head.",
            out(
                _variant(scale=lambda q: math.sqrt(K))(
                    *(t.unsqueeze(1) for t in flat)
                ).squeeze(1)
            ),
        ),
    ]
    return found


# The exercise of chapter 2 ------------------------------------------------------------


@judged("last_token")
def last_token(judge: Judge, answer):
    """Judge `last_token(attn, x)`: attn(x)[:, -1] without the other outputs.

    Args:
        answer: a function of a `CausalSelfAttention` and x (B, T, D) that returns
            (B, D).
    """
    from minigpt.attention import CausalSelfAttention

    signature = "last_token(attn, x)"
    answers.wants(judge, answer, signature, classes=False)
    torch.manual_seed(67)
    attn = CausalSelfAttention(64, 4).eval()
    x = _normal(2, 9, 64, seed=68, scale=3.0)
    with torch.no_grad():
        q, k, v = attn.queries_keys_values(x)
        last = q[:, :, -1:]
        scores = last @ k.mT

        def end(y: Tensor) -> Tensor:
            return attn.out(y.flatten(1))

        right = attn(x)[:, -1]
        with judge.mechanism("shape"):
            given = f"attn: 4 heads, x: {answers._text(x)}"
            positional, keywords = answers.place(
                judge, answer, signature, {"attn": attn, "x": x}
            )
            y = judge.call(answer, *positional, given=given, **keywords)
            if isinstance(y, Tensor) and y.shape == (2, 1, 64):
                judge.fail("The token axis is left: (2, 1, 64). Take it away: (2, 64).")
            if isinstance(y, Tensor) and y.shape == x.shape:
                judge.fail("All tokens came back, (2, 9, 64); the last one is wanted.")
            y = judge.tensor(y, (2, 64), what="your function")
        with judge.mechanism("the numbers"):
            soft = (scores / 4).softmax(-1) @ v  # the root of d_head = 16
            judge.compare(
                y,
                right,
                [
                    (
                        "The scores are not divided by the root of d_head.",
                        end(scores.softmax(-1) @ v),
                    ),
                    (
                        "The scores are divided by the root of d_model; each head has "
                        "d_head numbers.",
                        end((scores / 8).softmax(-1) @ v),
                    ),
                    ("The last step, `attn.out`, is missing.", soft.flatten(1)),
                    (
                        "The heads are not side by side, in order, before `attn.out`.",
                        attn.out(soft.squeeze(2).mT.flatten(1)),
                    ),
                    (
                        "The last query sees the last key only: there is nothing to "
                        "mask for it.",
                        end(v[:, :, -1:]),
                    ),
                    (
                        "The last query sees the first key only: a causal mask of one "
                        "row hides the rest. The last token may look at everything.",
                        end(v[:, :, :1]),
                    ),
                    ("The input's last token came back.", x[:, -1]),
                    (
                        "The last query leaves out its own key.",
                        end((scores[..., :-1] / 4).softmax(-1) @ v[:, :, :-1]),
                    ),
                ],
                **{"x[:, -1]": x[:, -1]},
            )
        with judge.mechanism("other lengths and sizes"):
            torch.manual_seed(69)
            attn = CausalSelfAttention(12, 3, bias=False).eval()
            for b, t in ((1, 1), (3, 5)):
                x = _normal(b, t, 12, seed=t)
                y = answers.invoke(judge, answer, signature, attn=attn, x=x)
                y = judge.tensor(y, (b, 12), what="your function")
                judge.compare(y, attn(x)[:, -1], **{"x[:, -1]": x[:, -1]})
        with judge.mechanism("the other outputs are not computed"):
            seen = []
            hook = attn.out.register_forward_pre_hook(
                lambda m, a: seen.append(a[0].numel())
            )
            try:
                answers.invoke(judge, answer, signature, attn=attn, x=x)
            finally:
                hook.remove()
            if sum(seen) > 3 * 12:
                judge.fail(
                    f"`attn.out` was given {sum(seen) // 12} vectors for a batch of 3: "
                    "all tokens were computed, and all but the last thrown away.",
                    [
                        ("expected", "3 vectors"),
                        ("yours", f"{sum(seen) // 12} vectors"),
                    ],
                )
