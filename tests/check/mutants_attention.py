"""Wrong and right attentions: functions of q, k and v, and modules."""

import math

import torch
import torch.nn.functional as F
from planted import Mutant
from torch import nn

from minigpt.attention import CausalSelfAttention, attend


def hidden(t, diagonal=1):
    return torch.ones(t, t, dtype=torch.bool).triu(diagonal)


def scores_of(q, k):
    return q @ k.mT / math.sqrt(q.shape[-1])


def weighted(q, k, v, scores=None, mask=None, fill=-math.inf, dim=-1):
    scores = scores_of(q, k) if scores is None else scores
    mask = hidden(q.shape[-2]) if mask is None else mask
    return scores.masked_fill(mask, fill).softmax(dim) @ v


def no_mask(q, k, v):
    return scores_of(q, k).softmax(-1) @ v


def mask_one_too_many(q, k, v):
    return weighted(q, k, v, mask=hidden(q.shape[-2], 0))


def mask_one_too_few(q, k, v):
    return weighted(q, k, v, mask=hidden(q.shape[-2], 2))


def mask_turned(q, k, v):
    return weighted(q, k, v, mask=hidden(q.shape[-2]).mT)


def mask_after(q, k, v):
    return scores_of(q, k).softmax(-1).masked_fill(hidden(q.shape[-2]), 0) @ v


def mask_of_zeros(q, k, v):
    return weighted(q, k, v, fill=0.0)


def mask_of_one(q, k, v):
    return (scores_of(q, k) - hidden(q.shape[-2]).float()).softmax(-1) @ v


def scaled(factor):
    return lambda q, k, v: weighted(q, k, v, scores=q @ k.mT / factor(q))


def over_queries(q, k, v):
    return weighted(q, k, v, dim=-2)


def over_heads(q, k, v):
    return weighted(q, k, v, dim=1)


def no_softmax(q, k, v):
    return scores_of(q, k).masked_fill(hidden(q.shape[-2]), 0) @ v


def softmax_by_hand(q, k, v):
    e = scores_of(q, k).masked_fill(hidden(q.shape[-2]), -math.inf).exp()
    return e / e.sum(-1, keepdim=True) @ v


def transposed_weights(q, k, v):
    return (
        scores_of(q, k).masked_fill(hidden(q.shape[-2]), -math.inf).softmax(-1).mT @ v
    )


def in_place(q, k, v):
    q /= math.sqrt(q.shape[-1])
    return weighted(q, k, v, scores=q @ k.mT)


def cut(q, k, v):
    weights = scores_of(q, k).masked_fill(hidden(q.shape[-2]), -math.inf).softmax(-1)
    return weights.detach() @ v


def weights_returned(q, k, v):
    return scores_of(q, k).masked_fill(hidden(q.shape[-2]), -math.inf).softmax(-1)


def fixed_length(q, k, v):
    return weighted(q, k, v, mask=hidden(4))


