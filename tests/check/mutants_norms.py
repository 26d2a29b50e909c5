"""Wrong and right norms. A mutant is tried as a function and as a module."""

import torch
import torch.nn.functional as F
from planted import Mutant, as_layer_norm, as_rms_norm
from torch import nn


def wide(x):
    return x.to(torch.promote_types(x.dtype, torch.float32))


# RMSNorm ------------------------------------------------------------------------------


def rms(x, weight, eps):
    w = wide(x)
    y = w * torch.rsqrt(w.square().mean(-1, keepdim=True) + eps) * weight
    return y.to(x.dtype)


def mean_removed(x, weight, eps):
    x = x - x.mean(-1, keepdim=True)
    return x / (x.pow(2).mean(-1, keepdim=True) + eps).sqrt() * weight


def std_of_torch(x, weight, eps):
    return x / (x.std(-1, keepdim=True) + eps) * weight


def n_minus_1(x, weight, eps):
    mean_square = x.pow(2).sum(-1, keepdim=True) / (x.shape[-1] - 1)
    return x / (mean_square + eps).sqrt() * weight


def eps_outside(x, weight, eps):
    return x / (x.pow(2).mean(-1, keepdim=True).sqrt() + eps) * weight


def eps_fixed(x, weight, eps):
    return x / (x.pow(2).mean(-1, keepdim=True) + 1e-6).sqrt() * weight


def eps_squared(x, weight, eps):
    return x / (x.pow(2).mean(-1, keepdim=True) + eps**2).sqrt() * weight


def eps_clamped(x, weight, eps):
    return x / x.pow(2).mean(-1, keepdim=True).clamp(min=eps).sqrt() * weight


def eps_before_mean(x, weight, eps):
    mean_square = (x.pow(2).sum(-1, keepdim=True) + eps) / x.shape[-1]
    return x / mean_square.sqrt() * weight


def no_root(x, weight, eps):
    return x / (x.pow(2).mean(-1, keepdim=True) + eps) * weight


def length(x, weight, eps):
    return x / (x.pow(2).sum(-1, keepdim=True) + eps).sqrt() * weight


def multiplied(x, weight, eps):
    return x * (x.pow(2).mean(-1, keepdim=True) + eps).sqrt() * weight


def divided_by_rsqrt(x, weight, eps):
    return x / torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * weight


def absolute(x, weight, eps):
    return x / (x.abs().mean(-1, keepdim=True) + eps) * weight


def square_of_mean(x, weight, eps):
    return x / (x.mean(-1, keepdim=True).pow(2) + eps).sqrt() * weight


def forgot_x(x, weight, eps):
    return (torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * weight).expand_as(x)


def no_mean(x, weight, eps):
    return x / (x.pow(2) + eps).sqrt() * weight


def gain_twice(x, weight, eps):
    return rms(x, weight, eps) * weight


def gain_ignored(x, weight, eps):
    return rms(x, 1 + 0 * weight, eps)


def gain_added(x, weight, eps):
    return rms(x, torch.ones_like(weight), eps) + weight - 1


def gain_first(x, weight, eps):
    return rms(x * weight, torch.ones_like(weight), eps)


def one_plus(x, weight, eps):
    return rms(x, 1 + weight, eps)


def wrong_axis(x, weight, eps):
    dim = 1 if x.ndim > 1 else 0
    return x / (x.pow(2).mean(dim, keepdim=True) + eps).sqrt() * weight


def along_batch(x, weight, eps):
    return x / (x.pow(2).mean(0, keepdim=True) + eps).sqrt() * weight


def batch_and_time(x, weight, eps):
    dims = tuple(range(x.ndim - 1))
    return x / (x.pow(2).mean(dims, keepdim=True) + eps).sqrt() * weight


def whole_tensor(x, weight, eps):
    return x / (x.pow(2).mean() + eps).sqrt() * weight


def whole_sentence(x, weight, eps):
    return x / (x.pow(2).mean((-2, -1), keepdim=True) + eps).sqrt() * weight


def no_cast_back(x, weight, eps):
    x = x.float()
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * weight.float()


def half_squares(x, weight, eps):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * weight


def late_upcast(x, weight, eps):
    mean_square = x.pow(2).float().mean(-1, keepdim=True)
    return (x.float() * torch.rsqrt(mean_square + eps)).to(x.dtype) * weight


def in_place(x, weight, eps):
    x *= torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps)
    return x * weight


def statistics_cut(x, weight, eps):
    w = wide(x)
    scale = torch.rsqrt(w.detach().square().mean(-1, keepdim=True) + eps)
    return (w * scale * weight).to(x.dtype)


