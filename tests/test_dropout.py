"""Dropout: the formulas in float64, torch's bits and law, on and off, once a place."""

import copy
import itertools
import json
import math
import sys
from importlib.resources import files
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from minigpt.attention import CausalSelfAttention
from minigpt.block import BLOCKS
from minigpt.depth import Stack, TokenEmbedding, fit
from minigpt.dropout import Dropout, dropout
from minigpt.gpt import GPT, GPTConfig
from minigpt.layernorm import LayerNorm
from minigpt.mlp import MLP

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
from tools import record_dropout  # noqa: E402
from tools.recording import chapter_cells  # noqa: E402

DTYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16]
SHAPES = [(), (1,), (7,), (3, 0), (2, 5), (2, 3, 5), (2, 2, 3, 5)]
few = settings(deadline=None, max_examples=25, derandomize=True)
rates = st.floats(0.0, 1.0, exclude_max=True).filter(lambda p: p == 0 or p > 1e-6)

rows = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=30)


def random(*shape, seed=0, dtype=torch.float32):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def within(count, n, p, sigmas=4.5):
    """Whether a count of n coins that come up with p is no more than chance off."""
    return abs(count - n * p) <= sigmas * math.sqrt(n * p * (1 - p)) + 1e-9


class Coins(TorchDispatchMode):
    """Counts the Bernoulli numbers that are drawn."""

    def __init__(self):
        super().__init__()
        self.drawn = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        if "bernoulli" in str(function):
            self.drawn.append(result.numel())
        return result


# The formulas of the chapter, in Python's own numbers


@few
@given(
    rates, st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=30), st.integers(0, 9)
)
def test_every_value_is_zero_or_divided(p, values, seed):
    """y = m x / (1 - p), with m zero or one. formula: thrown-answer"""
    x = torch.tensor(values, dtype=torch.float64)
    y = dropout(x, p, True, torch.Generator().manual_seed(seed)).tolist()
    for before, after in zip(values, y):
        kept = before / (1 - p)
        assert after == 0 or math.isclose(after, kept, rel_tol=1e-15)


def test_the_coin_is_kept_with_one_minus_p():
    """m = 1 with probability 1 - p. formula: thrown-answer"""
    for p in (0.01, 0.1, 0.25, 0.5, 0.9, 0.99):
        y = dropout(torch.ones(100_000), p, True, torch.Generator().manual_seed(3))
        assert within((y == 0).sum().item(), 100_000, p), p
        assert within((y != 0).sum().item(), 100_000, 1 - p), p


@pytest.mark.parametrize("p", [0.1, 0.2, 0.5, 0.8])
def test_mean_mean_square_and_variance_over_all_masks(p):
    """E[y] = x, E[y^2] = x^2 / (1-p), Var[y] = p / (1-p) x^2. formula: moments"""
    x = [0.3, -1.7, 2.5, 4.0]
    mean, square = [0.0] * 4, [0.0] * 4
    for mask in itertools.product((0, 1), repeat=4):
        chance = math.prod(1 - p if m else p for m in mask)
        for i, m in enumerate(mask):
            y = m * x[i] / (1 - p)
            mean[i] += chance * y
            square[i] += chance * y * y
    for i in range(4):
        assert math.isclose(mean[i], x[i], rel_tol=1e-12)
        assert math.isclose(square[i], x[i] ** 2 / (1 - p), rel_tol=1e-12)
        variance = square[i] - mean[i] ** 2
        assert math.isclose(variance, p / (1 - p) * x[i] ** 2, rel_tol=1e-11)
    # and the code follows that law: 40,000 draws, within 5 deviations of the mean's own
    n, wide = 40_000, torch.tensor(x, dtype=torch.float64).expand(40_000, 4)
    ys = dropout(wide, p, True, torch.Generator().manual_seed(1))
    for i in range(4):
        deviation = abs(x[i]) * math.sqrt(p / (1 - p))
        assert abs(ys[:, i].mean().item() - x[i]) < 5 * deviation / math.sqrt(n)
        seconds = ys[:, i].square()
        error = 5 * seconds.std().item() / math.sqrt(n)
        assert abs(seconds.mean().item() - x[i] ** 2 / (1 - p)) < error


@pytest.mark.parametrize(("B", "T", "D", "H", "L"), [(2, 5, 12, 3, 1), (3, 8, 8, 2, 3)])
def test_coins_of_a_forward_pass(B, T, D, H, L):
    """B T D + L (B H T^2 + 2 B T D), each place once. formula: where-count"""
    expected = [B * T * D] + [B * H * T * T, B * T * D, B * T * D] * L
    assert sum(expected) == B * T * D + L * (B * H * T**2 + 2 * B * T * D)
    model = GPT(GPTConfig(11, context=T, n_layers=L, n_heads=H, d_model=D, dropout=0.3))
    for network in (model, stack(0.3, V=11, T=T, D=D, H=H, L=L)):
        with Coins() as coins:
            network(torch.zeros(B, T, dtype=torch.long))
        assert sorted(coins.drawn) == sorted(expected)
        with Coins() as coins:
            network.eval()(torch.zeros(B, T, dtype=torch.long))
        assert coins.drawn == []


