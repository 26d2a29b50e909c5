"""Wrong and right answers to the exercises of chapters 1, 4, 6, 7, 11 and 12."""

import itertools
import math
import runpy
from dataclasses import replace
from itertools import pairwise

import torch
import torch.nn.functional as F
from planted import Mutant
from torch import nn

import minigpt.gpt
from minigpt.gpt import GPT
from minigpt.rmsnorm import rms_norm

# Chapter 1 ----------------------------------------------------------------------------


def encode(
    word,
    ranks,
    pick=min,
    ids=True,
    begin=lambda w: [bytes([b]) for b in w.encode()],
    rounds=10**6,
):
    parts = begin(word)
    for _ in range(rounds):
        joined = [a + b for a, b in pairwise(parts)]
        known = [i for i, j in enumerate(joined) if j in ranks]
        if not known:
            break
        at = pick(known, key=lambda i: ranks[joined[i]])
        parts[at : at + 2] = [joined[at]]
    return [ranks[p] for p in parts] if ids else parts


def encode_by_rounds(word, ranks):
    """Every occurrence of one pair at a time."""
    parts = [bytes([b]) for b in word.encode("utf-8")]
    while True:
        pairs = {a + b for a, b in pairwise(parts)} & ranks.keys()
        if not pairs:
            return tuple(ranks[p] for p in parts)
        best, new, i = min(pairs, key=ranks.get), [], 0
        while i < len(parts):
            if i + 1 < len(parts) and parts[i] + parts[i + 1] == best:
                new.append(best)
                i += 2
            else:
                new.append(parts[i])
                i += 1
        parts = new


def encode_longest(word, ranks):
    data, ids = word.encode(), []
    while data:
        n = next(n for n in range(len(data), 0, -1) if data[:n] in ranks)
        ids.append(ranks[data[:n]])
        data = data[n:]
    return ids


def from_letters(word, ranks):
    return [ord(c) for c in word] if not word.isascii() else encode(word, ranks)


ENCODE = [
    Mutant("longest piece", encode_longest, "longest known piece"),
    Mutant("highest rank", lambda w, r: encode(w, r, max), "highest rank"),
    Mutant(
        "first pair", lambda w, r: encode(w, r, lambda k, key: k[0]), "first known pair"
    ),
    Mutant("one pair", lambda w, r: encode(w, r, rounds=1), "One pair is joined"),
    Mutant("nothing joined", lambda w, r: list(w.encode()), "Nothing is joined"),
    Mutant("the parts", lambda w, r: encode(w, r, ids=False), "parts came back"),
    Mutant("letters", from_letters, "Letters were taken"),
]

# Chapter 4 ----------------------------------------------------------------------------


def gain(bend, power=-0.5, of=lambda y: y.square(), centre=False):
    z = torch.linspace(-10, 10, 20001, dtype=torch.float64)
    density = torch.exp(-z.square() / 2) / math.sqrt(2 * math.pi)
    y = bend(z)
    if centre:
        y = y - (y * density).sum() * (z[1] - z[0])
    return ((of(y) * density).sum() * (z[1] - z[0])) ** power


def gain_by_quadrature(bend):
    """The trapezoid's rule."""
    z = torch.linspace(-9, 9, 4001, dtype=torch.float64)
    y = bend(z) ** 2 * torch.exp(-z * z / 2)
    return float(1 / torch.sqrt(torch.trapezoid(y, z) / (2 * math.pi) ** 0.5))


GAIN = [
    Mutant("not rooted", lambda b: gain(b, -1.0), "factor on the variance"),
    Mutant("upside down", lambda b: gain(b, 0.5), "upside down"),
    Mutant("variance", lambda b: gain(b, centre=True), "*variance*"),
    Mutant("absolute", lambda b: 1 / gain(b, 1.0, lambda y: y.abs()), "absolute value"),
    Mutant("always the root of 2", lambda b: math.sqrt(2), "ReLU alone"),
]