def all_cut(x, weight, eps):
    return rms(x.detach(), weight.detach(), eps)


def three_dimensions(x, weight, eps):
    b, t, d = x.shape if x.ndim == 3 else (1, *x.shape)
    return rms(x, weight, eps).view(b, t, d)


def viewed(x, weight, eps):
    return rms(x.view(-1, x.shape[-1]), weight, eps).view(x.shape)


def as_list(x, weight, eps):
    return [rms(x, weight, eps)]


def no_keepdim(x, weight, eps):
    return x / (x.pow(2).mean(-1) + eps).sqrt() * weight


class NoSuper(nn.Module):
    def __init__(self, size, eps=1e-6):
        self.eps, self.weight = eps, nn.Parameter(torch.ones(size))

    def forward(self, x):
        return rms(x, self.weight, self.eps)


class PlainTensor(nn.Module):
    def __init__(self, size, eps=1e-6):
        super().__init__()
        self.eps, self.weight = eps, torch.ones(size)

    def forward(self, x):
        return rms(x, self.weight, self.eps)


class NoGain(nn.Module):
    def __init__(self, size, eps=1e-6):
        super().__init__()
        self.eps = eps

    def forward(self, x):
        return rms(x, torch.ones(x.shape[-1]), self.eps)


class RandomGain(nn.Module):
    def __init__(self, size, eps=1e-6):
        super().__init__()
        self.eps, self.weight = eps, nn.Parameter(torch.randn(size))

    def forward(self, x):
        return rms(x, self.weight, self.eps)


class OneGain(nn.Module):
    def __init__(self, size, eps=1e-6):
        super().__init__()
        self.eps, self.weight = eps, nn.Parameter(torch.ones(1))

    def forward(self, x):
        return rms(x, self.weight, self.eps)


class Shifted(nn.Module):
    def __init__(self, size, eps=1e-6):
        super().__init__()
        self.eps, self.weight = eps, nn.Parameter(torch.ones(size))
        self.bias = nn.Parameter(torch.zeros(size))

    def forward(self, x):
        return rms(x, self.weight, self.eps) + self.bias


class GainNotTrained(nn.Module):
    def __init__(self, size, eps=1e-6):
        super().__init__()
        self.eps, self.weight = eps, nn.Parameter(torch.ones(size))

    def forward(self, x):
        return rms(x, self.weight.data, self.eps)


class NoForward(nn.Module):
    def __init__(self, size, eps=1e-6):
        super().__init__()
        self.eps, self.weight = eps, nn.Parameter(torch.ones(size))

    def foward(self, x):
        return rms(x, self.weight, self.eps)


RMSNORM_BOTH = [
    Mutant("mean removed", mean_removed, "mean is subtracted"),
    Mutant("torch's std", std_of_torch, "`std`"),
    Mutant("n - 1", n_minus_1, "n - 1"),
    Mutant("no square root", no_root, "square root is missing"),
    Mutant("length, not rms", length, "length"),
    Mutant("multiplied by the root", multiplied, "multiply by the root"),
    Mutant("mean of absolute values", absolute, "absolute values"),
    Mutant("square of the mean", square_of_mean, "square of the mean"),
    Mutant("x forgotten", forgot_x, "multiply x by it"),
    Mutant("no mean", no_mean, "signs"),
    Mutant("eps outside the root", eps_outside, "outside the square root"),
    Mutant("eps ignored", eps_fixed, "not the one that was given"),
    Mutant("eps squared", eps_squared, "squared"),
    Mutant("eps as lower limit", eps_clamped, "lower limit of the mean square"),
    Mutant("eps before the mean", eps_before_mean, "sum of squares"),
    Mutant("gain twice", gain_twice, "applied twice"),
    Mutant("gain ignored", gain_ignored, "is not used"),
    Mutant("gain before the statistics", gain_first, "before the statistics"),
    Mutant("over the tokens", wrong_axis, "along the sentence"),
    Mutant("over the batch", along_batch, "along the batch"),
    Mutant("over batch and time", batch_and_time, "over batch and time"),
    Mutant("over the whole tensor", whole_tensor, "whole tensor"),
    Mutant("over a whole sentence", whole_sentence, "whole sentence"),
    Mutant("no cast back", no_cast_back, "cast back"),
    Mutant("squares in half precision", half_squares, "float16"),
    Mutant("input changed", in_place, "in place"),
    Mutant("statistics cut off", statistics_cut, "cut off the graph"),
    Mutant("all cut off", all_cut, "No gradient passes"),
    Mutant("three dimensions only", three_dimensions, "number of dimensions"),
    Mutant("view", viewed, "contiguous"),
    Mutant("a list returned", as_list, "list"),
    Mutant("no keepdim", no_keepdim, "keepdim"),
]
RMSNORM = [
    *RMSNORM_BOTH,
    Mutant("gain 1 + weight", one_plus, "Gemma"),
    Mutant(
        "gain added", as_rms_norm(lambda x, w, e: rms(x, 0 * w + 1, e) + w), "added"
    ),
    Mutant("no super().__init__()", NoSuper, "super().__init__()"),
    Mutant("gain a plain tensor", PlainTensor, "plain tensor"),
    Mutant("no gain", NoGain, "no parameter for the gain"),
    Mutant("random gain", RandomGain, "begin at 1"),
    Mutant("one gain for all", OneGain, "one number for each"),
    Mutant("a shift", Shifted, "adds a shift"),
    Mutant("gain without gradient", GainNotTrained, "gain gets no gradient"),
    Mutant("forward misspelled", NoForward, "no method `forward`"),
]


