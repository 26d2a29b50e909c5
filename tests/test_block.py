"""Blocks: orders told apart by what they do, DeepNorm, dropout, the recorded map."""

import copy
import inspect
import json
import math

import pytest
import torch
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F
from transformers.models.gemma2.modeling_gemma2 import Gemma2DecoderLayer
from transformers.models.olmo2.modeling_olmo2 import Olmo2DecoderLayer

import minigpt.block
from minigpt.attention import CausalSelfAttention
from minigpt.block import (
    BLOCKS,
    Block,
    DeepNormBlock,
    PostNormBlock,
    ReorderedNormBlock,
    SandwichBlock,
    deepnorm_scales,
    scale_deepnorm,
)
from minigpt.book import records
from minigpt.depth import PlainBlock, Stack, TokenEmbedding, initialise
from minigpt.depth import record as probe
from minigpt.layernorm import LayerNorm
from minigpt.mlp import MLP
from minigpt.residual import Residual, ResidualBlock, scale_writes
from minigpt.rmsnorm import RMSNorm
from minigpt.swiglu import SwiGLU
from tools import record_stability

ORDERS = list(BLOCKS)
FREE = ["residual", "pre", "sandwich", "reordered"]  # no norm stands on the stream


def build(order, d_model=32, n_heads=4, d_ff=64, dropout=0.0, seed=0, alpha=1.5):
    """A block with gains that are not 1 and biases that are not 0."""
    torch.manual_seed(seed)
    parts = {
        "attn": CausalSelfAttention(d_model, n_heads, dropout),
        "mlp": MLP(d_model, d_ff, dropout),
        "attn_norm": LayerNorm(d_model),
        "mlp_norm": LayerNorm(d_model),
    }
    deep = order == "deepnorm"
    block = DeepNormBlock(**parts, alpha=alpha) if deep else BLOCKS[order](**parts)
    for name, p in block.named_parameters():
        if "norm" in name:
            nn.init.normal_(p, mean=1.0 if name.endswith("weight") else 0.0, std=0.3)
    return block


def fresh_norms(block):
    for module in block.modules():
        if isinstance(module, LayerNorm):
            nn.init.ones_(module.weight)
            nn.init.zeros_(module.bias)
    return block


def silence(block):
    for write in (block.attn.out, block.mlp.down):
        nn.init.zeros_(write.weight)
        nn.init.zeros_(write.bias)
    return block


def tokens(*shape, seed=0):
    """Neither of mean 0 nor of variance 1."""
    generator = torch.Generator().manual_seed(seed)
    return 3 * torch.randn(shape, generator=generator) + 1


def test_the_dictionary():
    kinds = {order: type(build(order)) for order in ORDERS}
    assert kinds == {
        "plain": PlainBlock,
        "residual": ResidualBlock,
        "post": PostNormBlock,
        "pre": Block,
        "sandwich": SandwichBlock,
        "reordered": ReorderedNormBlock,
    }
    assert minigpt.block.__all__ == [
        "Block", "PostNormBlock", "ReorderedNormBlock", "SandwichBlock", "BLOCKS",
        "DeepNormBlock", "deepnorm_scales", "scale_deepnorm",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("order", "norms"),
    list(zip(ORDERS, (0, 0, 2, 2, 4, 2))),
)
def test_no_norm_is_registered_that_does_nothing(order, norms):
    block = build(order)
    found = [m for m in block.modules() if isinstance(m, LayerNorm)]
    assert len(found) == norms
    block(tokens(2, 5, 32)).square().sum().backward()
    assert all(p.grad.abs().sum() > 0 for m in found for p in m.parameters())


@pytest.mark.parametrize(
    "norm", [LayerNorm(8, eps=1e-3), LayerNorm(8, bias=False), RMSNorm(8, eps=1e-2)]
)
def test_a_sandwich_copies_its_norms_and_keeps_them_apart(norm):
    nn.init.normal_(norm.weight)
    other = copy.deepcopy(norm)
    block = SandwichBlock(CausalSelfAttention(8, 2), MLP(8, 16), norm, other)
    assert block.attn_norm is norm and block.mlp_norm is other
    for outer in (block.attn_out_norm, block.mlp_out_norm):
        assert type(outer) is type(norm) and outer.eps == norm.eps
        assert torch.equal(outer.weight, norm.weight)
        with torch.no_grad():
            outer.weight.zero_()
    assert norm.weight.any() and other.weight.any()