# Chapter 6 ----------------------------------------------------------------------------


def backward(grad_y, x, weight, eps=1e-5, **wrong):
    c = x - x.mean(-1, keepdim=True)
    s = (c.square().mean(-1, keepdim=True) + eps).sqrt()
    x_hat = c / s
    g = grad_y * (1 if "late" in wrong or "no_gain" in wrong else weight)
    a = g.mean(-1, keepdim=True) * (0 if "no_mean" in wrong else 1)
    b = (x_hat * g).mean(-1, keepdim=True) * wrong.get("along", 1)
    grad = (g - a - x_hat * b) / (1 if "no_s" in wrong else s)
    return grad * weight if "late" in wrong else grad


def wrongly(**wrong):
    return lambda grad_y, x, weight, eps: backward(grad_y, x, weight, eps, **wrong)


def backward_by_matrix(grad_y, x, weight, eps):
    """With the whole Jacobian."""
    n = x.shape[-1]
    c = x - x.mean(-1, keepdim=True)
    s = (c.square().mean(-1, keepdim=True) + eps).sqrt()
    h = c / s
    outer = h.unsqueeze(-1) * h.unsqueeze(-2)
    jacobian = torch.eye(n, dtype=x.dtype) - 1 / n - outer / n
    return (jacobian @ (grad_y * weight).unsqueeze(-1)).squeeze(-1) / s


BACKWARD = [
    Mutant("gain last", wrongly(late=1), "after the two means"),
    Mutant("no gain", wrongly(no_gain=1), "gain is not used"),
    Mutant("not divided", wrongly(no_s=1), "standard deviation is missing"),
    Mutant("no mean", wrongly(no_mean=1), "mean of the gradient"),
    Mutant("no x̂", wrongly(along=0), "term with x̂ is missing"),
    Mutant("wrong sign", wrongly(along=-1), "wrong sign"),
    Mutant("constants", wrongly(along=0, no_mean=1), "count as constants"),
    Mutant(
        "eps fixed",
        lambda grad_y, x, weight, eps: backward(grad_y, x, weight, 1e-5),
        "always 1e-5",
    ),
    Mutant(
        "eps left out",
        lambda grad_y, x, weight, eps: backward(grad_y, x, weight, 0.0),
        "plays no part",
    ),
]


def sphere(x, root=True, centre=True, power=0.5):
    c = x - x.mean(-1, keepdim=True) if centre else x
    return F.normalize(c, dim=-1) * (x.shape[-1] ** power if root else 1)


def sphere_by_hand(x):
    c = x - torch.einsum("...d->...", x).unsqueeze(-1) / x.shape[-1]
    return c * x.shape[-1] ** 0.5 / c.norm(dim=-1, keepdim=True).clamp(min=1e-12)


SPHERE = [
    Mutant("length 1", lambda x: sphere(x, root=False), "length is 1"),
    Mutant("length D", lambda x: sphere(x, power=1), "*root*"),
    Mutant("not centred", lambda x: sphere(x, centre=False), "RMSNorm"),
    Mutant("neither", lambda x: sphere(x, False, False), "Neither"),
    Mutant("LayerNorm", lambda x: F.layer_norm(x, x.shape[-1:]), "full length"),
    Mutant(
        "dim=1",
        lambda x: x.shape[-1] ** 0.5 * F.normalize(x - x.mean(-1, keepdim=True), dim=1),
        "along the sentence",
    ),
]

# Chapter 7 ----------------------------------------------------------------------------


def partial(x, weight, p, eps=1e-6, cut=lambda n, p: slice(max(1, round(p * n)))):
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    first = wide[..., cut(x.shape[-1], p)]
    scale = torch.rsqrt(first.square().mean(-1, keepdim=True) + eps)
    return (wide * scale * weight).to(x.dtype)


