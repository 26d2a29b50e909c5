"""Wrong and right wirings: residual layers, Pre-LN and Post-LN blocks, and others."""

import copy

import torch
import torch.nn.functional as F
from planted import Mutant, as_block, as_residual
from torch import nn

from minigpt.block import BLOCKS, Block, PostNormBlock
from minigpt.residual import Residual

# The residual layer -------------------------------------------------------------------


def overwritten(x, branch):
    x = branch(x)
    return x + branch(x)


def in_place(x, branch):
    x += branch(x)
    return x


def cut_input(x, branch):
    return x.detach() + branch(x)


def cut_branch(x, branch):
    with torch.no_grad():
        change = branch(x)
    return x + change


class Hidden(nn.Module):
    def __init__(self, branch):
        super().__init__()
        self.parts = [branch]

    def forward(self, x):
        return x + self.parts[0](x)


class Forgetful(nn.Module):
    def __init__(self, branch):
        self.branch = branch

    def forward(self, x):
        return x + self.branch(x)


RESIDUAL_BOTH = [
    Mutant("residual missing", lambda x, f: f(x), "residual is missing"),
    Mutant("branch missing", lambda x, f: x, "branch is missing"),
    Mutant("subtracted", lambda x, f: x - f(x), "subtracted: x - f(x)"),
    Mutant("input subtracted", lambda x, f: f(x) - x, "input is subtracted"),
    Mutant("multiplied", lambda x, f: x * f(x), "multiplied"),
    Mutant("input twice", lambda x, f: x + x + f(x), "input is added twice"),
    Mutant("branch twice", lambda x, f: x + 2 * f(x), "output is added twice"),
    Mutant("branch of branch", lambda x, f: x + f(f(x)), "applied twice"),
    Mutant("x overwritten", overwritten, "overwritten"),
    Mutant("halved", lambda x, f: (x + f(x)) / 2, "mean of x"),
    Mutant("divided by the root of 2", lambda x, f: (x + f(x)) / 2**0.5, "root of 2"),
    Mutant("ReLU on the sum", lambda x, f: (x + f(x)).relu(), "bends the sum"),
    Mutant("ReLU on the branch", lambda x, f: x + f(x).relu(), "bent before"),
    Mutant(
        "norm on the sum",
        lambda x, f: F.layer_norm(x + f(x), (x.shape[-1],)),
        "sum is normalised",
    ),
    Mutant(
        "norm before",
        lambda x, f: x + f(F.layer_norm(x, (x.shape[-1],))),
        "reads a normalised x",
    ),
    Mutant("input changed", in_place, "in place"),
    Mutant("input cut off", cut_input, "Only the branch passes a gradient"),
    Mutant("branch cut off", cut_branch, "Only the identity passes a gradient"),
    Mutant("a tuple", lambda x, f: (x, f(x)), "tuple"),
    Mutant("concatenated", lambda x, f: torch.cat([x, f(x)], -1), "shape (2, 3, 8)"),
]
RESIDUAL = [
    *RESIDUAL_BOTH,
    Mutant("hidden in a list", Hidden, "has 0 of the 1 parameters"),
    Mutant("no super().__init__()", Forgetful, "super().__init__()"),
]


class Skip(nn.Module):
    def __init__(self, fn):
        super().__init__()
        self.net = nn.ModuleList([fn])

    def forward(self, inputs):
        out = inputs.clone()
        for layer in self.net:
            out += layer(inputs)
        return out


class Subclass(Residual):
    def forward(self, x):
        return torch.stack([self.branch(x), x]).sum(0)


RESIDUAL_RIGHT = {
    "function": lambda x, branch: x + branch(x),
    "module": as_residual(lambda x, f: torch.add(f(x), x)),
    "in place on a copy": Skip,
    "the book's own": Residual,
    "a sum of a stack": Subclass,
    "einsum": lambda x, f: torch.einsum(
        "k,k...->...", torch.ones(2).to(x), torch.stack([x, f(x)])
    ),
}


# Blocks -------------------------------------------------------------------------------


def pre(x, attn, mlp, attn_norm, mlp_norm):
    x = x + attn(attn_norm(x))
    return x + mlp(mlp_norm(x))