class Plain(nn.Module):
    """As in most books."""

    def __init__(self, dim, eps=1e-6):
        super().__init__()
        self.eps = eps
        self.g = nn.Parameter(torch.ones(dim))

    def _norm(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps)

    def forward(self, x):
        return self._norm(x.float()).type_as(x) * self.g


class Einsum(nn.Module):
    def __init__(self, size, *, epsilon):
        super().__init__()
        self.add = epsilon
        self.inner = nn.ParameterDict({"s": torch.ones(1, size)})

    def forward(self, x):
        w = x.double()
        size = torch.einsum("...d,...d->...", w, w) / w.shape[-1]
        y = torch.einsum(
            "...d,...,d->...d", w, (size + self.add) ** -0.5, self.inner["s"][0]
        )
        return y.to(x.dtype)


class OfTorch(nn.RMSNorm):
    pass


class InPlaceOnACopy(nn.Module):
    def __init__(self, n, e=1e-6):
        super().__init__()
        self.e, self.w = e, nn.Parameter(torch.full((n,), 1.0))

    def forward(self, t):
        y = t.to(torch.promote_types(t.dtype, torch.float32)).clone()
        scale = (y**2).sum(-1, keepdim=True).div_(y.size(-1)).add_(self.e).sqrt_()
        return (y / scale).mul_(self.w).to(t.dtype)


def slow(x, weight, eps):
    """Row by row, in Python."""
    rows = []
    for row in x.reshape(-1, x.shape[-1]):
        total = sum(number.float() ** 2 for number in row) / len(row)
        rows.append((row.float() / (total + eps) ** 0.5 * weight.float()).to(x.dtype))
    return torch.stack(rows).reshape(x.shape)


RMSNORM_RIGHT = {
    "function": rms,
    "module": Plain,
    "einsum, other names": Einsum,
    "torch's own": nn.RMSNorm,
    "subclass of torch's own": OfTorch,
    "in place on a copy": InPlaceOnACopy,
    "loops": slow,
    "lambda that makes one": lambda size, eps: nn.RMSNorm(size, eps=eps),
    "functional": lambda x, weight, eps: F.rms_norm(x, x.shape[-1:], weight, eps),
}


# LayerNorm ----------------------------------------------------------------------------


def ln(x, weight, bias, eps):
    w = wide(x)
    c = w - w.mean(-1, keepdim=True)
    y = c * torch.rsqrt(c.square().mean(-1, keepdim=True) + eps) * weight + bias
    return y.to(x.dtype)


def ln_with(scale, dim=-1):
    """LayerNorm with centred / scale(variance, eps)."""

    def function(x, weight, bias, eps):
        c = x - x.mean(dim, keepdim=True)
        return c / scale(c.pow(2).mean(dim, keepdim=True), eps) * weight + bias

    return function


def ln_std(x, weight, bias, eps):
    return (x - x.mean(-1, keepdim=True)) / (
        x.std(-1, keepdim=True) + eps
    ) * weight + bias


def ln_var(x, weight, bias, eps):
    var = x.var(-1, keepdim=True)
    return (x - x.mean(-1, keepdim=True)) / torch.sqrt(var + eps) * weight + bias


def ln_no_mean(x, weight, bias, eps):
    var = x.var(-1, keepdim=True, unbiased=False)
    return x / torch.sqrt(var + eps) * weight + bias


def ln_is_rms(x, weight, bias, eps):
    return rms(x, weight, eps) + bias