def partial_by_mask(x, weight, p, eps):
    n = x.shape[-1]
    k = max(1, int(p * n + 0.5))
    mask = (torch.arange(n) < k).float()
    size = ((x.float() ** 2 * mask).sum(-1, keepdim=True) / k + eps) ** 0.5
    return (x.float() / size).type_as(x) * weight


def partial_by_d(x, weight, p, eps):
    n = x.shape[-1]
    size = x[..., : max(1, round(p * n))].square().sum(-1, keepdim=True) / n
    return x / (size + eps).sqrt() * weight


def partial_only(x, weight, p, eps):
    k = round(p * x.shape[-1])
    y = x.clone()
    y[..., :k] = x[..., :k] / (x[..., :k].square().mean(-1, keepdim=True) + eps).sqrt()
    return y * weight


PARTIAL = [
    Mutant("p not used", lambda x, w, p, eps: partial(x, w, 1.0, eps), "p is not used"),
    Mutant(
        "the last",
        lambda x, w, p, eps: partial(
            x, w, p, eps, lambda n, p: slice(n - round(p * n), None)
        ),
        "last numbers",
    ),
    Mutant("divided by D", partial_by_d, "divided by D"),
    Mutant("only the part", partial_only, "Only the part"),
    Mutant(
        "every other",
        lambda x, w, p, eps: partial(
            x, w, p, eps, lambda n, p: slice(None, None, round(1 / p))
        ),
        "Every other",
    ),
    Mutant(
        "no gain",
        lambda x, w, p, eps: partial(x, 1 + 0 * w, p, eps),
        "gain is not used",
    ),
    Mutant("eps left out", lambda x, w, p, eps: partial(x, w, p, 0.0), "plays no part"),
    Mutant(
        "float32 back",
        lambda x, w, p, eps: partial(x.float(), w.float(), p, eps),
        "float16 came in",
    ),
    Mutant(
        "an empty part",
        lambda x, w, p, eps: partial(x, w, p, eps, lambda n, p: slice(round(p * n))),
        "One number at least",
    ),
]


def plus_one(
    gain=lambda w, x: 1 + w.float(), start=torch.zeros, take=lambda w: w - 1, eps=True
):
    class PlusOneNorm(nn.Module):
        def __init__(self, size, eps=1e-6):
            super().__init__()
            self.eps, self.weight = eps, nn.Parameter(start(size))

        def forward(self, x):
            return rms_norm(x, gain(self.weight, x), self.eps)

        @torch.no_grad()
        def take_over(self, norm):
            self.weight.copy_(take(norm.weight))
            if eps:
                self.eps = norm.eps

    return PlusOneNorm


class GemmaStyle(nn.Module):
    def __init__(self, size, eps=1e-6):
        super().__init__()
        self.eps, self.scale = eps, nn.Parameter(torch.zeros(size))

    def forward(self, x):
        y = x.float()
        y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + self.eps)
        return (y * (1.0 + self.scale.float())).type_as(x)

    @classmethod
    def _new(cls):
        return cls(1)

    def load_from(self, other):
        self.eps = other.eps
        self.scale.data = other.weight.detach() - 1


PLUS_ONE = [
    Mutant("starts at 1", plus_one(start=torch.ones), "begins at 0"),
    Mutant("no 1", plus_one(gain=lambda w, x: w), "The gain is the weight, 0 at first"),
    Mutant("sum in bfloat16", plus_one(gain=lambda w, x: 1 + w), "1.0078"),
    Mutant("copied as it is", plus_one(take=lambda w: w), "take 1 off it."),
    Mutant("added again", plus_one(take=lambda w: w + 1), "1 is added to the weight"),
    Mutant("eps not taken over", plus_one(eps=False), "eps is not"),
]

# Chapters 11 and 12 -------------------------------------------------------------------