def post(x, attn, mlp, attn_norm, mlp_norm):
    x = attn_norm(x + attn(x))
    return mlp_norm(x + mlp(x))


def normed_residual(x, attn, mlp, attn_norm, mlp_norm):
    x = attn_norm(x)
    x = x + attn(x)
    x = mlp_norm(x)
    return x + mlp(x)


def normed_residual_attn(x, attn, mlp, attn_norm, mlp_norm):
    x = attn_norm(x)
    x = x + attn(x)
    return x + mlp(mlp_norm(x))


def normed_residual_mlp(x, attn, mlp, attn_norm, mlp_norm):
    x = x + attn(attn_norm(x))
    x = mlp_norm(x)
    return x + mlp(x)


def block(first, second):
    """A block of two halves f(x, sublayer, norm)."""

    def function(x, attn, mlp, attn_norm, mlp_norm):
        return second(first(x, attn, attn_norm), mlp, mlp_norm)

    return function


def _pre(x, f, n):
    return x + f(n(x))


def _post(x, f, n):
    return n(x + f(x))


def _raw(x, f, n):
    return x + f(x)


def _bare(x, f, n):
    return f(n(x))


def _late(x, f, n):
    return x + n(f(x))


def _lost(x, f, n):
    return n(f(x))


def parallel(x, attn, mlp, attn_norm, mlp_norm):
    return x + attn(attn_norm(x)) + mlp(mlp_norm(x))


def old_input(x, attn, mlp, attn_norm, mlp_norm):
    h = x + attn(attn_norm(x))
    return x + mlp(mlp_norm(h))


def one_residual(x, attn, mlp, attn_norm, mlp_norm):
    return x + mlp(mlp_norm(attn(attn_norm(x))))


def same_norm(x, attn, mlp, attn_norm, mlp_norm):
    x = x + attn(attn_norm(x))
    return x + mlp(attn_norm(x))


def norms_exchanged(x, attn, mlp, attn_norm, mlp_norm):
    return pre(x, attn, mlp, mlp_norm, attn_norm)


def mlp_first(x, attn, mlp, attn_norm, mlp_norm):
    return pre(x, mlp, attn, mlp_norm, attn_norm)


def norm_at_end(x, attn, mlp, attn_norm, mlp_norm):
    return mlp_norm(pre(x, attn, mlp, attn_norm, mlp_norm))


def attention_twice(x, attn, mlp, attn_norm, mlp_norm):
    x = x + attn(attn_norm(x))
    return x + attn(mlp_norm(x))


def block_in_place(x, attn, mlp, attn_norm, mlp_norm):
    x += attn(attn_norm(x))
    x += mlp(mlp_norm(x))
    return x


def stream_cut(x, attn, mlp, attn_norm, mlp_norm):
    x = x.detach() + attn(attn_norm(x))
    return x.detach() + mlp(mlp_norm(x))


class ListBlock(nn.Module):
    def __init__(self, attn, mlp, attn_norm, mlp_norm):
        super().__init__()
        self.halves = [(attn, attn_norm), (mlp, mlp_norm)]

    def forward(self, x):
        for sublayer, norm in self.halves:
            x = x + sublayer(norm(x))
        return x


