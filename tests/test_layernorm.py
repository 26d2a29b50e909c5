"""LayerNorm: the formula in float64, parity with torch, few bits, tokens alone."""

import copy
import inspect
import json
import math
import os
import subprocess
import sys

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import minigpt.layernorm
from minigpt.layernorm import LayerNorm, layer_norm

HALVES = [torch.float16, torch.bfloat16]


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


def test_the_jacobian_in_the_chapter():
    x = random(16, dtype=torch.float64)
    ones = torch.ones(16, dtype=torch.float64)
    jacobian = torch.autograd.functional.jacobian(lambda x: layer_norm(x, ones), x)
    x_hat, s = layer_norm(x, ones), (x.var(correction=0) + 1e-5).sqrt()
    centre = torch.eye(16) - torch.ones(16, 16) / 16
    expected = (centre - torch.outer(x_hat, x_hat) / 16) / s
    torch.testing.assert_close(jacobian, expected, rtol=0, atol=1e-12)


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
    """One-pass variance gives 0, 16 or -8 here, and NaN after the root."""
    x = (random(200, 64, dtype=torch.float64) + 1e4).float()
    expected = F.layer_norm(x.double(), (64,))
    y = make(LayerNorm(64))(x)
    torch.testing.assert_close(y.double(), expected, rtol=0, atol=5e-3)


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