def crop(model, context, rows=lambda table, n: table[:n], refuse=True):
    old = model.config.context
    if context > old and refuse:
        raise ValueError(f"context={context} is longer than the model's {old}")
    state = model.state_dict()
    state["pos_emb.weight"] = rows(state["pos_emb.weight"], context)
    shorter = GPT(replace(model.config, context=context))
    shorter.load_state_dict(state)
    return shorter


def crop_by_copying(model, context):
    if context > model.config.context:
        raise ValueError(f"{model.config.context} rows cannot become {context}")
    new = GPT(replace(model.config, context=context))
    with torch.no_grad():
        for (name, to), (_, of) in zip(
            new.named_parameters(), model.named_parameters(), strict=True
        ):
            to.copy_(of[:context] if name == "pos_emb.weight" else of)
    return new


def crop_as_in_the_notebook(model, context):
    """With a class GPT that is not the package's: that of the chapter's own cells."""
    own = runpy.run_path(minigpt.gpt.__file__)
    if context > model.config.context:
        raise ValueError(f"{model.config.context} rows cannot become {context}")
    new = own["GPT"](replace(model.config, context=context))
    state = model.state_dict()
    state["pos_emb.weight"] = state["pos_emb.weight"][:context]
    new.load_state_dict(state)
    return new


def crop_grows(model, context):
    def rows(table, n):
        extra = torch.zeros(max(0, n - len(table)), table.shape[1])
        return torch.cat([table[:n], extra])

    return crop(model, context, rows, refuse=False)


def crop_in_place(model, context):
    model.pos_emb.weight.data = model.pos_emb.weight.data[:context]
    return model


def crop_without_words(model, context):
    if context > model.config.context:
        raise ValueError("too long")
    return crop(model, context)


def crop_fresh(model, context):
    return GPT(replace(model.config, context=context))


CROP = [
    Mutant("last rows", lambda m, c: crop(m, c, lambda t, n: t[-n:]), "last rows"),
    Mutant("grows", crop_grows, "accepted"),
    Mutant(
        "refused by torch", lambda m, c: crop(m, c, refuse=False), "came from inside"
    ),
    Mutant("changes the model", crop_in_place, "was changed"),
    Mutant("no numbers", crop_without_words, "does not name both"),
    Mutant("fresh weights", crop_fresh, "first rows"),
    Mutant("the same model", lambda m, c: m, "given model came back"),
    Mutant("a table", lambda m, c: m.pos_emb.weight[:c].clone(), "A GPT is wanted"),
]


def hold(done):
    return max(0.0, (done - 0.8) / 0.2)


HOLD = [
    Mutant("what is left", lambda done: 1 - hold(done), "how far it has *fallen*"),
    Mutant("from the start", lambda done: done, "from the start"),
    Mutant("below zero", lambda done: (done - 0.8) / 0.2, "Below zero"),
    Mutant("not down", lambda done: max(0.0, done - 0.8), "does not reach 1"),
    Mutant("a jump", lambda done: float(done >= 0.999), "A jump"),
]

# Chapter 11, the leak; chapter 13 -----------------------------------------------------


def leaks(shift, mix=True, last=5):
    if mix:
        nn.init.normal_(shift.mix)
    x = torch.randn(1, 6, 32)
    other = torch.cat((x[:, :5], torch.randn(1, 1, 32)), dim=1)
    return not torch.equal(shift(x)[:, :last], shift(other)[:, :last])


def leaks_by_gradient(shift):
    shift.mix.data.fill_(0.5)
    x = torch.randn(1, 4, 32, requires_grad=True)
    (gradient,) = torch.autograd.grad(shift(x)[:, 1].square().sum(), x)
    return gradient[:, 2:].abs().max() > 0


LEAK = [
    Mutant("mix at zero", lambda s: leaks(s, mix=False), "`mix` begins at zero"),
    Mutant("all outputs", lambda s: leaks(s, last=6), "right shift is accused"),
    Mutant("a number", lambda s: 0.3, "True or False"),
]