PRE_BOTH = [
    Mutant("Post-LN", post, "Post-LN"),
    Mutant(
        "residual after the norm, both",
        normed_residual,
        "In both halves the residual is taken after the norm",
    ),
    Mutant(
        "residual after the norm, attention",
        normed_residual_attn,
        "In attention's half the residual is taken",
    ),
    Mutant(
        "residual after the norm, MLP",
        normed_residual_mlp,
        "In the MLP's half the residual is taken",
    ),
    Mutant(
        "no norm for attention",
        block(_raw, _pre),
        "In attention's half the norm is missing",
    ),
    Mutant(
        "no norm for the MLP",
        block(_pre, _raw),
        "In the MLP's half the norm is missing",
    ),
    Mutant("no norms", block(_raw, _raw), "In both halves the norm is missing"),
    Mutant(
        "no residual for attention",
        block(_bare, _pre),
        "In attention's half the residual is missing",
    ),
    Mutant(
        "no residual for the MLP",
        block(_pre, _bare),
        "In the MLP's half the residual is missing",
    ),
    Mutant(
        "no residuals", block(_bare, _bare), "In both halves the residual is missing"
    ),
    Mutant("norm on what is written", block(_late, _late), "on what it writes"),
    Mutant("side by side", parallel, "side by side"),
    Mutant("the old input again", old_input, "what attention wrote is lost"),
    Mutant("one residual", one_residual, "one residual around both"),
    Mutant("one norm for both", same_norm, "used for both halves"),
    Mutant("norms exchanged", norms_exchanged, "two norms are exchanged"),
    Mutant("MLP first", mlp_first, "MLP comes first"),
    Mutant("a norm at the end", norm_at_end, "two norms, one before the MLP"),
    Mutant("attention twice", attention_twice, "attention is used twice"),
    Mutant(
        "Pre-LN, then Post-LN",
        block(_pre, _post),
        "In the MLP's half the norm stands on the sum",
    ),
    Mutant("input changed", block_in_place, "in place"),
    Mutant("stream cut off", stream_cut, "identity path passes no gradient"),
]
PRE = [
    *PRE_BOTH,
    Mutant("hidden in a list", ListBlock, "of the 6 parameters"),
    Mutant("makes its own parts", lambda d_model, n_heads: None, "no place for"),
]

POST_BOTH = [
    Mutant("Pre-LN", pre, "Pre-LN"),
    Mutant("norm on what is written", block(_late, _late), "on what it writes"),
    Mutant(
        "residual missing, attention",
        block(_lost, _post),
        "In attention's half the residual is missing",
    ),
    Mutant(
        "residual missing, MLP",
        block(_post, _lost),
        "In the MLP's half the residual is missing",
    ),
    Mutant(
        "residuals missing",
        block(_lost, _lost),
        "In both halves the residual is missing",
    ),
    Mutant(
        "norm missing, attention",
        block(_raw, _post),
        "In attention's half the norm is missing",
    ),
    Mutant(
        "norm missing, MLP", block(_post, _raw), "In the MLP's half the norm is missing"
    ),
    Mutant("norms missing", block(_raw, _raw), "In both halves the norm is missing"),
    Mutant(
        "Post-LN, then Pre-LN",
        block(_post, _pre),
        "In the MLP's half the norm stands before",
    ),
    Mutant(
        "norms exchanged",
        lambda x, a, m, na, nm: post(x, a, m, nm, na),
        "two norms are exchanged",
    ),
    Mutant(
        "MLP first", lambda x, a, m, na, nm: post(x, m, a, nm, na), "MLP comes first"
    ),
    Mutant(
        "the old input again",
        lambda x, a, m, na, nm: nm(x + m(na(x + a(x)))),
        "what attention wrote is lost",
    ),
]


class Wrapped(nn.Module):
    """Pre-LN from the book's residual layer and Sequential."""

    def __init__(self, attention, ffn, norm1, norm2):
        super().__init__()
        self.net = nn.Sequential(
            Residual(nn.Sequential(norm1, attention)),
            Residual(nn.Sequential(norm2, ffn)),
        )

    def forward(self, x):
        return self.net(x)


class Loop(nn.Module):
    def __init__(self, attn, mlp, attn_norm, mlp_norm):
        super().__init__()
        self.sublayers = nn.ModuleList([attn, mlp])
        self.norms = nn.ModuleList([attn_norm, mlp_norm])

    def forward(self, x):
        stream = x.clone()
        for sublayer, norm in zip(self.sublayers, self.norms):
            stream += sublayer(norm(stream.clone()))
        return stream


class PostLoop(Loop):
    def forward(self, x):
        for sublayer, norm in zip(self.sublayers, self.norms):
            x = norm(sublayer(x).add(x))
        return x


class PostWrapped(nn.Module):
    def __init__(self, sa, ffwd, ln1, ln2):
        super().__init__()
        self.net = nn.Sequential(Residual(sa), ln1, Residual(ffwd), ln2)

    def forward(self, x):
        return self.net(x)