# A07: which side of the norm the residual is taken from


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("order", FREE)
def test_a07_a_silent_block_on_a_free_stream_is_the_identity(order, seed):
    block, x = silence(build(order, seed=seed)), tokens(2, 5, 32, seed=seed)
    for name, p in block.named_parameters():
        if "out_norm.bias" in name or (order == "reordered" and "norm.bias" in name):
            nn.init.zeros_(p)  # behind a sublayer, a shift is something said
    assert torch.equal(block(x), x)


@pytest.mark.parametrize("seed", range(3))
def test_a07_silent_post_block_is_both_norms(seed):
    block, x = silence(build("post", seed=seed)), tokens(2, 5, 32, seed=seed)
    expected = block.mlp_norm(block.attn_norm(x))
    torch.testing.assert_close(block(x), expected, rtol=0, atol=1e-6)
    assert not torch.allclose(block(x), x, atol=0.1)


def test_a07_silent_plain_block_has_lost_its_input():
    assert not silence(build("plain"))(tokens(2, 5, 32)).any()


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("order", ["post", "deepnorm"])
def test_a07_post_tokens_have_mean_0_and_variance_1(order, seed):
    block = fresh_norms(build(order, seed=seed))
    for x in (tokens(2, 5, 32, seed=seed), 1000 * tokens(2, 5, 32, seed=seed)):
        y = block(x)
        zeros = torch.zeros(2, 5)
        torch.testing.assert_close(y.mean(-1), zeros, rtol=0, atol=1e-5)
        torch.testing.assert_close(
            y.var(-1, correction=0), zeros + 1, rtol=0, atol=1e-3
        )


class OverwritesInput(Block):
    """The first `norm_first` of PyTorch: the input is lost before it is added."""

    def forward(self, x):
        x = self.attn_norm(x)
        x = x + self.attn(x)
        x = self.mlp_norm(x)
        return x + self.mlp(x)


class AddsRawInput(PostNormBlock):
    """A Post-LN that normalises the sublayer's output only."""

    def forward(self, x):
        x = x + self.attn_norm(self.attn(x))
        return x + self.mlp_norm(self.mlp(x))


class ForgetsTheNorm(PostNormBlock):
    """The normalised value goes into the MLP, but not into the next addition."""

    def forward(self, x):
        x = x + self.attn(x)
        return self.mlp_norm(x + self.mlp(self.attn_norm(x)))


class NormOnce(Block):
    """The second sublayer reads the raw stream."""

    def forward(self, x):
        x = x + self.attn(self.attn_norm(x))
        return x + self.mlp(x)


class SwapsNorms(Block):
    def forward(self, x):
        x = x + self.attn(self.mlp_norm(x))
        return x + self.mlp(self.attn_norm(x))


MISTAKES = [OverwritesInput, AddsRawInput, ForgetsTheNorm, NormOnce, SwapsNorms]


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a07_every_wrong_wiring_is_seen(mistake):
    """Planted mistakes: each differs from the order it claims to be."""
    claimed = "post" if issubclass(mistake, PostNormBlock) else "pre"
    right = build(claimed).double()
    wrong = mistake(right.attn, right.mlp, right.attn_norm, right.mlp_norm)
    x = tokens(2, 5, 32).double()
    assert not torch.allclose(wrong(x), by_hand(right, claimed, x), atol=0.05)


def test_a07_the_order_changes_the_function_of_the_same_weights():
    x = tokens(2, 5, 32)
    outputs = {}
    for order in ("pre", "post", "reordered"):
        block = build(order, seed=1)
        block.load_state_dict(build("pre").state_dict())
        outputs[order] = block(x)
    for a, b in (("pre", "post"), ("pre", "reordered"), ("post", "reordered")):
        assert not torch.allclose(outputs[a], outputs[b], atol=0.1)