def flips(values, count=lambda total, found: abs(total) >= abs(found) - 1e-12):
    found = sum(values)
    patterns = itertools.product((-1, 1), repeat=len(values))
    totals = [sum(s * v for s, v in zip(p, values, strict=True)) for p in patterns]
    return sum(count(total, found) for total in totals) / len(totals)


def flips_by_tensor(values):
    x = torch.tensor(values, dtype=torch.float64)
    signs = torch.cartesian_prod(*[torch.tensor([-1.0, 1.0]).double()] * len(values))
    totals = (signs.reshape(-1, len(values)) * x).sum(-1).abs()
    return (totals >= x.sum().abs() - 1e-9).double().mean()


FLIPS = [
    Mutant(
        "one side", lambda v: flips(v, lambda t, f: t >= f - 1e-12), "One side only"
    ),
    Mutant(
        "further only",
        lambda v: flips(v, lambda t, f: abs(t) > abs(f) + 1e-12),
        "further away",
    ),
    Mutant(
        "no tolerance", lambda v: flips(v, lambda t, f: abs(t) >= abs(f)), "tolerance"
    ),
    Mutant("a count", lambda v: flips(v) * 2 ** len(v), "a count"),
    Mutant("per cent", lambda v: 100 * flips(v), "per cent"),
    Mutant("the others", lambda v: 1 - flips(v), "the others"),
]


def flattery(n, of=lambda draws: -draws.min(dim=1).values, repeats=20_000):
    return of(torch.randn(repeats, n)).mean().item()


def flattery_by_numbers(n):
    """The largest of n, by the density of the maximum."""
    z = torch.linspace(-8, 8, 8001, dtype=torch.float64)
    below = torch.special.ndtr(z)
    return (
        torch.trapezoid(z * n * below ** (n - 1) * torch.exp(-z * z / 2), z)
        / (2 * math.pi) ** 0.5
    )


FLATTERY = [
    Mutant("the sign", lambda n: -flattery(n), "The sign"),
    Mutant("the mean", lambda n: flattery(n, lambda d: d.mean(1)), "mean of the runs"),
    Mutant(
        "absolute",
        lambda n: flattery(n, lambda d: d.min(dim=1).values.abs()),
        "Absolute values",
    ),
    Mutant(
        "largest distance",
        lambda n: flattery(n, lambda d: d.amax(1) - d.amin(1)),
        "another mean",
    ),
]

MUTANTS = {
    "sees_the_future": LEAK,
    "sign_flips": FLIPS,
    "flattery": FLATTERY,
    "encode_word": ENCODE,
    "gain": GAIN,
    "layer_norm_backward": BACKWARD,
    "on_the_sphere": SPHERE,
    "partial_rms_norm": PARTIAL,
    "plus_one_norm": PLUS_ONE,
    "crop": CROP,
    "hold": HOLD,
}
RIGHT = {
    "sees_the_future": {"outputs": leaks, "gradients": leaks_by_gradient},
    "sign_flips": {"product": flips, "tensor": flips_by_tensor},
    "flattery": {"draws": flattery, "integral": flattery_by_numbers},
    "encode_word": {"pair by pair": encode, "round by round": encode_by_rounds},
    "gain": {"a sum": gain, "quadrature": gain_by_quadrature},
    "layer_norm_backward": {"means": backward, "the matrix": backward_by_matrix},
    "on_the_sphere": {"normalize": sphere, "by hand": sphere_by_hand},
    "partial_rms_norm": {"a slice": partial, "a mask": partial_by_mask},
    "plus_one_norm": {"module": plus_one(), "Gemma's": GemmaStyle},
    "crop": {
        "a state dict": crop,
        "copies": crop_by_copying,
        "a class of its own": crop_as_in_the_notebook,
    },
    "hold": {"max": hold, "if": lambda done: 0.0 if done < 0.8 else 5 * (done - 0.8)},
}
