"""Chapter 10: gated MLPs. Case numbers are those of the collected bug reports."""

import copy
import inspect
import json
import math
import pickle
from importlib.resources import files

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

import minigpt.swiglu
from minigpt.mlp import MLP
from minigpt.swiglu import GATES, GatedMLP, SwiGLU, swiglu_width

BY_HAND = {
    "swiglu": lambda z: z / (1 + math.exp(-z)),
    "geglu": lambda z: z * 0.5 * math.erfc(-z / math.sqrt(2)),
    "reglu": lambda z: max(z, 0.0),
    "glu": lambda z: 1 / (1 + math.exp(-z)),
    "bilinear": lambda z: z,
}
SHAPES = [(32,), (1, 32), (2, 7, 32), (2, 3, 5, 32), (1, 1, 32), (0, 4, 32)]
loops = settings(deadline=None, max_examples=25, derandomize=True)


def build(d_model=32, d_ff=85, seed=0, **options):
    """A gated MLP whose weights and biases are not what it starts with."""
    torch.manual_seed(seed)
    mlp = GatedMLP(d_model, d_ff, **options)
    with torch.no_grad():
        for parameter in mlp.parameters():
            parameter.normal_(0.0, d_model**-0.5)
    return mlp


def dot(row, column):
    return sum(a * b for a, b in zip(row, column, strict=True))


def by_hand(mlp, token):
    """The formula for one token in plain Python floats."""

    def linear(layer, vector):
        rows = layer.weight.tolist()
        shift = [0.0] * len(rows) if layer.bias is None else layer.bias.tolist()
        return [dot(row, vector) + b for row, b in zip(rows, shift, strict=True)]

    gate = [BY_HAND[mlp.kind](z) for z in linear(mlp.gate, token)]
    up = linear(mlp.up, token)
    return linear(mlp.down, [a * b for a, b in zip(gate, up, strict=True)])


# --- the formulas ---------------------------------------------------------------------


