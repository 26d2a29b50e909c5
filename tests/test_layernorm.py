"""LayerNorm: the formula in float64, parity with torch, few bits, tokens alone."""

import copy
import inspect
import json
import math
import os
import subprocess
import sys
from fractions import Fraction

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

import minigpt.layernorm
from minigpt.layernorm import LayerNorm, layer_norm

HALVES = [torch.float16, torch.bfloat16]
quickly = settings(deadline=None, max_examples=25, derandomize=True)


def formula(x, weight, bias, eps):
    """The formula in Python's own numbers, token by token; (..., D) -> (..., D)."""
    out = []
    for token in x.reshape(-1, x.shape[-1]).tolist():
        mean = math.fsum(token) / len(token)
        variance = math.fsum((v - mean) ** 2 for v in token) / len(token)
        s = math.sqrt(variance + eps)
        out.append([g * (v - mean) / s + b for v, g, b in zip(token, weight, bias)])
    return torch.tensor(out, dtype=torch.float64).view(x.shape)


def trained(size, eps=1e-5, bias=True, seed=0):
    """A LayerNorm whose gain is not 1 and whose shift is not 0."""
    generator = torch.Generator().manual_seed(seed)
    norm = LayerNorm(size, eps=eps, bias=bias)
    for p in norm.parameters():
        nn.init.normal_(p, generator=generator)
    return norm


def random(*shape, seed=0, dtype=torch.float32):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def by_hand(norm):
    return lambda x: layer_norm(x, norm.weight, norm.bias, norm.eps)


@pytest.fixture(params=["module", "function"])
def make(request):
    """From a LayerNorm the callable to test: itself, or the function on its weights."""
    return (lambda norm: norm) if request.param == "module" else by_hand


# A01: the variance is over D numbers, and over the last dimension only