# torch's dropout


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("p", [0, 0.0, 0.1, 0.2, 0.37, 0.5, 0.9, 0.999, 1.0, 1])
def test_same_seed_same_bits_as_torch(p, dtype):
    for shape in SHAPES:
        results = []
        for f in (lambda x: dropout(x, p, True), nn.Dropout(p), Dropout(p)):
            x = random(*shape, dtype=dtype).requires_grad_()
            torch.manual_seed(7)
            y = f(x)
            (gradient,) = torch.autograd.grad((3 * y).sum(), x)
            results.append((y.detach(), gradient, torch.rand(3)))
        for ours, theirs in zip(results[0], results[1]):
            assert torch.equal(ours, theirs) and ours.dtype == theirs.dtype
        for module, theirs in zip(results[2], results[1]):
            assert torch.equal(module, theirs)


def test_strides_do_not_change_the_mask_against_torch():
    x = random(6, 8).t()
    torch.manual_seed(1)
    ours = dropout(x, 0.4, True)
    torch.manual_seed(1)
    assert torch.equal(ours, F.dropout(x, 0.4))
    assert ours.stride() == x.stride()


@pytest.mark.parametrize("p", [0.1, 0.5])
def test_second_derivatives_go_through(p):
    x = random(5, dtype=torch.float64).requires_grad_()

    def fixed(x):
        return dropout(x, p, True, torch.Generator().manual_seed(2)).pow(3)

    assert torch.autograd.gradcheck(fixed, x)
    assert torch.autograd.gradgradcheck(fixed, x)


@few
@given(rates, st.integers(0, 1000))
def test_the_gradient_is_the_mask(p, seed):
    x = (random(40, seed=seed, dtype=torch.float64).abs() + 0.1).requires_grad_()
    y = dropout(x, p, True, torch.Generator().manual_seed(seed))
    (gradient,) = torch.autograd.grad(y.sum(), x)
    torch.testing.assert_close(gradient, (y / x).detach(), rtol=1e-12, atol=0)
    assert torch.equal(gradient == 0, y == 0)


def test_coins_are_independent_along_every_dimension():
    """No mask is shared by tokens, channels or samples (F06 tells of such a fault)."""
    p, dropped = 0.3, dropout(torch.ones(8, 64, 512), 0.3, True, generator(5)) == 0
    for dim in range(3):
        for step in (1, 2, 4):
            both = dropped & dropped.roll(step, dim)
            assert within(both.sum().item(), both.numel(), p * p, sigmas=6), (dim, step)


def generator(seed):
    return torch.Generator().manual_seed(seed)


def test_a_generator_decides_alone():
    x, before = random(50), torch.get_rng_state()
    a, b = (dropout(x, 0.5, True, generator(4)) for _ in range(2))
    assert torch.equal(a, b)
    assert not torch.equal(a, dropout(x, 0.5, True, generator(5)))
    assert torch.equal(torch.get_rng_state(), before)


# Edges


@pytest.mark.parametrize("training", [True, False])
def test_the_input_is_left_alone(training):
    x = random(20)
    before = x.clone()
    dropout(x, 0.5, training)
    dropout(x, 1.0, training)
    assert torch.equal(x, before)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a12_p_one_gives_finite_zeros(dtype):
    """A12: 1.0 is a probability, too."""
    x = torch.tensor([65504.0, -3.0, 0.0, 1e-7]).to(dtype).requires_grad_()
    y = dropout(x, 1.0, True)
    (gradient,) = torch.autograd.grad(y.sum(), x)
    assert torch.equal(y, torch.zeros_like(x)) and y.dtype == dtype
    assert torch.equal(gradient, torch.zeros_like(x))