def ln_raw_square(x, weight, bias, eps):
    c = x - x.mean(-1, keepdim=True)
    return c / (x.pow(2).mean(-1, keepdim=True) + eps).sqrt() * weight + bias


def ln_centred_only(x, weight, bias, eps):
    return (x - x.mean(-1, keepdim=True)) * weight + bias


def ln_length(x, weight, bias, eps):
    return F.normalize(x - x.mean(-1, keepdim=True), dim=-1, eps=eps) * weight + bias


def ln_one_pass(x, weight, bias, eps):
    mean = x.mean(-1, keepdim=True)
    var = x.pow(2).mean(-1, keepdim=True) - mean.pow(2)
    return (x - mean) / (var + eps).sqrt() * weight + bias


def ln_no_shift(x, weight, bias, eps):
    return ln(x, weight, 0 * bias, eps)


def ln_shift_first(x, weight, bias, eps):
    return (ln(x, weight * 0 + 1, bias, eps)) * weight


def ln_exchanged(x, weight, bias, eps):
    return ln(x, 1 + bias, weight - 1, eps)


def ln_gain_twice(x, weight, bias, eps):
    return ln(x, weight * weight, bias, eps)


def ln_no_gain(x, weight, bias, eps):
    return ln(x, weight * 0 + 1, bias, eps)


def ln_no_cast(x, weight, bias, eps):
    return ln(x.float(), weight.float(), bias.float(), eps)


def ln_in_place(x, weight, bias, eps):
    x -= x.mean(-1, keepdim=True)
    return ln(x, weight, bias, eps)


def ln_cut(x, weight, bias, eps):
    w = wide(x)
    mean = w.detach().mean(-1, keepdim=True)
    var = w.detach().var(-1, correction=0, keepdim=True)
    return ((w - mean) / (var + eps).sqrt() * weight + bias).to(x.dtype)


def ln_batch(x, weight, bias, eps):
    dims = tuple(range(x.ndim - 1))
    mean, var = x.mean(dims), x.var(dims, correction=0)
    return (x - mean) / (var + eps).sqrt() * weight + bias


def ln_whole(x, weight, bias, eps):
    return (x - x.mean()) / (x.var(correction=0) + eps).sqrt() * weight + bias


def ln_last_two(x, weight, bias, eps):
    mean = x.mean((-2, -1), keepdim=True)
    var = x.var((-2, -1), correction=0, keepdim=True)
    return (x - mean) / (var + eps).sqrt() * weight + bias


def ln_min_max(x, weight, bias, eps):
    low, high = x.amin(-1, keepdim=True), x.amax(-1, keepdim=True)
    return (x - low) / (high - low + eps) * weight + bias


class LnWithoutBias(nn.Module):
    def __init__(self, size, eps=1e-5):
        super().__init__()
        self.eps, self.weight = eps, nn.Parameter(torch.ones(size))

    def forward(self, x):
        return ln(x, self.weight, 0, self.eps)


class LnPlainShift(nn.Module):
    def __init__(self, size, eps=1e-5):
        super().__init__()
        self.eps, self.weight = eps, nn.Parameter(torch.ones(size))
        self.bias = torch.zeros(size)

    def forward(self, x):
        return ln(x, self.weight, self.bias, self.eps)


class LnShiftBeginsAtOne(nn.Module):
    def __init__(self, size, eps=1e-5):
        super().__init__()
        self.eps, self.weight = eps, nn.Parameter(torch.ones(size))
        self.bias = nn.Parameter(torch.ones(size))

    def forward(self, x):
        return ln(x, self.weight, self.bias, self.eps)