PRE_RIGHT = {
    "function": pre,
    "module": as_block(pre),
    "the book's own": Block,
    "Sequential": Wrapped,
    "a loop, in place on a copy": Loop,
}
POST_RIGHT = {
    "function": post,
    "module": as_block(post),
    "the book's own": PostNormBlock,
    "Sequential": PostWrapped,
    "a loop": PostLoop,
}


# The exercises of chapters 5 and 8 ----------------------------------------------------


def highway(
    gate=lambda t, f, x: t * f + (1 - t) * x, bias=-15.0, of=lambda z: z.sigmoid()
):
    class Highway(nn.Module):
        def __init__(self, branch, d_model):
            super().__init__()
            self.branch, self.gate = branch, nn.Linear(d_model, d_model)
            nn.init.constant_(self.gate.bias, bias)

        def forward(self, x):
            return gate(of(self.gate(x)), self.branch(x), x)

    return Highway


class HighwayByHand(nn.Module):
    def __init__(self, f, d):
        super().__init__()
        self.f = f
        self.w = nn.Parameter(torch.randn(d, d) / d)
        self.b = nn.Parameter(torch.full((d,), -20.0))

    def forward(self, x):
        t = torch.sigmoid(F.linear(x, self.w, self.b))
        return x + t * (self.f(x) - x)


HIGHWAY = [
    Mutant(
        "shares exchanged", highway(lambda t, f, x: t * x + (1 - t) * f), "wrong side"
    ),
    Mutant("input in full", highway(lambda t, f, x: t * f + x), "added in full"),
    Mutant("no sigmoid", highway(of=lambda z: z), "sigmoid is missing"),
    Mutant("tanh", highway(of=torch.tanh), "tanh"),
    Mutant("input missing", highway(lambda t, f, x: t * f), "input's share is missing"),
    Mutant("bias at 0", highway(bias=0.0), "begin lower"),
]


def contributions(model, tokens):
    terms = [model.embed(tokens)]
    x = terms[0]
    for block in model.blocks:
        for sublayer in (block.attn, block.mlp):
            terms.append(sublayer(x))
            x = x + terms[-1]
    return terms


def contributions_streams(model, tokens):
    found = contributions(model, tokens)
    return list(torch.stack(found).cumsum(0))


def contributions_of_blocks(model, tokens):
    terms = [model.embed(tokens)]
    x = terms[0]
    for block in model.blocks:
        y = block(x)
        terms.append(y - x)
        x = y
    return terms


def contributions_no_embedding(model, tokens):
    return contributions(model, tokens)[1:]


def contributions_from_embedding(model, tokens):
    x = model.embed(tokens)
    return [x, *(part(x) for b in model.blocks for part in (b.attn, b.mlp))]


def contributions_same_input(model, tokens):
    x = model.embed(tokens)
    terms = [x]
    for block in model.blocks:
        terms += [block.attn(x), block.mlp(x)]
        x = x + terms[-1] + terms[-2]
    return terms


def contributions_by_difference(model, tokens):
    x = model.embed(tokens)
    terms = [x]
    for block in model.blocks:
        middle = x + block.attn(x)
        end = block(x)
        terms += [middle - x, end - middle]
        x = end
    return tuple(terms)


CONTRIBUTIONS = [
    Mutant("streams", contributions_streams, "stream so far"),
    Mutant("one for each block", contributions_of_blocks, "too few"),
    Mutant("no embedding", contributions_no_embedding, "embedding is a term"),
    Mutant(
        "all read the embedding", contributions_from_embedding, "given the embedding"
    ),
]