def test_silu_and_its_slope():
    """formula: three-bends"""
    z = torch.linspace(-12, 12, 241, dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(F.silu(z).sum(), z)
    for point, value, its_slope in zip(z.tolist(), F.silu(z).tolist(), slope.tolist()):
        sigma = 1 / (1 + math.exp(-point))
        assert value == pytest.approx(point / (1 + math.exp(-point)), abs=1e-13)
        by_formula = sigma * (1 + point * (1 - sigma))
        assert its_slope == pytest.approx(by_formula, abs=1e-13)


def test_where_silu_is_lowest_and_how_steep_it_gets():
    """The slope lies in [-0.0998, 1.0998] and is 0 at -1.278; SiLU(1.278) is 1."""
    z = torch.linspace(-10, 10, 200_001, dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(F.silu(z).sum(), z)
    assert slope.min().item() == pytest.approx(-0.0998, abs=5e-5)
    assert slope.max().item() == pytest.approx(1.0998, abs=5e-5)
    value, at = F.silu(z).min(0)
    lowest = z[at].item()
    assert lowest == pytest.approx(-1.278, abs=1e-3)
    assert value.item() == pytest.approx(1 + lowest, abs=1e-4)
    assert F.silu(-z[at]).item() == pytest.approx(1.0, abs=1e-4)


def test_the_gate_is_not_confined_to_0_and_1():
    """60 % of SiLU of a standard normal number lie outside."""
    torch.manual_seed(0)
    z = torch.randn(400_000)
    outside = ((F.silu(z) < 0) | (F.silu(z) > 1)).float().mean().item()
    assert outside == pytest.approx(0.5 + 0.5 * math.erfc(1.2785 / 2**0.5), abs=0.004)
    gate = torch.sigmoid(z)
    assert ((gate > 0) & (gate < 1)).all()


@pytest.mark.parametrize("kind", GATES)
@pytest.mark.parametrize("bias", [False, True])
def test_equals_the_formula(kind, bias):
    """formula: three-bends-answer"""
    mlp = build(8, 21, kind=kind, bias=bias).double()
    x = torch.randn(5, 8, dtype=torch.float64)
    expected = [by_hand(mlp, token) for token in x.tolist()]
    torch.testing.assert_close(
        mlp(x), torch.tensor(expected, dtype=torch.float64), rtol=0, atol=1e-12
    )


def test_it_is_a_sum_over_neurons_with_two_keys():
    """formula: memory-question"""
    mlp = SwiGLU(8, 21).double()
    token = torch.randn(8, dtype=torch.float64)
    x, total = token.tolist(), [0.0] * 8
    gates, ups = mlp.gate.weight.tolist(), mlp.up.weight.tolist()
    for g, u, v in zip(gates, ups, mlp.down.weight.T.tolist(), strict=True):
        number = BY_HAND["swiglu"](dot(g, x)) * dot(u, x)
        total = [t + number * entry for t, entry in zip(total, v, strict=True)]
    expected = torch.tensor(total, dtype=torch.float64)
    torch.testing.assert_close(mlp(token), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("kind", ["swiglu", "geglu", "reglu"])
def test_bend_of_z_minus_bend_of_minus_z_is_z(kind):
    """formula: no-explanation"""
    z = torch.linspace(-9, 9, 181, dtype=torch.float64)
    torch.testing.assert_close(GATES[kind](z) - GATES[kind](-z), z, rtol=0, atol=1e-12)
    for point in z.tolist():
        assert BY_HAND[kind](point) - BY_HAND[kind](-point) == pytest.approx(point)
    gap = GATES["glu"](z) - GATES["glu"](-z) - torch.tanh(z / 2)
    assert gap.abs().max() < 1e-12  # the sigmoid's difference stops at 1


def test_a09_the_gate_of_geglu_is_the_exact_gelu_and_not_the_tanh_form():
    mlp = GatedMLP(1, 1, bias=True, kind="geglu")
    with torch.no_grad():  # gate and down the identity, up the constant 1
        for layer, weight, bias in ((mlp.gate, 1, 0), (mlp.up, 0, 1), (mlp.down, 1, 0)):
            layer.weight.fill_(weight)
            layer.bias.fill_(bias)
    z = torch.linspace(-6, 6, 24001)
    bend = mlp(z[:, None])[:, 0]
    exact = torch.tensor([BY_HAND["geglu"](v) for v in z.tolist()])
    torch.testing.assert_close(bend, exact, rtol=0, atol=1e-6)
    gap = (bend - F.gelu(z, approximate="tanh")).abs().max().item()
    assert 4.5e-4 < gap < 4.9e-4


# --- parity ---------------------------------------------------------------------------


def llama(mlp):
    """Hugging Face's MLP of Llama with the weights of `mlp`."""
    from transformers import LlamaConfig
    from transformers.models.llama.modeling_llama import LlamaMLP

    theirs = LlamaMLP(
        LlamaConfig(
            hidden_size=mlp.d_model,
            intermediate_size=mlp.up.out_features,
            mlp_bias=mlp.up.bias is not None,
        )
    )
    for name in ("gate", "up", "down"):
        state = getattr(mlp, name).state_dict()
        getattr(theirs, f"{name}_proj").load_state_dict(state)
    return theirs.to(mlp.up.weight.dtype)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("shape", [(32,), (2, 5, 32), (2, 3, 4, 32)])
def test_equals_hugging_faces_llama_mlp_in_value_and_gradients(dtype, bias, shape):
    """A10: silu(gate(x)) * up(x), then down."""
    ours = build(bias=bias).to(dtype)
    theirs = llama(ours)
    x = torch.randn(shape, dtype=dtype)
    mine, his = x.clone().requires_grad_(), x.clone().requires_grad_()
    y, z = ours(mine), theirs(his)
    y.square().mean().backward()
    z.square().mean().backward()
    assert y.dtype == dtype
    torch.testing.assert_close(y, z, rtol=0, atol=1e-6)
    torch.testing.assert_close(mine.grad, his.grad, rtol=0, atol=1e-6)
    for name in ("gate", "up", "down"):
        a, b = getattr(ours, name), getattr(theirs, f"{name}_proj")
        torch.testing.assert_close(a.weight.grad, b.weight.grad, rtol=0, atol=1e-6)


@pytest.mark.parametrize("kind", [kind for kind in GATES if kind != "bilinear"])
def test_a10_swapping_gate_and_up_changes_the_output(kind):
    mlp = build(kind=kind)
    swapped = copy.deepcopy(mlp)
    swapped.gate, swapped.up = swapped.up, swapped.gate
    x = torch.randn(4, 32)
    assert (mlp(x) - swapped(x)).norm() > 0.1 * mlp(x).norm()


def test_only_the_bilinear_one_does_not_notice_the_swap():
    mlp = build(kind="bilinear")
    swapped = copy.deepcopy(mlp)
    swapped.gate, swapped.up = swapped.up, swapped.gate
    x = torch.randn(4, 32)
    torch.testing.assert_close(mlp(x), swapped(x))


def test_with_an_up_of_one_it_is_an_mlp():
    """A gated neuron whose second factor is 1 is a plain neuron."""
    gated, plain = build(kind="geglu", bias=True), MLP(32, 85)
    with torch.no_grad():
        gated.up.weight.zero_()
        gated.up.bias.fill_(1.0)
    plain.up.load_state_dict(gated.gate.state_dict())
    plain.down.load_state_dict(gated.down.state_dict())
    x = torch.randn(2, 5, 32)
    torch.testing.assert_close(gated(x), plain(x), rtol=0, atol=1e-6)


# --- properties -----------------------------------------------------------------------


@loops
@given(
    d_model=st.integers(1, 24),
    d_ff=st.integers(1, 40),
    leading=st.lists(st.integers(0, 3), max_size=3),
    kind=st.sampled_from(sorted(GATES)),
    bias=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_shape_dtype_input_and_tokenwise(d_model, d_ff, leading, kind, bias, seed):
    mlp = build(d_model, d_ff, seed, kind=kind, bias=bias).double()
    x = torch.randn(*leading, d_model, dtype=torch.float64)
    kept = x.clone()
    y = mlp(x)
    assert y.shape == x.shape and y.dtype == x.dtype
    assert torch.equal(x, kept)
    if x.ndim > 1 and x.numel():
        alone = torch.stack([mlp(token) for token in x.reshape(-1, d_model)])
        torch.testing.assert_close(y.reshape(-1, d_model), alone, rtol=0, atol=1e-10)


@loops
@given(
    scale=st.floats(0.01, 50),
    kind=st.sampled_from(["bilinear", "reglu"]),
    seed=st.integers(0, 1000),
)
def test_without_bias_these_two_are_quadratic(scale, kind, seed):
    mlp = build(8, 21, seed, kind=kind).double()
    x = torch.randn(3, 8, dtype=torch.float64)
    torch.testing.assert_close(mlp(scale * x), scale**2 * mlp(x))


@loops
@given(seed=st.integers(0, 1000), kind=st.sampled_from(sorted(GATES)))
def test_neurons_may_stand_in_any_order(seed, kind):
    mlp = build(8, 21, seed, kind=kind, bias=True).double()
    other = copy.deepcopy(mlp)
    order = torch.randperm(21)
    with torch.no_grad():
        for layer in (other.gate, other.up):
            layer.weight.copy_(layer.weight[order])
            layer.bias.copy_(layer.bias[order])
        other.down.weight.copy_(other.down.weight[:, order])
    x = torch.randn(3, 8, dtype=torch.float64)
    torch.testing.assert_close(mlp(x), other(x), rtol=0, atol=1e-12)


@loops
@given(
    d_model=st.integers(1, 20_000),
    multiple_of=st.sampled_from([1, 8, 64, 256, 1024, 4096]),
    multiplier=st.sampled_from([1.0, 1.2, 1.3, 1.5]),
)
def test_width_follows_llamas_steps(d_model, multiple_of, multiplier):
    """Meta's own lines, with the multiplication by 1 left out."""
    hidden = int(2 * (4 * d_model) / 3)
    if multiplier != 1.0:
        hidden = int(multiplier * hidden)
    hidden = multiple_of * ((hidden + multiple_of - 1) // multiple_of)
    assert swiglu_width(d_model, multiple_of, multiplier) == hidden


@pytest.mark.parametrize("kind", GATES)
def test_gradients_are_right(kind):
    mlp = build(3, 5, kind=kind, bias=True).double()
    x = torch.randn(2, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(mlp, (x,))


@pytest.mark.parametrize("shape", SHAPES)
def test_any_number_of_leading_dimensions(shape):
    assert build()(torch.randn(shape)).shape == shape


def test_a_changed_neighbour_changes_nothing_at_all():
    mlp = build()
    x = torch.randn(2, 10, 32)
    changed = x.clone()
    changed[:, 3] += 1.0
    moved = (mlp(changed) - mlp(x)).abs().amax(dim=(0, 2))
    assert moved[3] > 1e-3 and (moved[torch.arange(10) != 3] == 0).all()


# --- width and cost -------------------------------------------------------------------


@pytest.mark.parametrize(
    "d_model, multiple_of, multiplier, width",
    [
        (4096, 256, 1.0, 11008),  # LLaMA-7B
        (5120, 256, 1.0, 13824),  # LLaMA-13B, not 13568
        (6656, 256, 1.0, 17920),  # LLaMA-33B
        (8192, 256, 1.0, 22016),  # LLaMA-65B
        (4096, 1024, 1.3, 14336),  # LLaMA-3-8B
        (8192, 4096, 1.3, 28672),  # LLaMA-3-70B
        (16384, 4096, 1.2, 53248),  # Llama-3.1-405B
        (64, 1, 1.0, 170),  # int((8 / 3) * D) rounds down
        (768, 1, 1.0, 2048),
        (10, 1, 1.5, 39),  # 26.67 is cut to 26 before it is multiplied
        (128, 256, 1.0, 512),
        (1, 1, 1.0, 2),
    ],
)
def test_a10_widths_as_they_are(d_model, multiple_of, multiplier, width):
    assert swiglu_width(d_model, multiple_of, multiplier) == width


def test_a10_the_width_given_is_the_width_used():
    assert SwiGLU(64, 123).up.out_features == 123
    assert SwiGLU(64, 123).gate.weight.shape == (123, 64)


@pytest.mark.parametrize("d_model", [3, 48, 96, 384])
def test_equal_parameters_and_operations(d_model):
    """formula: width"""
    gated = SwiGLU(d_model, swiglu_width(d_model))
    plain = MLP(d_model, 4 * d_model, bias=False)
    costs = []
    for mlp in (gated, plain):
        with FlopCounterMode(display=False) as counter:
            mlp(torch.randn(7, d_model))
        weights = sum(p.numel() for p in mlp.parameters())
        costs.append((weights, counter.get_total_flops()))
    width = 8 * d_model / 3
    by_formula = 3 * d_model * width
    assert by_formula == pytest.approx(8 * d_model**2)
    assert costs[0] == costs[1] == (round(by_formula), 7 * 2 * round(by_formula))


@pytest.mark.parametrize("d_model, d_ff", [(32, 85), (64, 170), (3, 1)])
def test_parameter_count(d_model, d_ff):
    """A10: the count of a table is what numel says."""
    count = sum(p.numel() for p in SwiGLU(d_model, d_ff).parameters())
    assert count == 3 * d_model * d_ff
    biased = sum(p.numel() for p in SwiGLU(d_model, d_ff, bias=True).parameters())
    assert biased == count + 2 * d_ff + d_model


# --- dropout, errors, housekeeping ----------------------------------------------------


def test_a11_eval_is_deterministic_equals_no_dropout_and_draws_nothing():
    mlp, plain = build(dropout=0.5).eval(), build(dropout=0.0)
    x = torch.randn(2, 16, 32)
    before = torch.get_rng_state()
    first, second = mlp(x), mlp(x)
    assert torch.equal(before, torch.get_rng_state())
    assert torch.equal(first, second) and torch.equal(first, plain(x))


def test_a11_training_drops_the_output_once_and_scales_what_is_kept():
    mlp = build(dropout=0.2).train()
    x = torch.randn(64, 16, 32)
    y, full = mlp(x), mlp.eval()(x)
    dropped = y == 0
    assert abs(dropped.float().mean().item() - 0.2) < 0.01
    torch.testing.assert_close(y[~dropped], full[~dropped] * 1.25)


@pytest.mark.parametrize("make", [GatedMLP, SwiGLU])
@pytest.mark.parametrize("d_model, d_ff", [(0, 128), (32, 0), (-1, 4), (32, -128)])
def test_sizes_are_refused_by_name_value_and_remedy(make, d_model, d_ff):
    message = f"d_model={d_model} and d_ff={d_ff} .*swiglu_width"
    with pytest.raises(ValueError, match=message):
        make(d_model, d_ff)


@pytest.mark.parametrize("dropout", [-0.1, 1.5, float("nan")])
def test_dropout_out_of_range_is_refused_by_name(dropout):
    with pytest.raises(ValueError, match=f"dropout={dropout}"):
        SwiGLU(32, 85, dropout=dropout)


def test_an_unknown_kind_is_refused_with_the_list():
    with pytest.raises(ValueError, match="kind='swish' must be one of swiglu, geglu"):
        GatedMLP(32, 85, kind="swish")


@pytest.mark.parametrize("shape", [(2, 5, 33), (31,), ()])
def test_wrong_shapes_name_what_was_expected_and_what_came(shape):
    with pytest.raises(ValueError) as error:
        build()(torch.zeros(shape))
    assert "(..., 32)" in str(error.value) and str(shape) in str(error.value)


@pytest.mark.parametrize(
    "arguments, words",
    [
        ((0,), "d_model=0"),
        ((-5,), "d_model=-5"),
        ((64.0,), "d_model=64.0 must be a whole number"),
        ((64, 0), "multiple_of=0"),
        ((64, 1.5), "multiple_of=1.5"),
        ((64, 1, 0.0), "multiplier=0.0"),
        ((64, 1, float("nan")), "multiplier=nan"),
        ((64, 1, float("inf")), "multiplier=inf"),
    ],
)
def test_widths_that_make_no_sense_are_refused(arguments, words):
    with pytest.raises(ValueError, match=words):
        swiglu_width(*arguments)


def test_swiglu_takes_the_arguments_of_mlp_in_the_same_order():
    ours, theirs = (list(inspect.signature(c).parameters) for c in (SwiGLU, MLP))
    assert ours == theirs == ["d_model", "d_ff", "dropout", "bias"]


def test_it_can_be_copied_and_stored():
    mlp = build(kind="bilinear")
    for other in (copy.deepcopy(mlp), pickle.loads(pickle.dumps(mlp))):
        x = torch.randn(3, 32)
        assert torch.equal(mlp(x), other(x))
    names = {"gate.weight", "up.weight", "down.weight"}
    assert set(SwiGLU(8, 21).state_dict()) == names


def test_a_product_overflows_where_a_sum_does_not():
    torch.manual_seed(0)
    loud = (1000 * torch.randn(100, 64)).half()
    assert MLP(64, 256, bias=False).half()(loud).isfinite().all()
    assert not SwiGLU(64, 170).half()(loud).isfinite().all()


def test_public_names_are_documented():
    names = ["GATES", "GatedMLP", "SwiGLU", "swiglu_width"]
    assert minigpt.swiglu.__all__ == names
    for thing in (GatedMLP, SwiGLU, swiglu_width):
        for word in ("Args:", "Raises:", "Source:"):
            assert word in inspect.getdoc(thing)


# --- the record -----------------------------------------------------------------------


def test_the_record_is_complete_and_compares_equals():
    from tools.record_swiglu import FOUND, KINDS, plan

    path = files("minigpt.book") / "records" / "swiglu.json"
    runs = json.loads(path.read_text("utf-8"))["runs"]
    settings_done = [{k: run[k] for k in run if k not in FOUND} for run in runs]
    assert all(setting in settings_done for setting in plan())
    sizes = {(run.get("d_model"), run["n_parameters"]) for run in runs}
    assert len(sizes) == 2  # one of each of the two models: equal for all kinds
    assert {run["kind"] for run in runs} == set(KINDS)
    losses = {
        (run["kind"], run["seed"]): run["val_loss"]
        for run in runs
        if (run["lr"], run["steps"]) == (3e-3, 400)
    }
    for kind in ("swiglu", "geglu", "reglu", "bilinear"):
        assert all(losses[kind, s] < losses["gelu", s] for s in range(5)), kind


def test_where_silu_is_lowest():
    """quiz: 2"""
    z = torch.linspace(-10, 10, 200_001, dtype=torch.float64)
    lowest, at = F.silu(z).min(0)
    assert z[at].item() == pytest.approx(-1.278, abs=1e-3)
    assert lowest.item() == pytest.approx(1 - 1.278, abs=1e-3)
    assert lowest.item() == pytest.approx(-0.28, abs=0.005)
    assert F.silu(torch.tensor(100.0)).item() == 100


def test_the_width_at_96():
    """quiz: 3"""
    assert 3 * 96 * 256 == 2 * 96 * 384 and 256 * 3 == 8 * 96
    assert 3 * 96 * 384 == 1.5 * (2 * 96 * 384)


def test_four_times_the_input_of_a_product():
    """quiz: 5"""
    torch.manual_seed(0)
    mlp = GatedMLP(8, 12, kind="bilinear").double()
    x = torch.randn(3, 8, dtype=torch.float64)
    torch.testing.assert_close(mlp(4 * x), 16 * mlp(x))
