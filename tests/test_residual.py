"""Residual: what is added, how its gradient flows, and which matrices write."""

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import minigpt.residual
from minigpt.attention import CausalSelfAttention
from minigpt.block import Block, PostNormBlock
from minigpt.depth import INITS, PlainBlock, Stack, TokenEmbedding, initialise, record
from minigpt.gpt import GPT, GPTConfig
from minigpt.layernorm import LayerNorm
from minigpt.mlp import MLP
from minigpt.residual import Residual, ResidualBlock, scale_writes, writes
from minigpt.swiglu import SwiGLU

few = settings(deadline=None, max_examples=25, derandomize=True)
double = torch.float64


def residual_block(d_model=16, n_heads=2, d_ff=32, seed=0, kind=ResidualBlock):
    torch.manual_seed(seed)
    return kind(CausalSelfAttention(d_model, n_heads), MLP(d_model, d_ff))


def transformer(depth, seed=0, kind=ResidualBlock, init="xavier"):
    torch.manual_seed(seed)
    blocks = [kind(CausalSelfAttention(32, 2), MLP(32, 128)) for _ in range(depth)]
    model = Stack(TokenEmbedding(11, 16, 32), blocks, nn.Linear(32, 11))
    return initialise(model, init)


def relu_stack(depth, width=64, seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(
        *(
            Residual(nn.Sequential(nn.Linear(width, width), nn.ReLU()))
            for _ in range(depth)
        )
    )


def some(*shape, seed=0, dtype=torch.float32):
    generator = torch.Generator().manual_seed(seed)
    return (3 * torch.randn(shape, generator=generator) + 1).to(dtype)


def test_what_the_module_offers():
    names = ["Residual", "ResidualBlock", "writes", "scale_writes"]
    assert minigpt.residual.__all__ == names


# The addition


@few
@given(
    shape=st.lists(st.integers(1, 4), min_size=0, max_size=3),
    width=st.integers(1, 8),
    dtype=st.sampled_from([torch.float64, torch.float32, torch.bfloat16]),
    seed=st.integers(0, 99),
)
def test_adds_the_branch_for_every_rank_and_dtype(shape, width, dtype, seed):
    torch.manual_seed(seed)
    branch = nn.Linear(width, width).to(dtype)
    x = some(*shape, width, seed=seed, dtype=dtype)
    kept = x.clone()
    y = Residual(branch)(x)
    assert y.dtype == dtype and torch.equal(y, x + branch(x))
    assert torch.equal(x, kept), "the input must not be changed"


def test_refuses_what_broadcasting_would_hide():
    with pytest.raises(ValueError, match=r"\(2, 4, 1\).*\(2, 4, 8\)"):
        Residual(nn.Linear(8, 1))(some(2, 4, 8))
    with pytest.raises(ValueError, match="shape"):
        Residual(nn.Flatten(0, 1))(some(1, 4, 8))


def test_block_is_two_additions_in_this_order():
    block, x = residual_block(), some(2, 5, 16)
    after_attention = x + block.attn(x)
    expected = after_attention + block.mlp(after_attention)
    assert torch.equal(block(x), expected)
    same = nn.Sequential(Residual(block.attn), Residual(block.mlp))
    assert torch.equal(same(x), expected)


@pytest.mark.parametrize("seed", range(3))
def test_a07_a_silent_block_is_the_identity_to_the_last_bit(seed):
    """A07, the part without norms: what is added back is the block's own input."""
    block, x = residual_block(seed=seed), some(2, 5, 16, seed=seed)
    assert not torch.allclose(block(x), x)
    scale_writes(block, factor=0.0)
    assert torch.equal(block(x), x)


def test_no_token_sees_the_future():
    block = residual_block().double()
    x = some(1, 6, 16, dtype=double).requires_grad_()
    (g,) = torch.autograd.grad(block(x)[0, 2].sum(), x)
    assert g[0, :3].abs().sum(-1).min() > 0 and g[0, 3:].abs().max() == 0


# The gradient


@pytest.mark.parametrize("seed", range(5))
def test_gradient_is_from_above_times_identity_plus_jacobian(seed):
    """formula: gradient

    The Jacobian is taken by central differences, entry by entry.
    """
    torch.manual_seed(seed)
    branch = nn.Sequential(nn.Linear(4, 7), nn.GELU(), nn.Linear(7, 4)).double()
    x, above = some(4, seed=seed, dtype=double), some(4, seed=seed + 9, dtype=double)
    h, expected = 1e-6, []
    with torch.no_grad():
        for j in range(4):
            step = torch.zeros(4, dtype=double)
            step[j] = h
            column = (branch(x + step) - branch(x - step)) / (2 * h)  # dF_i / dx_j
            total = above[j].item()  # the identity's part
            for i in range(4):
                total += above[i].item() * column[i].item()
            expected.append(total)
    x.requires_grad_()
    (found,) = torch.autograd.grad(Residual(branch)(x), x, above)
    torch.testing.assert_close(
        found, torch.tensor(expected, dtype=double), rtol=1e-7, atol=1e-7
    )


class Times(nn.Module):
    def __init__(self, factor):
        super().__init__()
        self.factor = factor

    def forward(self, x):
        return self.factor * x


@pytest.mark.parametrize("factor", [-1.0, -0.5, 0.0, 0.25])
def test_identity_is_no_guarantee(factor):
    """64 branches F(x) = c x pass on (1 + c)^64: nothing at all for c = -1."""
    stack = nn.Sequential(*(Residual(Times(factor)) for _ in range(64))).double()
    x = torch.ones(3, dtype=double, requires_grad=True)
    (g,) = torch.autograd.grad(stack(x).sum(), x)
    torch.testing.assert_close(g, torch.full((3,), (1 + factor) ** 64, dtype=double))


@few
@given(eps=st.floats(0.01, 0.5), depth=st.integers(1, 12), seed=st.integers(0, 99))
def test_small_branches_do_guarantee(eps, depth, seed):
    """Branches that stretch by at most eps keep a gradient within (1 -+ eps)^N."""
    torch.manual_seed(seed)
    layers = []
    for _ in range(depth):
        linear = nn.Linear(6, 6).double()
        with torch.no_grad():
            linear.weight.mul_(eps / torch.linalg.svdvals(linear.weight)[0])
        layers.append(Residual(linear))
    x = some(6, seed=seed, dtype=double).requires_grad_()
    above = some(6, seed=seed + 1, dtype=double)
    (g,) = torch.autograd.grad(nn.Sequential(*layers)(x), x, above)
    ratio = (g.norm() / above.norm()).item()
    assert (1 - eps) ** depth - 1e-9 <= ratio <= (1 + eps) ** depth + 1e-9


@pytest.mark.parametrize("depth", [1, 2, 5])
def test_product_is_the_sum_over_paths(depth):
    """formula: paths-intro

    Every subset of the layers is a path; the product is their sum, and there are
    depth-over-k paths of length k.
    """
    J = [some(3, 3, seed=n, dtype=double) for n in range(depth)]
    eye = torch.eye(3, dtype=double)
    product = eye
    for matrix in J:
        product = (eye + matrix) @ product
    total = torch.zeros(3, 3, dtype=double)
    for k in range(depth + 1):
        subsets = list(itertools.combinations(range(depth), k))
        assert len(subsets) == math.comb(depth, k)
        for subset in subsets:
            path = eye
            for layer in subset:  # the lowest layer acts first
                path = J[layer] @ path
            total = total + path
    torch.testing.assert_close(product, total)


# The stream's growth


@pytest.mark.parametrize("a", [0.3, 1.0])
@pytest.mark.parametrize("N", [8, 64])
def test_growth_of_a_sum_of_independent_updates(a, N):
    """formula: stream-growth

    Branches are random matrices that make the update `a` times as large.
    """
    D, x = 512, some(512, dtype=double)
    start = x.square().mean().item()
    for n in range(N):
        generator = torch.Generator().manual_seed(n)
        w = torch.randn(D, D, generator=generator, dtype=double) * a / math.sqrt(D)
        layer = Residual(nn.Linear(D, D, bias=False).double())
        with torch.no_grad():
            layer.branch.weight.copy_(w)
            x = layer(x)
    found = math.log(x.square().mean().item() / start)
    assert found == pytest.approx(N * math.log(1 + a * a), rel=0.2)
    assert N * math.log(1 + a * a) <= a * a * N  # so e^(a^2 N) is a bound,
    assert N * math.log(1 + a * a / N) <= a * a  # and e^(a^2) with small writes


@pytest.mark.parametrize("seed", range(3))
def test_stream_explodes_as_drawn_and_not_with_small_writes(seed):
    tokens = torch.arange(16).remainder(11)[None].repeat(2, 1)

    def growth(model, depth):
        ends = ["embed", f"blocks.{depth - 1}"]
        signal = record(model, (tokens, tokens), layers=ends).signal
        return (signal[1] / signal[0]) ** 2

    assert growth(transformer(24, seed), 24) > 1e6
    for depth in (6, 24):
        assert growth(scale_writes(transformer(depth, seed)), depth) < 3


@pytest.mark.parametrize("seed", range(3))
def test_gradient_across_64_layers(seed):
    def ratio(stack):
        x = some(8, 64, seed=seed, dtype=double)
        r = record(stack.double(), x, loss=lambda y: (y * above).sum())
        return r.gradient[0] / r.gradient[-1]

    above = some(8, 64, seed=seed + 1, dtype=double)
    assert ratio(relu_stack(64, seed=seed)) > 1e3
    assert 0.5 < ratio(scale_writes(relu_stack(64, seed=seed))) < 5


# writes and scale_writes


def test_writes_are_found_by_place():
    model = transformer(3)
    expected = [w for b in model.blocks for w in (b.attn.out, b.mlp.down)]
    found = writes(model)
    assert len(found) == 6 and all(a is b for a, b in zip(found, expected))
    assert writes(model.blocks[1]) == expected[2:4]
    stack = relu_stack(4)
    assert writes(stack) == [layer.branch[0] for layer in stack]


@pytest.mark.parametrize("kind", [Block, PostNormBlock])
@pytest.mark.parametrize("mlp", [MLP, SwiGLU])
def test_writes_of_blocks_of_later_chapters(kind, mlp):
    block = kind(
        attn=CausalSelfAttention(16, 2),
        mlp=mlp(16, 32),
        attn_norm=LayerNorm(16),
        mlp_norm=LayerNorm(16),
    )
    assert writes(block) == [block.attn.out, block.mlp.down]
    assert writes(Residual(mlp(16, 32)))[0].in_features == 32


def test_names_alone_are_no_writes():
    """A08: no layer is scaled because of what it happens to be called."""

    class Named(nn.Module):
        def __init__(self):
            super().__init__()
            self.out, self.down = nn.Linear(4, 4), nn.Linear(4, 4)

    for nothing in (Named(), residual_block(kind=PlainBlock), nn.Linear(4, 4)):
        with pytest.raises(ValueError, match="Residual"):
            writes(nothing)
    both = nn.ModuleList([Named(), residual_block(), residual_block(kind=PlainBlock)])
    assert writes(both) == [both[1].attn.out, both[1].mlp.down]


def test_a_shared_part_is_scaled_once():
    attn, mlp = CausalSelfAttention(16, 2), MLP(16, 32)
    before = attn.out.weight.clone()
    model = nn.ModuleList([ResidualBlock(attn, mlp), ResidualBlock(attn, mlp)])
    assert len(writes(model)) == 2
    scale_writes(model, factor=0.5)
    torch.testing.assert_close(attn.out.weight, before / 2, rtol=0, atol=0)


@few
@given(
    depth=st.integers(1, 4),
    init=st.sampled_from(sorted(INITS)),
    seed=st.integers(0, 99),
)
def test_every_update_becomes_the_factor_times_what_it_was(depth, init, seed):
    """Weight and bias, whatever the initialisation; nothing else is touched."""
    model = transformer(depth, seed, init=init).double()
    for layer in writes(model):
        nn.init.normal_(layer.bias)
    before = {name: p.clone() for name, p in model.named_parameters()}
    x = some(2, 5, 32, seed=seed, dtype=double)
    block = model.blocks[-1]
    with torch.no_grad():
        attn, mlp = block.attn(x), block.mlp(x)
        assert scale_writes(model) is model
        factor = 1 / math.sqrt(2 * depth)
        torch.testing.assert_close(block.attn(x), factor * attn)
        torch.testing.assert_close(block.mlp(x), factor * mlp)
    for name, p in model.named_parameters():
        changed = ".out." in name or ".down." in name
        expected = before[name] * (factor if changed else 1.0)
        torch.testing.assert_close(p, expected, msg=name)
        assert p.requires_grad and p.grad_fn is None


def test_a_factor_of_ones_own():
    model, other = transformer(2, seed=1), transformer(2, seed=1)
    scale_writes(scale_writes(model, 0.5), 0.5)
    scale_writes(other, 0.25)
    assert torch.equal(model.blocks[0].attn.out.weight, other.blocks[0].attn.out.weight)


def test_gpt_finds_the_same_matrices_with_the_same_factor():
    """A08: 1/sqrt(2 n_layers) on the writes of a GPT, and nowhere else."""
    torch.manual_seed(0)
    config = GPTConfig(vocab_size=17, context=8, n_layers=6, n_heads=2, d_model=64)
    model = GPT(config)
    found = writes(model)
    expected = [w for b in model.blocks for w in (b.attn.out, b.mlp.down)]
    assert len(found) == 12 and all(a is b for a, b in zip(found, expected))
    for layer in found:
        assert layer.weight.std().item() == pytest.approx(0.02 / math.sqrt(12), rel=0.1)


# Chapter 5's forerunner


def test_highway_mixes_output_and_input():
    """formula: exercise-highway

    Evaluated number by number, and against a residual layer: with a gate of one half,
    a highway layer is half of one.
    """
    W, b = some(3, 3, seed=1, dtype=double), some(3, seed=2, dtype=double)
    x, h = some(3, seed=3, dtype=double), some(3, seed=4, dtype=double)
    gate = torch.sigmoid(W @ x + b)
    y = gate * h + (1 - gate) * x
    for i in range(3):
        z = b[i].item() + sum(W[i, j].item() * x[j].item() for j in range(3))
        t = 1 / (1 + math.exp(-z))
        assert y[i].item() == pytest.approx(t * h[i].item() + (1 - t) * x[i].item())
    linear = nn.Linear(3, 3).double()
    torch.testing.assert_close(Residual(linear)(x) / 2, 0.5 * linear(x) + 0.5 * x)


def test_half_way_ten_times():
    """quiz: 2"""
    x = torch.ones(4, dtype=torch.float64, requires_grad=True)
    y = x
    for _ in range(10):
        y = y + -y / 2
    y.sum().backward()
    assert (
        x.grad[0].item()
        == 2**-10
        == sum(math.comb(10, k) * (-1 / 2) ** k for k in range(11))
    )
    assert 1 / 1100 < 2**-10 < 1 / 1000


def test_ten_writes_as_large_as_the_stream():
    """quiz: 3"""
    torch.manual_seed(0)
    stream = torch.randn(20000, dtype=torch.float64)
    before = stream.square().mean()
    for _ in range(10):
        write = torch.randn_like(stream)
        stream = (
            stream + write * (stream.square().mean() / write.square().mean()) ** 0.5
        )
    grown = (stream.square().mean() / before).item()
    assert grown == pytest.approx(1024, rel=0.2)


def test_gpt2_scales_by_the_number_of_writes():
    """quiz: 4"""
    model = GPT(GPTConfig(65, n_layers=12, n_heads=2, d_model=64))
    assert len(list(writes(model))) == 24
    down = model.blocks[3].mlp.down.weight.std().item()
    assert down == pytest.approx(0.02 / math.sqrt(24), rel=0.05)