@torch.no_grad()
def order_of(block):
    x = 3 * torch.randn(2, 5, 64) + 1

    def silenced(b, attn=True):
        b = copy.deepcopy(b)
        parts = [b.attn.out, b.mlp.down] if attn else [b.mlp.down]
        for part in parts:
            nn.init.zeros_(part.weight), nn.init.zeros_(part.bias)
        return b

    quiet = silenced(block)(x)
    if not quiet.any():
        return "plain"
    if not torch.equal(quiet, x):
        variance = block(x).var(-1, correction=0).mean()
        return "post" if abs(variance - 1) < 0.01 else "neither"
    block = silenced(block, attn=False)
    update = block(x) - x
    reads = torch.allclose(block(5 * x) - 5 * x, update, atol=0.05)
    for parameter in block.attn.out.parameters():
        parameter.mul_(5)
    writes = torch.allclose(block(x) - x, update, atol=0.05)
    return {(1, 1): "sandwich", (1, 0): "pre", (0, 1): "reordered", (0, 0): "residual"}[
        int(reads), int(writes)
    ]


def order_by_class(block):
    for name, kind in BLOCKS.items():
        if type(block) is kind:
            return name
    has = hasattr(block, "attn_norm")
    return (
        ("pre" if has else "residual")
        if type(block).__name__ != "PlainBlock"
        else "plain"
    )


def order_vandal(block):
    with torch.no_grad():
        block.attn.out.weight.zero_()
    return "plain"


ORDER_OF = [
    Mutant("by the class", order_by_class, "'neither' is taken for 'pre'"),
    Mutant("always pre", lambda block: "pre", "'plain' is taken for 'pre'"),
    Mutant("another name", lambda block: "Pre-LN", "One of these names"),
    Mutant("changes the block", order_vandal, "change a copy"),
]


def compose(order, attn, mlp, attn_norm, mlp_norm):
    halves = []
    for sub, norm in ((attn, attn_norm), (mlp, mlp_norm)):
        halves += {
            "plain": [sub],
            "residual": [Residual(sub)],
            "post": [Residual(sub), norm],
            "pre": [Residual(nn.Sequential(norm, sub))],
            "sandwich": [Residual(nn.Sequential(norm, sub, norm))],
            "reordered": [Residual(nn.Sequential(sub, norm))],
        }[order]
    return nn.Sequential(*halves)


def compose_swap(order, attn, mlp, attn_norm, mlp_norm):
    return compose(
        {"post": "reordered"}.get(order, order), attn, mlp, attn_norm, mlp_norm
    )


def compose_half(order, attn, mlp, attn_norm, mlp_norm):
    return compose(order, attn, mlp, attn_norm, mlp_norm)[
        : -2 if order == "post" else -1
    ]


def compose_one_norm(order, attn, mlp, attn_norm, mlp_norm):
    return compose(order, attn, mlp, mlp_norm, attn_norm)


def compose_mlp_first(order, attn, mlp, attn_norm, mlp_norm):
    return compose(order, mlp, attn, mlp_norm, attn_norm)


def compose_book(order, attn, mlp, attn_norm, mlp_norm):
    if order != "sandwich":
        return BLOCKS[order](attn, mlp, attn_norm, mlp_norm)
    return compose(order, attn, mlp, attn_norm, mlp_norm)


COMPOSE = [
    Mutant("reordered for post", compose_swap, "is the order 'reordered'"),
    Mutant("one half", compose_half, "MLP's half is missing"),
    Mutant("norms exchanged", compose_one_norm, "norms are exchanged"),
    Mutant("MLP first", compose_mlp_first, "MLP comes before"),
]

MUTANTS = {
    "residual": RESIDUAL,
    "pre_block": PRE,
    "post_block": POST_BOTH,
    "highway": HIGHWAY,
    "contributions": CONTRIBUTIONS,
    "order_of": ORDER_OF,
    "compose": COMPOSE,
}
RIGHT = {
    "residual": RESIDUAL_RIGHT,
    "pre_block": PRE_RIGHT,
    "post_block": POST_RIGHT,
    "highway": {"module": highway(), "by hand": HighwayByHand},
    "contributions": {
        "loop": contributions,
        "differences": contributions_by_difference,
    },
    "order_of": {"probes": order_of},
    "compose": {"a table": compose, "the book's blocks": compose_book},
}
AS_MODULES = {
    "residual": [(m, as_residual(m.answer)) for m in RESIDUAL_BOTH],
    "pre_block": [(m, as_block(m.answer)) for m in PRE_BOTH],
    "post_block": [(m, as_block(m.answer)) for m in POST_BOTH],
}