def test_a01_one_two_three_four(make):
    y = make(LayerNorm(4))(torch.tensor([1.0, 2.0, 3.0, 4.0]))
    expected = torch.tensor([-1.341635, -0.447212, 0.447212, 1.341635])
    torch.testing.assert_close(y, expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("seed", range(20))
def test_a01_equals_torch_on_random_batches(make, seed):
    norm, x = trained(48, seed=seed), random(3, 5, 48, seed=seed)
    expected = F.layer_norm(x, (48,), norm.weight, norm.bias, 1e-5)
    torch.testing.assert_close(make(norm)(x), expected, rtol=1e-6, atol=1e-6)


def test_a01_permuted_tokens_give_permuted_outputs(make):
    norm, x = make(trained(16)), random(2, 7, 16)
    order = torch.randperm(7, generator=torch.Generator().manual_seed(0))
    assert torch.equal(norm(x[:, order]), norm(x)[:, order])


# The formula and torch


@pytest.mark.parametrize("eps", [1e-12, 1e-5, 0.5, 10.0])
@pytest.mark.parametrize("size", [1, 2, 7, 64])
def test_equals_the_formula_in_float64(make, size, eps):
    """Mean, variance over D, eps below the root, gain, shift. formula: formula"""
    norm = trained(size, eps).double()
    x = 3 * random(4, size, dtype=torch.float64) + 2
    expected = formula(x, norm.weight.tolist(), norm.bias.tolist(), eps)
    torch.testing.assert_close(make(norm)(x), expected, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("eps", [1e-5, 0.5])
@pytest.mark.parametrize("shape", [(12,), (5, 12), (2, 5, 12), (2, 3, 5, 12), (0, 12)])
def test_values_and_gradients_equal_torch(make, shape, eps, bias):
    norm = trained(12, eps, bias)
    torchs = nn.LayerNorm(12, eps=eps, bias=bias)
    torchs.load_state_dict(norm.state_dict())
    direction = random(*shape, seed=1)
    results = []
    for f, owner in ((make(norm), norm), (torchs, torchs)):
        x = random(*shape, seed=2).requires_grad_()
        y = f(x)
        wanted = [x, *owner.parameters()]
        results.append([y, *torch.autograd.grad((y * direction).sum(), wanted)])
    assert len(results[0]) == (4 if bias else 3)
    for ours, theirs in zip(*results):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)


def test_gradient_of_the_module_is_right_by_differences():
    norm = trained(6, eps=0.1).double()
    x = random(2, 3, 6, dtype=torch.float64).requires_grad_()
    assert torch.autograd.gradcheck(
        lambda x, w, b: torch.func.functional_call(
            norm, {"weight": w, "bias": b}, (x,)
        ),
        (x, norm.weight, norm.bias),
    )


@pytest.mark.parametrize("eps", [1e-5, 0.3])
def test_the_jacobian_equals_its_formula_number_by_number(eps):
    """(1/s) (I - 1 1'/D - x_hat x_hat'/D), with eps not small. formula: backward"""
    D = 9
    x = 2 * random(D, dtype=torch.float64) + 1
    numbers = x.tolist()
    mean = math.fsum(numbers) / D
    s = math.sqrt(math.fsum((v - mean) ** 2 for v in numbers) / D + eps)
    hat = [(v - mean) / s for v in numbers]
    expected = [
        [((i == j) - 1 / D - hat[i] * hat[j] / D) / s for j in range(D)]
        for i in range(D)
    ]
    ones = torch.ones(D, dtype=torch.float64)
    found = torch.autograd.functional.jacobian(
        lambda x: layer_norm(x, ones, eps=eps), x
    )
    expected = torch.tensor(expected, dtype=torch.float64)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("seed", range(3))
def test_the_jacobian_loses_two_directions_and_divides_the_rest(make, seed):
    """Rank D - 2, every other singular value 1/s, no gradient along 1 or x."""
    norm = make(LayerNorm(16, eps=1e-12).double())
    x = 5 * random(16, seed=seed, dtype=torch.float64) + 2
    s = (x - x.mean()).square().mean().sqrt()
    J = torch.autograd.functional.jacobian(norm, x)
    sizes = torch.linalg.svdvals(J) * s
    torch.testing.assert_close(sizes[:14], torch.ones(14).double())
    assert sizes[14:].max() < 1e-9
    gradient = J.T @ random(16, seed=seed + 9, dtype=torch.float64)
    assert abs(gradient.sum()) < 1e-12 and abs(gradient @ x) < 1e-9


@pytest.mark.parametrize("scale", [0.5, 10.0, 1000.0])
def test_gradient_shrinks_as_the_token_grows(make, scale):
    norm = make(trained(16, eps=1e-12).double())

    def gradient(x):
        x = x.clone().requires_grad_()
        norm(x)[..., :3].sum().backward()
        return x.grad

    x = random(4, 16, dtype=torch.float64)
    expected = gradient(x) / scale
    torch.testing.assert_close(gradient(scale * x), expected, rtol=1e-8, atol=1e-12)


# Properties, for weights other than one


@quickly
@given(
    shape=st.lists(st.integers(1, 4), max_size=3),
    size=st.integers(1, 40),
    eps=st.sampled_from([1e-12, 1e-5, 0.1, 3.0]),
    bias=st.booleans(),
    loud=st.sampled_from([1e-3, 1.0, 1e3]),
    seed=st.integers(0, 999),
)
def test_any_shape_equals_formula_and_torch(shape, size, eps, bias, loud, seed):
    norm = trained(size, eps, bias, seed).double()
    x = loud * random(*shape, size, seed=seed, dtype=torch.float64)
    shift = norm.bias.tolist() if bias else [0.0] * size
    expected = formula(x, norm.weight.tolist(), shift, eps)
    fused = F.layer_norm(x, (size,), norm.weight, norm.bias, eps)
    for y in (norm(x), by_hand(norm)(x), fused):
        assert y.shape == x.shape and y.dtype == x.dtype
        torch.testing.assert_close(y, expected, rtol=1e-8, atol=1e-9)


@quickly
@given(
    scale=st.floats(0.01, 100),
    shift=st.floats(-100, 100),
    size=st.integers(2, 40),
    seed=st.integers(0, 999),
)
def test_any_positive_scale_and_shift_disappear(scale, shift, size, seed):
    norm = trained(size, eps=1e-15, seed=seed).double()
    x = random(3, size, seed=seed, dtype=torch.float64)
    x = x + torch.linspace(0, 1, size)  # two equal numbers have no variance
    for f in (norm, by_hand(norm)):
        torch.testing.assert_close(f(scale * x + shift), f(x), rtol=1e-6, atol=1e-6)


@quickly
@given(batch=st.integers(1, 9), size=st.integers(1, 40), seed=st.integers(0, 999))
def test_any_token_alone_is_the_token_in_its_batch(batch, size, seed):
    norm, x = trained(size, seed=seed), random(batch, 5, size, seed=seed)
    place = seed % batch
    assert torch.equal(norm(x)[place, 2], norm(x[place, 2]))
    assert torch.equal(by_hand(norm)(x)[place, 2], by_hand(norm)(x[place, 2]))


@quickly
@given(size=st.integers(1, 40), seed=st.integers(0, 999), bias=st.booleans())
def test_gain_and_shift_fold_into_the_next_linear(size, seed, bias):
    """A14: W (g * x_hat + b) + c = (W diag g) x_hat + (W b + c), number by number.

    formula: folding-formula
    """
    norm = trained(size, seed=seed, bias=bias).double()
    W, c = random(3, size, seed=seed).double(), random(3, seed=seed + 1).double()
    x = random(2, size, seed=seed + 2, dtype=torch.float64)
    hat = formula(x, [1.0] * size, [0.0] * size, norm.eps).tolist()
    gain = norm.weight.tolist()
    shift = norm.bias.tolist() if bias else [0.0] * size
    expected = [
        [
            math.fsum(row[i] * gain[i] * token[i] for i in range(size))
            + math.fsum(row[i] * shift[i] for i in range(size))
            + constant
            for row, constant in zip(W.tolist(), c.tolist())
        ]
        for token in hat
    ]
    expected = torch.tensor(expected, dtype=torch.float64)
    torch.testing.assert_close(F.linear(norm(x), W, c), expected, rtol=1e-9, atol=1e-9)


# A03: few bits


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("value, eps", [(300.0, 1e-5), (1e-4, 1e-12), (0.0, 1e-12)])
@pytest.mark.parametrize("weights", ["same", "float32"])
def test_a03_constant_tokens_become_zero(make, dtype, value, eps, weights):
    norm = LayerNorm(8, eps=eps)
    norm = norm.to(dtype) if weights == "same" else norm
    y = make(norm)(torch.full((2, 8), value, dtype=dtype))
    assert y.dtype == dtype and torch.equal(y, torch.zeros_like(y))


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("weights", ["same", "float32"])
def test_a03_loud_tokens_are_within_an_ulp_of_float32(make, dtype, weights):
    norm = trained(64).to(dtype)  # the weights are what the narrow type can hold
    norm = norm if weights == "same" else norm.float()
    x = (100 * random(4, 64)).to(dtype)
    y, wide = make(norm)(x), make(copy.deepcopy(norm).float())(x.float())
    assert y.dtype == dtype
    ulp = torch.finfo(dtype).eps * wide.abs().clamp(min=torch.finfo(dtype).tiny)
    assert ((y.float() - wide).abs() <= ulp).all()


@pytest.mark.parametrize("dtype", HALVES)
def test_a03_squares_that_overflow_in_half_do_no_harm(make, dtype):
    x = torch.tensor([[300.0, -300.0] * 4, [6e4, -6e4] * 4], dtype=dtype)
    y = make(LayerNorm(8, eps=1e-8))(x)
    torch.testing.assert_close(y.float(), torch.tensor([[1.0, -1.0] * 4] * 2))


@pytest.mark.parametrize("weights", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("dtype", [*HALVES, torch.float32, torch.float64])
def test_dtype_of_the_input_is_kept_whatever_the_weights_are(make, dtype, weights):
    norm = trained(16).to(weights)
    y = make(norm)(random(3, 16, dtype=dtype))
    expected = formula(
        random(3, 16, dtype=dtype).double(),
        norm.weight.tolist(),
        norm.bias.tolist(),
        norm.eps,
    )
    tolerance = max(1e-6, torch.finfo(dtype).eps)
    tolerance = 1e-12 if dtype == torch.float64 else tolerance
    assert y.dtype == dtype
    torch.testing.assert_close(y.double(), expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_under_autocast_it_still_computes_in_float32(dtype):
    norm, x = trained(64), (100 * random(4, 64)).to(dtype)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = norm(x)
    assert y.dtype == dtype and torch.equal(y, norm(x))


def test_large_mean_does_not_ruin_the_variance(make):
    """One-pass variance gives 0, 16 or -8 here, and NaN after the root. (A03)"""
    x = (random(200, 64, dtype=torch.float64) + 1e4).float()
    expected = F.layer_norm(x.double(), (64,))
    y = make(LayerNorm(64))(x)
    torch.testing.assert_close(y.double(), expected, rtol=0, atol=5e-3)


def test_one_pass_and_two_passes_are_the_same_number_on_paper():
    """Mean of squares less squared mean, in exact fractions. formula: one-pass"""
    x = 10_000 + random(64, dtype=torch.float64)
    numbers = [Fraction(v) for v in x.tolist()]
    mean = sum(numbers) / 64
    once = sum(v * v for v in numbers) / 64 - mean**2
    assert once == sum((v - mean) ** 2 for v in numbers) / 64
    # the module's own variance, read from what it divided by
    y = LayerNorm(64, eps=1e-12).double()(x)
    s = (x - x.mean()).norm() / y.norm()
    assert s.item() ** 2 == pytest.approx(float(once), rel=1e-9)


@pytest.mark.parametrize("s", [100.0, 1.0, 0.1, 0.02, 1e-3, 1e-4])
@pytest.mark.parametrize("eps", [1e-5, 0.5])
def test_size_of_the_output_of_a_quiet_token(make, s, eps):
    """rms(y) = s / sqrt(s^2 + eps), for a token of standard deviation s.

    formula: not-seen
    """
    x = torch.tensor([[s, -s, -s, s, s, -s]], dtype=torch.float64) + 3
    y = make(LayerNorm(6, eps=eps).double())(x)
    rms = math.sqrt(sum(v * v for v in y[0].tolist()) / 6)
    assert rms == pytest.approx(s / math.sqrt(s * s + eps), rel=1e-6)


# A04: eps is what was given


@pytest.mark.parametrize("eps, rms", [(1e-5, 0.3015), (1e-6, 0.7071)])
def test_a04_eps_is_added_to_the_variance(make, eps, rms):
    x = torch.tensor([1e-3, -1e-3] * 4)
    y = make(LayerNorm(8, eps=eps))(x)
    assert y.square().mean().sqrt().item() == pytest.approx(rms, abs=1e-4)


def test_a04_the_default_is_torchs_and_stated():
    assert LayerNorm(8).eps == nn.LayerNorm(8).eps == 1e-5
    assert "eps=1e-05" in repr(LayerNorm(8))


# A12: no number lands in eps by its place


def test_a12_eps_and_bias_are_keyword_only():
    for wrong in ((0.37,), (1e-5, False)):
        with pytest.raises(TypeError):
            LayerNorm(8, *wrong)


# Each token alone


@pytest.mark.parametrize("seed", range(3))
def test_other_tokens_do_not_matter_in_the_least(make, seed):
    norm, x = make(trained(64)), random(8, 16, 64, seed=seed)
    changed = 100 * random(8, 16, 64, seed=seed + 10)
    changed[3, 5] = x[3, 5]
    assert torch.equal(norm(changed)[3, 5], norm(x)[3, 5])


def test_alone_or_in_a_batch_in_training_or_not():
    norm, x = trained(64), random(8, 16, 64)
    whole = norm.train()(x)
    assert torch.equal(norm.eval()(x), whole)
    assert torch.equal(norm(x[2:3]), whole[2:3])
    assert torch.equal(norm(x[2, 4]), whole[2, 4])


def test_gradient_does_not_cross_tokens(make):
    x = random(2, 5, 16).requires_grad_()
    make(trained(16))(x)[0, 2].square().sum().backward()
    touched = x.grad.abs().sum(-1) > 0
    assert touched.nonzero().tolist() == [[0, 2]]


@pytest.mark.parametrize("seed", range(3))
def test_shift_and_scale_of_a_token_are_removed(make, seed):
    norm, x = make(trained(64)), random(4, 64, seed=seed)
    torch.testing.assert_close(norm(x + 7), norm(x), rtol=0, atol=2e-5)
    torch.testing.assert_close(norm(10 * x), norm(x), rtol=0, atol=1e-4)
    quiet = make(LayerNorm(64))(1e-3 * x).square().mean().sqrt()
    assert quiet < 0.5  # eps ends the invariance


def test_a_fresh_norm_puts_tokens_on_the_sphere(make):
    y = make(LayerNorm(64, eps=1e-12))(random(5, 64, dtype=torch.float64))
    torch.testing.assert_close(y.norm(dim=-1), torch.full_like(y[:, 0], 8.0))
    torch.testing.assert_close(y.mean(-1), torch.zeros_like(y[:, 0]))


# C08: padding


@pytest.mark.parametrize("dtype", [torch.float32, *HALVES])
def test_c08_padded_tokens_become_the_shift_and_gradients_stay_finite(make, dtype):
    norm, x = trained(16), random(2, 6, 16).to(dtype)
    x[:, 4:] = 0.0
    x.requires_grad_()
    y = make(norm)(x)
    expected = norm.bias.detach().to(dtype).expand(2, 2, 16)
    assert torch.equal(y[:, 4:], expected)
    gradients = torch.autograd.grad(y.float().square().sum(), [x, *norm.parameters()])
    assert all(g.isfinite().all() for g in gradients)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1e10])
def test_c08_what_a_padded_token_holds_does_not_leak(make, value):
    norm, x = make(trained(16)), random(2, 6, 16)
    broken = x.clone()
    broken[:, 4:] = value
    assert torch.equal(norm(broken)[:, :4], norm(x)[:, :4])


# BatchNorm, as the chapter compares it


def batch_norm_by_the_book(x, weight, bias, eps):
    """One mean for each place, over sentences and tokens, in Python's numbers."""
    B, T, D = x.shape
    y = torch.empty_like(x)
    for i in range(D):
        values = [x[b, t, i].item() for b in range(B) for t in range(T)]
        mean = math.fsum(values) / (B * T)
        s = math.sqrt(math.fsum((v - mean) ** 2 for v in values) / (B * T) + eps)
        for b in range(B):
            for t in range(T):
                y[b, t, i] = weight[i] * (x[b, t, i].item() - mean) / s + bias[i]
    return y


def torch_batch_norm(bn, x):
    return bn(x.transpose(1, 2)).transpose(1, 2)


@pytest.mark.parametrize("eps", [1e-5, 0.5])
def test_batchnorm_pools_sentences_and_tokens(eps):
    """B13: one mean for each place, over B and T. formula: batchnorm-formula"""
    bn = nn.BatchNorm1d(5, eps=eps).double()
    nn.init.normal_(bn.weight, generator=torch.Generator().manual_seed(0))
    nn.init.normal_(bn.bias, generator=torch.Generator().manual_seed(1))
    x = 2 * random(3, 4, 5, dtype=torch.float64) + 1
    expected = batch_norm_by_the_book(x, bn.weight.tolist(), bn.bias.tolist(), eps)
    torch.testing.assert_close(torch_batch_norm(bn, x), expected, rtol=0, atol=1e-12)


def test_batchnorm_in_eval_does_not_depend_on_the_batch_size():
    """B15: at batch one it uses the running statistics, and gives the same bits."""
    bn = nn.BatchNorm1d(16)
    for seed in range(20):
        torch_batch_norm(bn, random(8, 6, 16, seed=seed))
    bn.eval()
    x = random(8, 6, 16, seed=99)
    assert torch.equal(torch_batch_norm(bn, x[:1]), torch_batch_norm(bn, x)[:1])
    with pytest.raises(ValueError, match="more than 1 value"):
        bn.train()(random(1, 16))


@pytest.mark.parametrize("seed", range(3))
def test_batchnorm_in_training_sees_padding_and_the_future(seed):
    bn, x = nn.BatchNorm1d(32), random(8, 16, 32, seed=seed)
    y = torch_batch_norm(bn, x)
    padded, future = x.clone(), x.clone()
    padded[:, 10:] = 0.0
    future[:, 12:] = 5 * random(8, 4, 32, seed=seed + 9)
    for other, kept in ((padded, 10), (future, 1)):
        moved = (torch_batch_norm(bn, other) - y)[:, :kept].abs().max()
        norm = LayerNorm(32)
        assert moved > 0.5
        assert torch.equal(norm(other)[:, :kept], norm(x)[:, :kept])


# Depth: the norm makes the stream add where it multiplied


@pytest.mark.parametrize("seed", range(3))
def test_the_stream_adds_with_the_norm_and_multiplies_without(seed):
    torch.manual_seed(seed)

    def stream(with_norm):
        x, sizes = random(64, 48, seed=seed), []
        for _ in range(64):
            branch = nn.Sequential(nn.Linear(48, 48), nn.ReLU())
            x = x + branch(LayerNorm(48)(x) if with_norm else x)
            sizes.append(x.square().mean().sqrt().item())
        return sizes

    with torch.no_grad():
        with_norm, without = stream(True), stream(False)
    assert with_norm[63] / with_norm[31] < 2.5  # twice the layers, about twice as long
    assert without[63] / without[31] > 100


# Use


def test_input_may_be_a_view_and_is_not_changed(make):
    norm = make(trained(16))
    x = random(16, 3, 5).permute(1, 2, 0)
    assert not x.is_contiguous()
    kept = x.clone()
    torch.testing.assert_close(norm(x), norm(x.contiguous()), rtol=0, atol=1e-6)
    assert torch.equal(x, kept)


def test_weights_are_exchanged_with_torch_both_ways():
    norm, torchs = trained(16), nn.LayerNorm(16)
    torchs.load_state_dict(norm.state_dict())
    fresh = LayerNorm(16)
    fresh.load_state_dict(torchs.state_dict())
    assert list(norm.state_dict()) == ["weight", "bias"]
    assert torch.equal(fresh(random(2, 16)), norm(random(2, 16)))


def test_without_bias():
    norm = LayerNorm(16, bias=False)
    assert norm.bias is None and list(norm.state_dict()) == ["weight"]
    assert sum(p.numel() for p in norm.parameters()) == 16
    assert sum(p.numel() for p in LayerNorm(16).parameters()) == 32


@pytest.mark.parametrize("size", [0, -4])
def test_width_must_be_positive(size):
    with pytest.raises(ValueError, match=f"size={size}"):
        LayerNorm(size)


@pytest.mark.parametrize("eps", [0.0, -1e-5, float("nan"), float("inf")])
def test_eps_must_be_positive_and_finite(eps):
    with pytest.raises(ValueError, match="eps="):
        LayerNorm(8, eps=eps)


@pytest.mark.parametrize("shape", [(2, 7), (8, 1), (2, 8, 9), ()])
def test_wrong_width_names_both(shape):
    with pytest.raises(ValueError) as error:
        LayerNorm(8)(torch.zeros(shape))
    assert "size=8" in str(error.value) and str(shape) in str(error.value)


def test_integers_are_refused_by_name():
    with pytest.raises(ValueError, match=r"torch\.int64"):
        LayerNorm(8)(torch.zeros(2, 8, dtype=torch.int64))


def test_public_names_are_documented():
    assert minigpt.layernorm.__all__ == ["layer_norm", "LayerNorm"]
    for thing in (layer_norm, LayerNorm):
        for word in ("Args:", "Source:"):
            assert word in inspect.getdoc(thing)
    assert "Returns:" in inspect.getdoc(LayerNorm.forward)


def test_same_result_without_vector_instructions():
    """F05: the digits that the chapter prints do not depend on the processor."""
    code = (
        "import json, torch; from minigpt.layernorm import LayerNorm; "
        "x = torch.linspace(-3, 4, 96).view(2, 48).sin(); "
        "print(json.dumps(LayerNorm(48)(x).tolist()))"
    )
    command = [sys.executable, "-c", code]
    plain = os.environ | {"ATEN_CPU_CAPABILITY": "default"}
    done = subprocess.run(
        command, env=plain, capture_output=True, text=True, check=True
    )
    x = torch.linspace(-3, 4, 96).view(2, 48).sin()
    expected = torch.tensor(json.loads(done.stdout))
    torch.testing.assert_close(LayerNorm(48)(x), expected, rtol=0, atol=2e-6)


def test_the_token_of_two_numbers():
    """quiz: 1"""
    x = torch.tensor([1.0, 3.0], dtype=torch.float64)
    one, none = torch.ones(2).double(), torch.zeros(2).double()
    assert layer_norm(x, one, none, 1e-12).tolist() == pytest.approx([-1, 1])
    sample = (x - x.mean()) / x.std()  # divided by D - 1
    assert sample.tolist() == pytest.approx([-0.7071, 0.7071], abs=1e-4)
    assert sample.square().mean().item() == pytest.approx(0.5)


def test_a_token_of_a_thousandth():
    """quiz: 2"""
    assert 0.001 / math.sqrt(1e-6 + 1e-5) == pytest.approx(0.3015, abs=1e-3)
    x = torch.tensor([0.001, -0.001], dtype=torch.float64)
    assert LayerNorm(2).double()(x)[0].item() == pytest.approx(0.3015, abs=1e-3)


def test_ten_times_louder_a_tenth_of_the_gradient():
    """quiz: 5"""
    torch.manual_seed(0)
    token, above = torch.randn(2, 16, dtype=torch.float64)
    norm = LayerNorm(16, eps=1e-12).double()
    sizes = []
    for scale in (1, 10):
        x = (scale * token).requires_grad_()
        (norm(x) @ above).backward()
        sizes.append(x.grad.norm().item())
        assert (x.grad @ x).abs().item() < 1e-9 * x.grad.norm() * x.norm()
    assert sizes[0] / sizes[1] == pytest.approx(10)