@pytest.mark.parametrize("p", [-0.1, 1.5, -1e-12, math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("training", [True, False])
def test_a12_no_probability_is_refused(p, training):
    """A12: the message names p, its value and what would be right, in both modes."""
    for make in (lambda: dropout(random(3), p, training), lambda: Dropout(p)):
        with pytest.raises(ValueError, match="probability, 0 to 1") as error:
            make()
        assert f"p={p}" in str(error.value)


def test_a12_every_p_and_every_eps_of_a_model():
    """A12: dropout=0.37 reaches every place, and no norm's eps."""
    model = GPT(GPTConfig(65, n_layers=3, dropout=0.37, norm_eps=1e-5))
    ps = [m.p for m in model.modules() if isinstance(m, (nn.Dropout, Dropout))]
    ps += [m.dropout for m in model.modules() if hasattr(m, "dropout")]
    assert ps == [0.37] * (1 + 2 * 3)  # the embeddings; attention and MLP of each block
    eps = [m.eps for m in model.modules() if isinstance(m, LayerNorm)]
    assert eps == [1e-5] * 7


@pytest.mark.parametrize("p", [0.0, 1.0])
def test_a12_a_model_at_the_ends(p):
    model = GPT(GPTConfig(65, n_layers=2, dropout=p))
    tokens = torch.arange(16).view(2, 8)
    assert model(tokens).isfinite().all()
    if p == 0:
        assert torch.equal(model(tokens), model.eval()(tokens))


@pytest.mark.parametrize("p", [-0.1, 1.5])
def test_a12_a_model_refuses_what_is_no_probability(p):
    with pytest.raises(ValueError, match="dropout"):
        GPTConfig(65, dropout=p)


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.complex64])
@pytest.mark.parametrize("training", [True, False])
def test_what_is_not_floating_point_is_refused(dtype, training):
    x = torch.ones(3).to(dtype)
    with pytest.raises(ValueError, match=f"{dtype}.*float"):
        dropout(x, 0.5, training)
    with pytest.raises(ValueError, match=f"{dtype}.*float"):
        Dropout(0.0).train(training)(x)


def test_training_has_no_default():
    with pytest.raises(TypeError, match="training"):
        dropout(random(3), 0.5)


def test_the_module_shows_its_p_and_keeps_no_state():
    module = Dropout(0.25)
    assert repr(module) == "Dropout(p=0.25)"
    assert list(module.state_dict()) == [] and list(module.parameters()) == []
    assert copy.deepcopy(module).p == 0.25


# On and off


@pytest.mark.parametrize("p", [0.0, 0.5, 1.0])
def test_eval_returns_the_input_itself_and_draws_nothing(p):
    module, x = Dropout(p).eval(), random(3, 4)
    before = torch.get_rng_state()
    assert module(x) is x and dropout(x, p, False) is x
    assert torch.equal(torch.get_rng_state(), before)
    assert module.train() is module and module.training


def test_p_zero_draws_nothing_in_training():
    before = torch.get_rng_state()
    x = random(9)
    assert Dropout(0.0)(x) is x
    assert torch.equal(torch.get_rng_state(), before)


def stack(p, V=13, T=8, D=16, H=2, L=2, order="pre"):
    blocks = [
        BLOCKS[order](
            attn=CausalSelfAttention(D, H, p),
            mlp=MLP(D, 4 * D, p),
            attn_norm=LayerNorm(D),
            mlp_norm=LayerNorm(D),
        )
        for _ in range(L)
    ]
    embedding = nn.Sequential(TokenEmbedding(V, T, D), Dropout(p))
    return Stack(embedding, blocks, nn.Linear(D, V), LayerNorm(D))


def gpt(p, order="pre"):
    return GPT(
        GPTConfig(
            13, context=8, n_layers=2, n_heads=2, d_model=16, dropout=p, order=order
        )
    )


@pytest.mark.parametrize("order", list(BLOCKS))
@pytest.mark.parametrize("make", [gpt, stack])
def test_a11_eval_is_deterministic_and_equals_the_twin_without(make, order):
    """A11: two equal forwards, equal to dropout=0, random state untouched."""
    model, twin = make(0.5, order=order), make(0.0, order=order)
    twin.load_state_dict(model.state_dict())
    tokens = torch.arange(16).view(2, 8) % 13
    model.eval()
    before = torch.get_rng_state()
    first, second = model(tokens), model(tokens)
    assert torch.equal(first, second)
    assert torch.equal(first, twin(tokens))  # in training: p = 0 is off in both modes
    assert torch.equal(torch.get_rng_state(), before)
    model.train()
    assert not torch.equal(model(tokens), model(tokens))
    assert not torch.equal(torch.get_rng_state(), before)


def test_a11_ones_become_zero_or_five_quarters():
    """A11: kept values are 1.25, dropped 0, for p = 0.2."""
    values = Dropout(0.2)(torch.ones(1000)).unique().tolist()
    assert values == [0.0, 1.25]


def test_a11_the_function_that_does_not_know_is_caught():
    """A11: the careless call does drop in evaluation, so our check can fail."""
    q = random(1, 2, 6, 8)

    def careless():
        return F.scaled_dot_product_attention(q, q, q, dropout_p=0.5, is_causal=True)

    assert not torch.equal(careless(), careless())
    attn = CausalSelfAttention(16, 2, dropout=0.5).eval()
    x = random(2, 6, 16)
    assert torch.equal(attn(x), attn(x))


def test_no_grad_does_not_switch_it_off():
    with torch.no_grad():
        assert (Dropout(0.5)(torch.ones(1000)) == 0).any()


