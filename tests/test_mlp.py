"""Chapter 3: the MLP. Case numbers are those of the collected bug reports."""

import inspect
import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import minigpt.mlp
from minigpt.mlp import MLP


def build(d_model=32, d_ff=128, seed=0, **options):
    """An MLP whose weights and biases are not what it starts with."""
    torch.manual_seed(seed)
    mlp = MLP(d_model, d_ff, **options)
    with torch.no_grad():
        for parameter in mlp.parameters():
            parameter.normal_(0.0, d_model**-0.5)  # outputs of the order of 1
    return mlp


SHAPES = [(32,), (1, 32), (2, 7, 32), (2, 3, 5, 32), (1, 1, 32), (0, 4, 32)]


# --- the same function ----------------------------------------------------------------


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("bias", [True, False])
def test_equals_the_formula_in_float64(shape, bias):
    mlp = build(bias=bias).double()
    x = torch.randn(shape, dtype=torch.float64)
    h = torch.einsum("...d,fd->...f", x, mlp.up.weight)
    h = h + mlp.up.bias if bias else h
    h = h * 0.5 * torch.erfc(-h / math.sqrt(2))  # z times the normal distribution at z
    y = torch.einsum("...f,df->...d", h, mlp.down.weight)
    y = y + mlp.down.bias if bias else y
    torch.testing.assert_close(mlp(x), y, rtol=0, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_equals_torch_layers_in_value_and_gradient(dtype):
    """The first seed's class, name for name."""
    mlp = build().to(dtype)
    net = nn.Sequential(
        nn.Linear(32, 128), nn.GELU(), nn.Linear(128, 32), nn.Dropout(0.0)
    ).to(dtype)
    net[0].load_state_dict(mlp.up.state_dict())
    net[2].load_state_dict(mlp.down.state_dict())
    x = torch.randn(2, 5, 32, dtype=dtype)
    ours, theirs = x.clone().requires_grad_(), x.clone().requires_grad_()
    y, z = mlp(ours), net(theirs)
    y.square().mean().backward()
    z.square().mean().backward()
    assert y.dtype == dtype
    torch.testing.assert_close(y, z, rtol=0, atol=1e-6)
    torch.testing.assert_close(ours.grad, theirs.grad, rtol=0, atol=1e-6)
    torch.testing.assert_close(
        mlp.up.weight.grad, net[0].weight.grad, rtol=0, atol=1e-6
    )


def test_a09_the_bend_is_the_exact_gelu_and_not_the_tanh_form():
    mlp = MLP(1, 1)
    with torch.no_grad():  # both maps the identity: what is left is the bend
        for linear in (mlp.up, mlp.down):
            linear.weight.fill_(1.0)
            linear.bias.zero_()
    z = torch.linspace(-6, 6, 24001)
    exact = [v * 0.5 * math.erfc(-v / math.sqrt(2)) for v in z.tolist()]
    bend = mlp(z[:, None])[:, 0]
    torch.testing.assert_close(bend, torch.tensor(exact), rtol=0, atol=1e-6)
    gap = (bend - F.gelu(z, approximate="tanh")).abs().max().item()
    assert 4.5e-4 < gap < 4.9e-4


@pytest.mark.parametrize("d_model, d_ff", [(32, 128), (128, 512), (64, 170), (3, 1)])
def test_parameter_count(d_model, d_ff):
    count = sum(p.numel() for p in MLP(d_model, d_ff).parameters())
    assert count == 2 * d_model * d_ff + d_ff + d_model
    bare = MLP(d_model, d_ff, bias=False)
    assert sum(p.numel() for p in bare.parameters()) == 2 * d_model * d_ff
    assert bare.up.bias is None and bare.down.bias is None
    assert MLP(d_model, d_ff).up.out_features == d_ff  # a width, not a factor


# --- one token alone ------------------------------------------------------------------


def test_a_changed_neighbour_changes_nothing_at_all():
    mlp = build()
    x = torch.randn(2, 10, 32)
    for t in range(10):
        changed = x.clone()
        changed[:, t] += 1.0
        moved = (mlp(changed) - mlp(x)).abs().amax(dim=(0, 2))
        assert moved[t] > 1e-3
        assert (moved[torch.arange(10) != t] == 0).all()


def test_gradient_stays_in_its_token():
    mlp = build()
    x = torch.randn(1, 6, 32, requires_grad=True)
    y = mlp(x)
    direction = torch.randn(32)
    for t in range(6):
        (grad,) = torch.autograd.grad(y[0, t] @ direction, x, retain_graph=True)
        touched = grad[0].abs().amax(-1) > 0
        assert touched.nonzero().flatten().tolist() == [t]


def test_permuting_tokens_permutes_outputs():
    mlp = build()
    x = torch.randn(2, 10, 32)
    order = torch.tensor([4, 0, 6, 2, 9, 5, 1, 8, 3, 7])
    torch.testing.assert_close(mlp(x[:, order]), mlp(x)[:, order], rtol=0, atol=1e-6)


def test_it_is_not_linear():
    mlp = build(bias=False)
    x, y = torch.randn(2, 8, 32)
    assert (mlp(x + y) - mlp(x) - mlp(y)).norm() > 0.1 * mlp(x + y).norm()


# --- dropout --------------------------------------------------------------------------


def test_a11_eval_is_deterministic_equals_no_dropout_and_draws_nothing():
    mlp = build(dropout=0.5).eval()
    plain = build(dropout=0.0)
    x = torch.randn(2, 16, 32)
    before = torch.get_rng_state()
    first, second = mlp(x), mlp(x)
    assert torch.equal(before, torch.get_rng_state())
    assert torch.equal(first, second) and torch.equal(first, plain(x))


def test_a11_training_drops_the_output_and_scales_what_is_kept():
    mlp = build(dropout=0.2).train()
    x = torch.randn(64, 16, 32)
    y, full = mlp(x), mlp.eval()(x)
    dropped = y == 0
    assert abs(dropped.float().mean().item() - 0.2) < 0.01
    torch.testing.assert_close(y[~dropped], full[~dropped] * 1.25)
    assert not torch.equal(mlp.train()(x), mlp(x))


def test_a11_training_without_dropout_draws_nothing():
    mlp = build(dropout=0.0).train()
    x = torch.randn(2, 4, 32)
    before = torch.get_rng_state()
    assert torch.equal(mlp(x), mlp.eval()(x))
    assert torch.equal(before, torch.get_rng_state())


# --- errors and housekeeping ----------------------------------------------------------


@pytest.mark.parametrize("d_model, d_ff", [(0, 128), (32, 0), (-1, 4), (32, -128)])
def test_sizes_are_refused_by_name_and_value(d_model, d_ff):
    with pytest.raises(ValueError, match=f"d_model={d_model} and d_ff={d_ff}"):
        MLP(d_model, d_ff)


@pytest.mark.parametrize("dropout", [-0.1, 1.5])
def test_dropout_out_of_range_is_refused_by_name(dropout):
    with pytest.raises(ValueError, match=f"dropout={dropout}"):
        MLP(32, 128, dropout=dropout)


@pytest.mark.parametrize("shape", [(2, 5, 33), (31,), ()])
def test_wrong_shapes_name_what_was_expected_and_what_came(shape):
    with pytest.raises(ValueError) as error:
        build()(torch.zeros(shape))
    assert "(..., 32)" in str(error.value) and str(shape) in str(error.value)


def test_only_weights_are_stored():
    names = {"up.weight", "up.bias", "down.weight", "down.bias"}
    assert set(build().state_dict()) == names


def test_input_may_be_a_view_and_is_not_changed():
    mlp = build()
    x = torch.randn(32, 2, 7).permute(1, 2, 0)
    kept = x.clone()
    torch.testing.assert_close(mlp(x), mlp(x.contiguous()), rtol=0, atol=1e-6)
    assert torch.equal(x, kept)


def test_half_precision_is_finite():
    x = torch.randn(2, 5, 32)
    for dtype in (torch.float16, torch.bfloat16):
        y = MLP(32, 128).to(dtype)(x.to(dtype))
        assert y.dtype == dtype and y.isfinite().all()


def test_public_names_are_documented():
    assert minigpt.mlp.__all__ == ["MLP"]
    for word in ("Args:", "Raises:", "Source:"):
        assert word in inspect.getdoc(MLP)


def test_weights_do_not_grow_with_the_text():
    """quiz: 1"""
    mlp = MLP(64, 256, bias=False)
    assert sum(p.numel() for p in mlp.parameters()) == 2 * 64 * 256 == 32_768
    assert mlp(torch.randn(1, 10, 64)).shape == (1, 10, 64)
    assert mlp(torch.randn(1, 1000, 64)).shape == (1, 1000, 64)
    assert mlp.up.weight.numel() == 16_384