class Separate(nn.Module):
    """Four linear maps; what differs is in `mix`."""

    def __init__(self, d_model, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.query, self.key = nn.Linear(d_model, d_model), nn.Linear(d_model, d_model)
        self.value, self.out = nn.Linear(d_model, d_model), nn.Linear(d_model, d_model)

    def cut(self, x):
        b, t, d = x.shape
        return x.view(b, t, self.n_heads, d // self.n_heads).transpose(1, 2)

    def parts(self, x):
        return (self.cut(m(x)) for m in (self.query, self.key, self.value))

    def forward(self, x):
        y = F.scaled_dot_product_attention(*self.parts(x), is_causal=True)
        return self.out(y.transpose(1, 2).reshape(x.shape))


def separate(mix):
    """The module with another forward."""
    return type("Separate", (Separate,), {"forward": mix})


def sdpa(self, x):
    return F.scaled_dot_product_attention(*self.parts(x), is_causal=True)


def merged_untransposed(self, x):
    return self.out(sdpa(self, x).reshape(x.shape))


def merged_interleaved(self, x):
    return self.out(sdpa(self, x).permute(0, 2, 3, 1).reshape(x.shape))


def merged_reversed(self, x):
    return self.out(sdpa(self, x).flip(1).transpose(1, 2).reshape(x.shape))


def no_out(self, x):
    return sdpa(self, x).transpose(1, 2).reshape(x.shape)


def with_residual(self, x):
    return x + Separate.forward(self, x)


def one_head(self, x):
    q, k, v = (m(x) for m in (self.query, self.key, self.value))
    return self.out(weighted(q, k, v))


def root_of_d_model(self, x):
    q, k, v = self.parts(x)
    scores = q @ k.mT / math.sqrt(x.shape[-1])
    return self.out(weighted(q, k, v, scores).transpose(1, 2).reshape(x.shape))


def dropout_always(self, x):
    y = F.scaled_dot_product_attention(*self.parts(x), is_causal=True, dropout_p=0.5)
    return self.out(y.transpose(1, 2).reshape(x.shape))


def keys_as_queries(self, x):
    q, k, v = self.parts(x)
    return self.out(attend(k, q, v).transpose(1, 2).reshape(x.shape))


def module_no_mask(self, x):
    y = F.scaled_dot_product_attention(*self.parts(x))
    return self.out(y.transpose(1, 2).reshape(x.shape))


def values_raw(self, x):
    q, k, _ = self.parts(x)
    return self.out(attend(q, k, self.cut(x)).transpose(1, 2).reshape(x.shape))


class CutWrongly(Separate):
    def cut(self, x):
        b, t, d = x.shape
        return x.view(b, self.n_heads, t, d // self.n_heads)


class HeadsToHeads(Separate):
    def forward(self, x):
        b, t, d = x.shape
        q, k, v = (
            m(x).view(b, t, self.n_heads, -1)
            for m in (self.query, self.key, self.value)
        )
        return self.out(attend(q, k, v).reshape(b, t, d))


class NoOut(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.n_heads, self.qkv = n_heads, nn.Linear(d_model, 3 * d_model)

    def forward(self, x):
        b, t, _ = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.n_heads, -1).permute(2, 0, 3, 1, 4)
        return attend(q, k, v).transpose(1, 2).reshape(x.shape)


class Tuple(Separate):
    def forward(self, x):
        return super().forward(x), None


class ListOfHeads(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.heads = [Head(d_model, d_model // n_heads) for _ in range(n_heads)]
        self.proj = nn.Linear(d_model, d_model)

    def forward(self, x):
        return self.proj(torch.cat([head(x) for head in self.heads], dim=-1))


class Head(nn.Module):
    def __init__(self, d_model, d_head):
        super().__init__()
        self.key = nn.Linear(d_model, d_head, bias=False)
        self.query = nn.Linear(d_model, d_head, bias=False)
        self.value = nn.Linear(d_model, d_head, bias=False)

    def forward(self, x):
        t = x.shape[1]
        weights = (
            self.query(x) @ self.key(x).transpose(-2, -1) * self.key.out_features**-0.5
        )
        return weights.masked_fill(hidden(t), float("-inf")).softmax(-1) @ self.value(x)


ATTENTION = [
    Mutant("no mask", no_mask, "There is no mask"),
    Mutant("mask off by one: itself hidden", mask_one_too_many, "does not see itself"),
    Mutant("mask off by one: next one seen", mask_one_too_few, "sees the next one"),
    Mutant("mask turned", mask_turned, "wrong way round"),
    Mutant("mask after the softmax", mask_after, "after the softmax"),
    Mutant("mask of zeros", mask_of_zeros, "set to 0"),
    Mutant("mask of minus one", mask_of_one, "1 is subtracted"),
    Mutant(
        "no scale", scaled(lambda q: 1.0), "division by the root of d_head is missing"
    ),
    Mutant("divided by d_head", scaled(lambda q: q.shape[-1]), "*root*"),
    Mutant(
        "multiplied", scaled(lambda q: q.shape[-1] ** -0.5), "multiplied by the root"
    ),
    Mutant("root of d_model", separate(root_of_d_model), "root of d_model"),
    Mutant("root of T", scaled(lambda q: q.shape[-2] ** 0.5), "number of tokens"),
    Mutant("softmax over queries", over_queries, "over the queries"),
    Mutant("softmax over heads", over_heads, "over the heads"),
    Mutant("no softmax", no_softmax, "softmax is missing"),
    Mutant("overflow", softmax_by_hand, "overflow"),
    Mutant("q and k exchanged", lambda q, k, v: attend(k, q, v), "exchanged"),
    Mutant(
        "keys in place of values",
        lambda q, k, v: attend(q, k, k),
        "applied to the keys",
    ),
    Mutant(
        "queries in place of values",
        lambda q, k, v: attend(q, k, q),
        "applied to the queries",
    ),
    Mutant("queries for keys", lambda q, k, v: attend(q, q, v), "keys are not used"),
    Mutant("weights transposed", transposed_weights, "transposed before"),
    Mutant("plain mean", lambda q, k, v: attend(0 * q, k, v), "plain mean"),
    Mutant("weights returned", weights_returned, "shape (2, 2, 4, 4)"),
    Mutant("one length only", fixed_length, "error"),
    Mutant("input changed", in_place, "in place"),
    Mutant("weights cut off", cut, "cut off the graph"),
    Mutant(
        "merged without transpose",
        separate(merged_untransposed),
        "merged in the wrong order",
    ),
    Mutant("merged interleaved", separate(merged_interleaved), "interleaved"),
    Mutant("merged in reverse", separate(merged_reversed), "reverse order"),
    Mutant("cut without transpose", CutWrongly, "cut wrongly"),
    Mutant("heads attend to heads", HeadsToHeads, "Heads attend to heads"),
    Mutant("one head", separate(one_head), "n_heads"),
    Mutant("out not used", separate(no_out), "output map is not used"),
    Mutant("no out", NoOut, "output map is missing"),
    Mutant("residual inside", separate(with_residual), "residual belongs"),
    Mutant("values not mapped", separate(values_raw), "values are not mapped"),
    Mutant("dropout in evaluation", separate(dropout_always), "dropout is still"),
    Mutant("a tuple", Tuple, "tuple"),
    Mutant("heads in a list", ListOfHeads, "hides its layers"),
]
AS_MODULES = {
    "attention": [
        (Mutant("no mask", None, "There is no mask"), separate(module_no_mask)),
        (Mutant("exchanged", None, "exchanged"), separate(keys_as_queries)),
    ]
}


class SeedHeads(nn.Module):
    """A list of heads, as many introductions have it."""

    def __init__(self, n_embd, n_head):
        super().__init__()
        self.heads = nn.ModuleList(
            Head(n_embd, n_embd // n_head) for _ in range(n_head)
        )
        self.proj = nn.Linear(n_embd, n_embd)

    def forward(self, x):
        return self.proj(torch.cat([head(x) for head in self.heads], dim=-1))


class NanoStyle(nn.Module):
    def __init__(self, n_embd, n_head, block_size):
        super().__init__()
        self.c_attn, self.c_proj = (
            nn.Linear(n_embd, 3 * n_embd),
            nn.Linear(n_embd, n_embd),
        )
        self.n_head = n_head
        self.register_buffer("bias", torch.tril(torch.ones(block_size, block_size)))

    def forward(self, x):
        B, T, C = x.size()
        q, k, v = self.c_attn(x).split(C, dim=2)
        q, k, v = (
            t.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
            for t in (q, k, v)
        )
        att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
        att = att.masked_fill(self.bias[:T, :T] == 0, float("-inf"))
        y = F.softmax(att, dim=-1) @ v
        return self.c_proj(y.transpose(1, 2).contiguous().view(B, T, C))


class OfTorch(nn.MultiheadAttention):
    def __init__(self, d_model, n_heads):
        super().__init__(d_model, n_heads, batch_first=True)

    def forward(self, x):
        mask = hidden(x.shape[1])
        return super().forward(x, x, x, attn_mask=mask, need_weights=False)[0]


class Einsum(nn.Module):
    """Interleaved heads, parameters instead of layers."""

    def __init__(self, d_model, n_heads):
        super().__init__()
        self.h = n_heads
        for name in ("a", "b", "c", "d"):
            setattr(self, name, nn.Parameter(torch.randn(d_model, d_model) / d_model))

    def forward(self, x):
        B, T, D = x.shape
        q, k, v = (
            F.linear(x, w).view(B, T, D // self.h, self.h)
            for w in (self.a, self.b, self.c)
        )
        s = torch.einsum("bqkh,bskh->bhqs", q, k) / (D // self.h) ** 0.5
        w = torch.where(hidden(T), -torch.inf, s).softmax(-1)
        y = torch.einsum("bhqs,bskh->bqkh", w, v).reshape(B, T, D)
        return F.linear(y, self.d)


def loops(q, k, v):
    """Token by token."""
    out = []
    for t in range(q.shape[-2]):
        scores = (q[..., t : t + 1, :] * k[..., : t + 1, :]).sum(-1) / q.shape[
            -1
        ] ** 0.5
        weights = torch.softmax(scores, -1).unsqueeze(-1)
        out.append((weights * v[..., : t + 1, :]).sum(-2))
    return torch.stack(out, -2)


ATTENTION_RIGHT = {
    "function": weighted,
    "the book's function": attend,
    "the book's module": CausalSelfAttention,
    "four maps": Separate,
    "a list of heads": SeedHeads,
    "with a buffer": NanoStyle,
    "torch's own": OfTorch,
    "einsum, interleaved": Einsum,
    "loops": loops,
}


# The last token -----------------------------------------------------------------------


def last_token(attn, x, scale=None, keys=slice(None), out=True, mix=False):
    q, k, v = attn.queries_keys_values(x)
    scores = q[:, :, -1:] @ k.mT / (scale or math.sqrt(q.shape[-1]))
    y = scores[..., keys].softmax(-1) @ v[:, :, keys]
    y = y.squeeze(2).mT if mix else y
    return attn.out(y.flatten(1)) if out else y.flatten(1)


def last_by_einsum(attn, x):
    q, k, v = attn.queries_keys_values(x)
    w = (
        torch.einsum("bhk,bhsk->bhs", q[:, :, -1], k)
        .div(q.shape[-1] ** 0.5)
        .softmax(-1)
    )
    return attn.out(torch.einsum("bhs,bhsk->bhk", w, v).flatten(1))


def last_causal(attn, x):
    q, k, v = attn.queries_keys_values(x)
    y = F.scaled_dot_product_attention(q[:, :, -1:], k, v, is_causal=True)
    return attn.out(y.flatten(1))


LAST = [
    Mutant("no scale", lambda a, x: last_token(a, x, 1.0), "root of d_head"),
    Mutant(
        "root of d_model",
        lambda a, x: last_token(a, x, x.shape[-1] ** 0.5),
        "root of d_model",
    ),
    Mutant(
        "no out", lambda a, x: last_token(a, x, out=False), "`attn.out`, is missing"
    ),
    Mutant("heads mixed", lambda a, x: last_token(a, x, mix=True), "side by side"),
    Mutant(
        "without itself",
        lambda a, x: last_token(a, x, keys=slice(-1)),
        "leaves out its own key",
    ),
    Mutant("causal flag", last_causal, "causal mask of one row"),
    Mutant("all tokens", lambda a, x: a(x), "All tokens came back"),
    Mutant("axis left", lambda a, x: last_token(a, x)[:, None], "token axis is left"),
    Mutant("computed and thrown away", lambda a, x: a(x)[:, -1], "thrown away"),
    Mutant("last token alone", lambda a, x: a(x[:, -1:])[:, 0], "last key only"),
    Mutant("the input", lambda a, x: x[:, -1], "input's last token"),
]

MUTANTS = {"attention": ATTENTION, "last_token": LAST}
RIGHT = {
    "attention": ATTENTION_RIGHT,
    "last_token": {"function": last_token, "einsum": last_by_einsum},
}