def test_the_same_run_with_ours_and_with_torchs():
    """Ten steps with dropout end in the same weights, whoever drops."""
    ends = []
    for kind in (Dropout, nn.Dropout):
        torch.manual_seed(0)
        model = stack(0.3)
        model.embed[1] = kind(0.3)
        torch.manual_seed(1)
        batch = (torch.arange(16).view(2, 8) % 13, torch.arange(1, 17).view(2, 8) % 13)
        fit(model, [batch] * 10, steps=10, lr=0.01)
        ends.append(torch.cat([p.flatten() for p in model.parameters()]))
    assert torch.equal(*ends)


# Compiled


def test_f06_compiled_evaluation_equals_eager():
    """F06: eval logits within 1e-4."""
    tokens = torch.arange(16).view(2, 8) % 13
    model = stack(0.5, L=1).eval()
    compiled = torch.compile(model, backend="aot_eager")
    torch.testing.assert_close(compiled(tokens), model(tokens), rtol=0, atol=1e-4)


def test_f06_compiled_training_without_dropout_equals_eager():
    """F06: equal losses, and gradients, with dropout 0."""
    tokens, model, results = torch.arange(16).view(2, 8) % 13, stack(0.0, L=1), []
    for f in (model, torch.compile(model, backend="aot_eager")):
        model.zero_grad()
        loss = F.cross_entropy(f(tokens).flatten(0, 1), tokens.flatten())
        loss.backward()
        results.append([loss.detach(), *(p.grad.clone() for p in model.parameters())])
    for eager, other in zip(*results):
        torch.testing.assert_close(other, eager, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_f06_compiled_dropout_keeps_the_law(backend):
    """F06: keep rate within four sigma, survivors exact, also along the channels."""
    compiled = torch.compile(Dropout(0.2), backend=backend)
    torch.manual_seed(0)
    y = compiled(torch.ones(8, 64, 512))
    assert within((y != 0).sum().item(), y.numel(), 0.8, sigmas=4)
    assert y.unique().tolist() == [0.0, 1.25]
    dropped = y == 0
    both = dropped & dropped.roll(1, -1)
    assert within(both.sum().item(), both.numel(), 0.04, sigmas=6)
    x = torch.ones(1000)
    compiled.eval()
    assert torch.equal(compiled(x), x)


# The chapter's record and exercises


@pytest.fixture(scope="module")
def record():
    path = files("minigpt.book") / "records" / "dropout.json"
    return json.loads(path.read_text("utf-8"))


def test_the_record_is_whole(record):
    assert len(record["seeds"]) >= 3
    for runs in record["larger"]["runs"].values():
        assert len(runs) == len(record["seeds"])
        assert all(len(r["seen"]) == len(r["unseen"]) for r in runs)
    for point in record["reads"]["points"]:
        assert len(point["p=0"]) == len(point["p=0.2"]) == len(record["seeds"])


def test_the_record_says_what_the_chapter_says(record):
    runs = record["larger"]["runs"]
    for plain, with_dropout in zip(runs["0.0"], runs["0.2"]):
        assert plain["unseen"][-1] > min(plain["unseen"]) + 0.1
        assert with_dropout["unseen"][-1] < plain["unseen"][-1]
    gaps = [
        [run["unseen"][-1] - run["seen"][-1] for run in runs[p]]
        for p in ("0.0", "0.1", "0.2", "0.5")
    ]
    for larger, smaller in itertools.pairwise(gaps):
        assert all(a > b for a, b in zip(larger, smaller))


def test_the_records_tool_finds_the_chapters_cells(monkeypatch, capsys):
    """It runs cells of the chapter by name: a renamed cell must not break it unseen."""
    monkeypatch.setenv("MINIGPT_SIZE", "small")
    names = chapter_cells(record_dropout.CHAPTER, record_dropout.CELLS)
    names["SIZE"].update(n_layers=1, d_model=8, steps=4)
    result = names["run"](0.2, 0, names["page"](0, 200), looks=2)
    assert len(result.seen) == len(result.unseen) == 2 and len(result.loop) == 4


def test_a_value_of_one_at_a_fifth():
    """quiz: 1"""
    torch.manual_seed(0)
    y = dropout(torch.ones(100_000), 0.2, True)
    assert sorted(set(y.tolist())) == [0, 1.25] and 1 / 0.8 == 1.25
    assert y.mean().item() == pytest.approx(1, abs=0.01)
    assert (y == 0).float().mean().item() == pytest.approx(0.2, abs=0.01)


def test_the_mean_square_doubles_at_a_half():
    """quiz: 2"""
    torch.manual_seed(0)
    x = torch.randn(100_000)
    loud = dropout(x, 0.5, True).square().mean() / x.square().mean()
    assert loud.item() == pytest.approx(2, rel=0.02)