class LnNoEps(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.weight, self.bias = (
            nn.Parameter(torch.ones(size)),
            nn.Parameter(torch.zeros(size)),
        )

    def forward(self, x):
        return ln(x, self.weight, self.bias, 1e-5)


LAYERNORM_BOTH = [
    Mutant("n - 1 and eps outside", ln_std, "n - 1"),
    Mutant("mean not subtracted", ln_no_mean, "mean is not subtracted before"),
    Mutant("RMSNorm", ln_is_rms, "RMSNorm"),
    Mutant("variance of x squared", ln_raw_square, "average x squared"),
    Mutant("no square root", ln_with(lambda v, e: v + e), "square root is missing"),
    Mutant("centred only", ln_centred_only, "nothing is divided"),
    Mutant("length, not std", ln_length, "length of the centred vector"),
    Mutant("divided by rsqrt", ln_with(lambda v, e: torch.rsqrt(v + e)), "multiply"),
    Mutant("min and max", ln_min_max, "between smallest and largest"),
    Mutant(
        "eps outside the root",
        ln_with(lambda v, e: v.sqrt() + e),
        "outside the square root",
    ),
    Mutant(
        "eps ignored",
        ln_with(lambda v, e: (v + 1e-5).sqrt()),
        "not the one that was given",
    ),
    Mutant("eps squared", ln_with(lambda v, e: (v + e * e).sqrt()), "squared"),
    Mutant(
        "eps as lower limit", ln_with(lambda v, e: v.clamp(min=e).sqrt()), "lower limit"
    ),
    Mutant("eps twice", ln_with(lambda v, e: (v + e).sqrt() + e), "outside again"),
    Mutant("one-pass variance", ln_one_pass, "E[x²]"),
    Mutant("no shift", ln_no_shift, "shift is not used"),
    Mutant("shift before gain", ln_shift_first, "shift is added before the gain"),
    Mutant("gain twice", ln_gain_twice, "applied twice"),
    Mutant("gain ignored", ln_no_gain, "gain is not used"),
    Mutant(
        "over the tokens",
        ln_with(lambda v, e: (v + e).sqrt(), dim=1),
        "along the sentence",
    ),
    Mutant(
        "over the batch", ln_with(lambda v, e: (v + e).sqrt(), dim=0), "along the batch"
    ),
    Mutant("over batch and time", ln_batch, "over batch and time"),
    Mutant("over the whole tensor", ln_whole, "whole tensor"),
    Mutant("over a whole sentence", ln_last_two, "whole sentence"),
    Mutant("no cast back", ln_no_cast, "cast back"),
    Mutant(
        "squares in half precision", ln_with(lambda v, e: (v + e).sqrt()), "float16"
    ),
    Mutant("input changed", ln_in_place, "in place"),
    Mutant("statistics cut off", ln_cut, "cut off the graph"),
]
LAYERNORM = [
    *LAYERNORM_BOTH,
    Mutant("no shift at all", LnWithoutBias, "shift"),
    Mutant("shift a plain tensor", LnPlainShift, "plain tensor"),
    Mutant("shift begins at 1", LnShiftBeginsAtOne, "begin at 0"),
    Mutant("no eps", LnNoEps, "no place for `eps`"),
]


class LnPlain(nn.Module):
    def __init__(self, emb_dim, eps=1e-5):
        super().__init__()
        self.eps = eps
        self.scale, self.shift = (
            nn.Parameter(torch.ones(emb_dim)),
            nn.Parameter(torch.zeros(emb_dim)),
        )

    def forward(self, x):
        w = x.float() if x.dtype != torch.float64 else x
        mean, var = w.mean(-1, keepdim=True), w.var(-1, keepdim=True, unbiased=False)
        return ((w - mean) / torch.sqrt(var + self.eps)).to(
            x.dtype
        ) * self.scale + self.shift


class LnNames(nn.Module):
    """Names that say nothing: told apart by what they begin with."""

    def __init__(self, size, eps):
        super().__init__()
        self.bottom = nn.Parameter(torch.zeros(size, 1))
        self.top = nn.Parameter(torch.ones(1, size))
        self.eps = eps

    def forward(self, x):
        return ln(x, self.top[0], self.bottom[:, 0], self.eps)


def ln_matrix(x, weight, bias, eps):
    """Centring as a matrix."""
    w, n = wide(x), x.shape[-1]
    c = w @ (torch.eye(n, dtype=w.dtype) - torch.full((n, n), 1 / n, dtype=w.dtype))
    size = (torch.linalg.vector_norm(c, dim=-1, keepdim=True).square() / n + eps).sqrt()
    return (c / size * weight + bias).to(x.dtype)


class LnOfTorch(nn.LayerNorm):
    def __init__(self, size, eps):
        super().__init__(size, eps=eps)


LAYERNORM_RIGHT = {
    "function": ln,
    "module": LnPlain,
    "other names": LnNames,
    "a matrix": ln_matrix,
    "torch's own": nn.LayerNorm,
    "subclass of torch's own": LnOfTorch,
    "functional": lambda x, weight, bias, eps: F.layer_norm(
        x, x.shape[-1:], weight, bias, eps
    ),
}

MUTANTS = {"rmsnorm": RMSNORM, "layernorm": LAYERNORM}
RIGHT = {"rmsnorm": RMSNORM_RIGHT, "layernorm": LAYERNORM_RIGHT}
AS_MODULES = {  # mutants that are functions are tried as modules, too
    "rmsnorm": [(m, as_rms_norm(m.answer)) for m in RMSNORM_BOTH],
    "layernorm": [(m, as_layer_norm(m.answer)) for m in LAYERNORM_BOTH],
}