# The formulas, evaluated on their own in float64


def by_hand(block, order, x, alpha=1.0):
    """The block's formula from its weights alone, without its modules' forward."""

    def norm(m, x):
        centred = x - x.mean(-1, keepdim=True)
        s = (centred.pow(2).mean(-1, keepdim=True) + m.eps).sqrt()
        return centred / s * m.weight + m.bias

    def attn(x):
        m = block.attn
        q, k, v = (x @ m.qkv.weight.T + m.qkv.bias).chunk(3, -1)
        heads = []
        for head in range(m.n_heads):
            at = slice(
                head * x.shape[-1] // m.n_heads, (head + 1) * x.shape[-1] // m.n_heads
            )
            scores = q[..., at] @ k[..., at].mT / (x.shape[-1] // m.n_heads) ** 0.5
            hidden = torch.ones_like(scores).triu(1).bool()
            scores = scores.masked_fill(hidden, -torch.inf)
            heads.append(scores.softmax(-1) @ v[..., at])
        return torch.cat(heads, -1) @ m.out.weight.T + m.out.bias

    def mlp(x):
        m = block.mlp
        h = x @ m.up.weight.T + m.up.bias
        h = h * (1 + torch.erf(h / 2**0.5)) / 2
        return h @ m.down.weight.T + m.down.bias

    for sub, name in ((attn, "attn"), (mlp, "mlp")):
        own = getattr(block, f"{name}_norm", None)
        if order == "plain":
            x = sub(x)
        elif order == "residual":
            x = x + sub(x)
        elif order == "pre":
            x = x + sub(norm(own, x))
        elif order in ("post", "deepnorm"):
            x = norm(own, alpha * x + sub(x))
        elif order == "reordered":
            x = x + norm(own, sub(x))
        elif order == "sandwich":
            x = x + norm(getattr(block, f"{name}_out_norm"), sub(norm(own, x)))
    return x


@pytest.mark.parametrize("order", [*ORDERS, "deepnorm"])
@pytest.mark.parametrize("seed", range(2))
def test_equals_its_formula_in_float64(order, seed):
    """formula: pre-block; formula: post-block; formula: blocks-dict-intro

    Residual and plain are evaluated with them, and DeepNorm's first formula.
    """
    block, x = build(order, seed=seed).double(), tokens(2, 6, 32).double()
    expected = by_hand(block, order, x, alpha=1.5 if order == "deepnorm" else 1.0)
    torch.testing.assert_close(block(x), expected, rtol=0, atol=1e-11)


@settings(deadline=None, max_examples=25, derandomize=True)
@given(st.integers(1, 5000))
def test_deepnorms_two_constants(n_layers):
    """formula: deepnorm

    Their product does not depend on depth: (2 N / 8 N)^(1/4) = 1 / sqrt(2).
    """
    alpha, beta = deepnorm_scales(n_layers)
    assert alpha == pytest.approx(math.sqrt(math.sqrt(2 * n_layers)), rel=1e-12)
    assert beta == pytest.approx(1 / math.sqrt(math.sqrt(8 * n_layers)), rel=1e-12)
    assert alpha * beta == pytest.approx(2**-0.5, rel=1e-12)


@pytest.mark.parametrize("order", ["pre", "post"])
def test_equals_torchs_encoder_layer(order):
    block = build(order)
    layer = nn.TransformerEncoderLayer(
        32, 4, 64, dropout=0.0, activation="gelu", batch_first=True,
        norm_first=order == "pre",
    )  # fmt: skip
    names = {
        "self_attn.in_proj_": "attn.qkv.",
        "self_attn.out_proj.": "attn.out.",
        "linear1.": "mlp.up.",
        "linear2.": "mlp.down.",
        "norm1.": "attn_norm.",
        "norm2.": "mlp_norm.",
    }
    ours = block.state_dict()
    layer.load_state_dict(
        {
            a + kind: ours[b + kind]
            for a, b in names.items()
            for kind in ("weight", "bias")
        }
    )
    x = tokens(2, 6, 32)
    mask = nn.Transformer.generate_square_subsequent_mask(6)
    expected = layer(x, src_mask=mask, is_causal=True)
    torch.testing.assert_close(block(x), expected, rtol=1e-5, atol=1e-5)


class WithoutWeights(nn.Module):
    """Our attention in the place of Hugging Face's, which returns weights as well."""

    def __init__(self, attn):
        super().__init__()
        self.attn = attn

    def forward(self, hidden_states, **_):
        return self.attn(hidden_states), None


@pytest.mark.parametrize(
    ("order", "layer", "config", "norms"),
    [
        (
            "reordered",
            Olmo2DecoderLayer,
            transformers.Olmo2Config,
            {
                "post_attention_layernorm": "attn_norm",
                "post_feedforward_layernorm": "mlp_norm",
            },
        ),
        (
            "sandwich",
            Gemma2DecoderLayer,
            transformers.Gemma2Config,
            {
                "input_layernorm": "attn_norm",
                "post_attention_layernorm": "attn_out_norm",
                "pre_feedforward_layernorm": "mlp_norm",
                "post_feedforward_layernorm": "mlp_out_norm",
            },
        ),
    ],
)
def test_is_wired_as_in_hugging_face(order, layer, config, norms):
    """Their layer, with our parts put into it by the names of its norms."""
    sizes = {"hidden_size": 32, "num_attention_heads": 4, "num_key_value_heads": 4}
    sizes |= {"intermediate_size": 64, "head_dim": 8, "num_hidden_layers": 1}
    theirs = layer(config(**sizes), layer_idx=0)
    block = build(order)
    theirs.self_attn, theirs.mlp = WithoutWeights(block.attn), block.mlp
    for their_name, name in norms.items():
        assert isinstance(getattr(theirs, their_name), nn.Module)
        setattr(theirs, their_name, getattr(block, name))
    assert sum("norm" in name for name, _ in theirs.named_children()) == len(norms)
    x = tokens(2, 6, 32)
    expected = theirs(x, position_embeddings=None)
    torch.testing.assert_close(block(x), expected, rtol=0, atol=1e-6)


# Shapes, causality, use


@pytest.mark.parametrize("order", ORDERS)
def test_the_width_of_gpt2_keeps_its_shape(order):
    block = build(order, d_model=768, n_heads=8, d_ff=2048)
    y = block(torch.randn(2, 4, 768))
    assert y.shape == (2, 4, 768) and y.isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("order", [*ORDERS, "deepnorm"])
def test_keeps_the_dtype(order, dtype):
    block = build(order).to(dtype)
    x = tokens(1, 3, 32).to(dtype)
    assert block(x).dtype == dtype
    wide = copy.deepcopy(block).double()(x.double())
    assert (block(x).double() - wide).abs().max() < (
        0.2 if dtype.itemsize == 2 else 1e-4
    )


@pytest.mark.parametrize("order", [*ORDERS, "deepnorm"])
def test_no_gradient_from_the_future(order):
    block, x = build(order), tokens(2, 8, 32).requires_grad_()
    for t in (0, 3, 7):
        (grad,) = torch.autograd.grad(block(x)[0, t].square().sum(), x)
        reached = grad.abs().sum(-1)
        assert (reached[0, : t + 1] > 0).all()
        assert (reached[0, t + 1 :] == 0).all() and (reached[1] == 0).all()


@pytest.mark.parametrize("order", [*ORDERS, "deepnorm"])
def test_input_is_not_changed_and_every_parameter_learns(order):
    block, x = build(order), tokens(2, 5, 32)
    kept = x.clone()
    (block(x) * torch.randn(2, 5, 32)).sum().backward()
    assert torch.equal(x, kept)
    assert all(p.grad.abs().sum() > 0 for p in block.parameters())


@pytest.mark.parametrize("order", ORDERS)
def test_takes_other_parts(order):
    """The parts come from outside: other norms and MLPs need no other block."""
    parts = (
        CausalSelfAttention(32, 4),
        nn.Linear(32, 32),
        nn.RMSNorm(32),
        nn.Identity(),
    )
    assert BLOCKS[order](*parts)(tokens(2, 5, 32)).shape == (2, 5, 32)


# Properties, for norms whose gains are not 1


@settings(deadline=None, max_examples=25, derandomize=True)
@given(st.sampled_from(FREE), st.integers(0, 10_000), st.floats(0.2, 20))
def test_what_a_norm_forgets(order, seed, factor):
    """Before a sublayer the input's size, behind it the size of what was written."""
    block, x = build(order, seed=seed).double(), tokens(2, 4, 32, seed=seed).double()
    for module in block.modules():
        if isinstance(module, LayerNorm):
            module.eps = 0.0
    nn.init.zeros_(block.mlp.down.weight)
    nn.init.zeros_(block.mlp.down.bias)
    if order in ("sandwich", "reordered"):  # the norm of a zero has no eps to save it
        block.mlp.forward = lambda x: torch.zeros_like(x)
        last = block.mlp_out_norm if order == "sandwich" else block.mlp_norm
        last.forward = lambda x: torch.zeros_like(x)
    update = block(x) - x
    reads_norm = torch.allclose(block(factor * x) - factor * x, update, atol=1e-9)
    with torch.no_grad():
        for parameter in block.attn.out.parameters():
            parameter.mul_(factor)
    writes_norm = torch.allclose(block(x) - x, update, atol=1e-9)
    if abs(factor - 1) > 0.05:
        assert reads_norm == (order in ("pre", "sandwich"))
        assert writes_norm == (order in ("sandwich", "reordered"))


def half(block, order, name):
    """One sublayer of a block, out of `Residual` and `nn.Sequential`."""
    sub = getattr(block, name)
    norm = getattr(block, f"{name}_norm", nn.Identity())
    outer = getattr(block, f"{name}_out_norm", nn.Identity())
    return {
        "plain": [sub],
        "residual": [Residual(sub)],
        "post": [Residual(sub), norm],
        "pre": [Residual(nn.Sequential(norm, sub))],
        "sandwich": [Residual(nn.Sequential(norm, sub, outer))],
        "reordered": [Residual(nn.Sequential(sub, norm))],
    }[order]


@settings(deadline=None, max_examples=25, derandomize=True)
@given(st.sampled_from(ORDERS), st.integers(0, 10_000), st.integers(1, 9))
def test_every_order_is_made_of_residual_and_sequential(order, seed, T):
    block, x = build(order, seed=seed), tokens(2, T, 32, seed=seed)
    halves = half(block, order, "attn") + half(block, order, "mlp")
    assert torch.equal(block(x), nn.Sequential(*halves)(x))


# DeepNorm


class AlphaOnTheWrongTerm(DeepNormBlock):
    def forward(self, x):
        x = self.attn_norm(x + self.alpha * self.attn(x))
        return self.mlp_norm(x + self.alpha * self.mlp(x))


def stays_near_its_input(kind):
    """A large alpha on the stream makes the block a norm of its input, in the limit."""
    right = fresh_norms(build("deepnorm", seed=3))
    block = kind(right.attn, right.mlp, right.attn_norm, right.mlp_norm, alpha=1e4)
    x = tokens(2, 5, 32)
    return torch.allclose(block(x), F.layer_norm(x, (32,)), atol=1e-2)


def test_alpha_stands_on_the_stream_and_the_wrong_term_is_seen():
    assert stays_near_its_input(DeepNormBlock)
    assert not stays_near_its_input(AlphaOnTheWrongTerm)


def test_deepnorm_with_alpha_1_is_post_ln():
    deep, post = build("deepnorm", alpha=1.0), build("post")
    post.load_state_dict(deep.state_dict())
    x = tokens(2, 5, 32)
    assert torch.equal(deep(x), post(x)) and isinstance(deep, PostNormBlock)


@pytest.mark.parametrize("alpha", [0.0, -1.0, math.inf, math.nan])
def test_a_wrong_alpha_is_refused(alpha):
    with pytest.raises(ValueError, match=f"alpha={alpha}"):
        build("deepnorm", alpha=alpha)


def test_a_wrong_number_of_layers_is_refused():
    with pytest.raises(ValueError, match="n_layers=0"):
        deepnorm_scales(0)


@pytest.mark.parametrize("mlp", [MLP(8, 32), SwiGLU(8, 24)])
def test_beta_scales_values_outputs_and_the_mlp_and_nothing_else(mlp):
    parts = CausalSelfAttention(8, 2), mlp, LayerNorm(8), LayerNorm(8)
    block = DeepNormBlock(*parts, alpha=2.0)
    other = copy.deepcopy(Block(*parts))
    model = nn.ModuleList([block, other])
    before = copy.deepcopy(model.state_dict())
    assert scale_deepnorm(model, 0.25) is model
    for name, after in model.state_dict().items():
        factor = torch.ones_like(after)
        if name.startswith("0.mlp.") or name == "0.attn.out.weight":
            factor *= 0.25 if name.endswith("weight") else 1.0
        if name == "0.attn.qkv.weight":
            factor[16:] = 0.25
        assert torch.equal(after, before[name] * factor), name


# Dropout: once at the end of each branch


@pytest.mark.parametrize("order", ORDERS)
def test_dropout_is_drawn_once_for_each_branch(order, monkeypatch):
    sizes = []
    original = F.dropout

    def counted(x, p=0.5, training=True, inplace=False):
        if training and p > 0:
            sizes.append(tuple(x.shape))
        return original(x, p, training, inplace)

    monkeypatch.setattr(F, "dropout", counted)
    build(order, dropout=0.3)(tokens(2, 5, 32))
    assert sizes == [(2, 5, 32)] * 2


def test_what_is_written_to_the_stream_is_dropped_once():
    """Dropped twice, three quarters would be zero and survivors would be 4."""
    block = build("pre", d_model=256, dropout=0.5)
    nn.init.zeros_(block.attn.out.weight)
    nn.init.ones_(block.attn.out.bias)
    nn.init.zeros_(block.mlp.down.weight)
    nn.init.zeros_(block.mlp.down.bias)
    torch.manual_seed(0)
    written = block.train()(torch.zeros(8, 16, 256))
    assert sorted(written.unique().tolist()) == [0.0, 2.0]
    assert (written == 0).float().mean().item() == pytest.approx(0.5, abs=0.01)


@pytest.mark.parametrize("order", ORDERS)
def test_in_eval_dropout_is_off_and_draws_nothing(order):
    block, x = build(order, dropout=0.5).eval(), tokens(2, 5, 32)
    torch.manual_seed(1)
    before = torch.get_rng_state()
    y = block(x)
    assert torch.equal(torch.get_rng_state(), before)
    plain = build(order)
    plain.load_state_dict(block.state_dict())
    assert torch.equal(y, plain.eval()(x))


# What the chapter says, on seeds that it does not show


def stack(order, depth, seed, scaled=False):
    """A Xavier-initialised stack, and a batch of random tokens."""
    torch.manual_seed(seed)
    blocks = [fresh_norms(build(order, 64, 4, 256, seed=seed)) for _ in range(depth)]
    model = Stack(TokenEmbedding(65, 32, 64), blocks, nn.Linear(64, 65, bias=False))
    torch.manual_seed(seed)
    initialise(model, "xavier")
    if scaled:
        scale_writes(model)
    return model, tuple(torch.randint(65, (2, 4, 32)))


@pytest.mark.parametrize("seed", [101, 102])
@pytest.mark.parametrize(
    ("order", "per_block"), [("pre", 1), ("sandwich", 2), ("reordered", 2)]
)
def test_the_stream_grows_in_proportion_to_depth(order, per_block, seed):
    grown = [size**2 for size in probe(*stack(order, 12, seed)).signal]
    assert grown == sorted(grown)
    assert 0.6 * per_block < grown[-1] / 12 < 1.6 * per_block
    assert 1.5 < grown[-1] / grown[5] < 3.0


@pytest.mark.parametrize("seed", [101, 102])
def test_post_resets_the_stream(seed):
    assert probe(*stack("post", 12, seed)).signal == pytest.approx([1.0] * 12, abs=2e-3)


@pytest.mark.parametrize("seed", [101, 102])
@pytest.mark.parametrize("depth", [6, 24])
def test_a08_scaled_writes_keep_the_stream_flat(depth, seed):
    model, batch = stack("pre", depth, seed, scaled=True)
    plain, _ = stack("pre", depth, seed)
    for ours, theirs in zip(model.blocks, plain.blocks):
        for part in ("attn.out", "mlp.down"):
            ratio = ours.get_submodule(part).weight / theirs.get_submodule(part).weight
            assert ratio.mean().item() == pytest.approx((2 * depth) ** -0.5, rel=1e-4)
        assert torch.equal(ours.attn.qkv.weight, theirs.attn.qkv.weight)
        assert torch.equal(ours.mlp.up.weight, theirs.mlp.up.weight)
    assert probe(model, batch).signal[-1] ** 2 < 1.0


# The recorded map


def test_the_record_holds_runs_of_the_plan_each_once():
    record = records.stability()
    assert record["setting"]["device"] == "one CPU core"
    keys = [tuple(run[key] for key in record_stability.GRID) for run in record["runs"]]
    planned = [tuple(setting.values()) for setting in record_stability.plan()]
    assert sorted(keys) == sorted(planned)
    assert all(len(run["losses"]) == 15 for run in record["runs"])
    assert records.stability("another") is None


@pytest.mark.parametrize(("order", "depth"), [("post", 6), ("pre", 3)])
def test_a_cell_of_the_record_remade_agrees_in_its_verdict(order, depth):
    setting = {"order": order, "depth": depth, "lr": 3e-3, "warmup": 0, "seed": 0}
    (stored,) = [
        run
        for run in records.stability()["runs"]
        if all(run[key] == value for key, value in setting.items())
    ]
    found = record_stability.run(record_stability.cells(), setting)
    learned = [run["val_loss"] is not None and run["val_loss"] < 3.1
               for run in (stored, found)]  # fmt: skip
    assert learned == [order == "pre"] * 2
    assert found["losses"][0] == pytest.approx(stored["losses"][0], abs=0.02)


def test_the_record_is_resumed_and_written_whole(tmp_path, monkeypatch):
    done = []

    def fake(chapter, setting):
        if len(done) == 3:
            raise KeyboardInterrupt
        done.append(setting)
        return {"val_loss": None, "losses": []}

    chapter = {"DEVICE": torch.device("cpu"), "SIZE": {"steps": 1}}
    monkeypatch.setattr(record_stability, "FOLDER", tmp_path)
    monkeypatch.setattr(record_stability, "cells", lambda: chapter)
    monkeypatch.setattr(record_stability, "run", fake)
    grid = {"seed": [0, 1], "order": ["pre", "post"]}
    monkeypatch.setattr(record_stability, "GRID", grid)
    with pytest.raises(KeyboardInterrupt):
        record_stability.main([])
    path = tmp_path / "stability.json"
    assert len(json.loads(path.read_text("utf-8"))["runs"]) == 3
    first = list(done)
    done.clear()
    assert record_stability.main([]) == 0
    runs = json.loads(path.read_text("utf-8"))["runs"]
    assert [run["seed"] for run in runs] == [0, 0, 1, 1] and len(done) == 1
    assert done[0] not in first and list(tmp_path.iterdir()) == [path]


def test_public_names_are_documented():
    for block in (Block, PostNormBlock, ReorderedNormBlock, SandwichBlock):
        assert "Source:" in inspect.getdoc(block)
        assert "Returns:" in inspect.getdoc(block.forward)
    for thing in (Block, DeepNormBlock, deepnorm_scales, scale_deepnorm):
        assert "Args:" in inspect.getdoc(thing)


def test_the_sixty_fourth_write():
    """quiz: 4"""
    torch.manual_seed(0)
    updates = torch.randn(64, 4096, dtype=torch.float64)
    stream = updates[:63].sum(0)
    share = (updates[63].norm() / stream.norm()).item()
    assert share == pytest.approx(1 / 8, rel=0.05)
    assert share**2 == pytest.approx(1 / 64, rel=0.1)
