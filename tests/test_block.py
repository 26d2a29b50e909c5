"""Block: two orders told apart by what they do, causality, one dropout a branch."""

import copy
import inspect

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import minigpt.block
from minigpt.attention import CausalSelfAttention
from minigpt.block import BLOCKS, Block, PostNormBlock
from minigpt.layernorm import LayerNorm
from minigpt.mlp import MLP

ORDERS = list(BLOCKS)


def build(order, d_model=32, n_heads=4, d_ff=64, dropout=0.0, seed=0):
    """A block with gains that are not 1 and biases that are not 0."""
    torch.manual_seed(seed)
    block = BLOCKS[order](
        attn=CausalSelfAttention(d_model, n_heads, dropout),
        mlp=MLP(d_model, d_ff, dropout),
        attn_norm=LayerNorm(d_model),
        mlp_norm=LayerNorm(d_model),
    )
    for name, p in block.named_parameters():
        if "norm" in name:
            nn.init.normal_(p, mean=1.0 if name.endswith("weight") else 0.0, std=0.3)
    return block


def fresh_norms(block):
    for norm in (block.attn_norm, block.mlp_norm):
        nn.init.ones_(norm.weight)
        nn.init.zeros_(norm.bias)
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
    assert BLOCKS["pre"] is Block and BLOCKS["post"] is PostNormBlock
    assert all(issubclass(block, Block) for block in BLOCKS.values())
    assert minigpt.block.__all__ == ["Block", "PostNormBlock", "BLOCKS"]


# A07: which side of the norm the residual is taken from


@pytest.mark.parametrize("seed", range(3))
def test_a07_silent_pre_block_is_the_identity(seed):
    block, x = silence(build("pre", seed=seed)), tokens(2, 5, 32, seed=seed)
    assert torch.equal(block(x), x)


@pytest.mark.parametrize("seed", range(3))
def test_a07_silent_post_block_is_both_norms(seed):
    block, x = silence(build("post", seed=seed)), tokens(2, 5, 32, seed=seed)
    expected = block.mlp_norm(block.attn_norm(x))
    torch.testing.assert_close(block(x), expected, rtol=0, atol=1e-6)
    assert not torch.allclose(block(x), x, atol=0.1)


@pytest.mark.parametrize("seed", range(3))
def test_a07_post_tokens_have_mean_0_and_variance_1(seed):
    block = fresh_norms(build("post", seed=seed))
    for x in (tokens(2, 5, 32, seed=seed), 1000 * tokens(2, 5, 32, seed=seed)):
        y = block(x)
        zeros = torch.zeros(2, 5)
        torch.testing.assert_close(y.mean(-1), zeros, rtol=0, atol=1e-5)
        torch.testing.assert_close(
            y.var(-1, correction=0), zeros + 1, rtol=0, atol=1e-3
        )


def test_a07_the_order_changes_the_function_of_the_same_weights():
    pre, post = build("pre"), build("post", seed=1)
    assert list(pre.state_dict()) == list(post.state_dict())
    post.load_state_dict(pre.state_dict())
    assert not torch.allclose(pre(tokens(2, 5, 32)), post(tokens(2, 5, 32)), atol=0.1)


# The two lines, evaluated on their own in float64


def by_hand(block, order, x):
    """The block's formula from its weights alone, without its modules' forward."""

    def norm(m, x):
        centred = x - x.mean(-1, keepdim=True)
        s = (centred.pow(2).mean(-1, keepdim=True) + m.eps).sqrt()
        return centred / s * m.weight + m.bias

    def attn(m, x):
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

    def mlp(m, x):
        h = x @ m.up.weight.T + m.up.bias
        h = h * (1 + torch.erf(h / 2**0.5)) / 2
        return h @ m.down.weight.T + m.down.bias

    if order == "pre":
        x = x + attn(block.attn, norm(block.attn_norm, x))
        return x + mlp(block.mlp, norm(block.mlp_norm, x))
    x = norm(block.attn_norm, x + attn(block.attn, x))
    return norm(block.mlp_norm, x + mlp(block.mlp, x))


@pytest.mark.parametrize("order", ["pre", "post"])
def test_equals_its_formula_in_float64(order):
    block, x = build(order).double(), tokens(2, 6, 32).double()
    torch.testing.assert_close(block(x), by_hand(block, order, x), rtol=0, atol=1e-11)


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


# Shapes, causality, use


@pytest.mark.parametrize("order", ORDERS)
def test_the_width_of_gpt2_keeps_its_shape(order):
    block = build(order, d_model=768, n_heads=8, d_ff=2048)
    y = block(torch.randn(2, 4, 768))
    assert y.shape == (2, 4, 768) and y.isfinite().all()


@pytest.mark.parametrize("order", ORDERS)
def test_no_gradient_from_the_future(order):
    block, x = build(order), tokens(2, 8, 32).requires_grad_()
    for t in (0, 3, 7):
        (grad,) = torch.autograd.grad(block(x)[0, t].square().sum(), x)
        reached = grad.abs().sum(-1)
        assert (reached[0, : t + 1] > 0).all()
        assert (reached[0, t + 1 :] == 0).all() and (reached[1] == 0).all()


@pytest.mark.parametrize("order", ORDERS)
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


def xavier(block):
    block = copy.deepcopy(fresh_norms(block))
    for m in block.modules():
        if isinstance(m, nn.Linear):
            nn.init.xavier_normal_(m.weight)
            nn.init.zeros_(m.bias)
    for matrix in block.attn.qkv.weight.data.chunk(3):
        nn.init.xavier_normal_(matrix)
    return block


@torch.no_grad()
@pytest.mark.parametrize("seed", [101, 102])
def test_pre_accumulates_variance_and_post_resets_it(seed):
    grown = {}
    for order in ("pre", "post"):
        torch.manual_seed(seed)
        x = torch.randn(4, 32, 64)
        blocks = [
            xavier(build(order, 64, 4, 256, seed=seed * 100 + n)) for n in range(12)
        ]
        grown[order] = []
        for block in blocks:
            x = block(x)
            grown[order].append(x.var().item())
    assert grown["post"] == pytest.approx([1.0] * 12, abs=2e-3)
    assert grown["pre"] == sorted(grown["pre"])
    assert 1.5 < grown["pre"][-1] / grown["pre"][5] < 3.0  # in proportion to depth


def test_public_names_are_documented():
    for block in BLOCKS.values():
        assert "Source:" in inspect.getdoc(block)
        assert "Returns:" in inspect.getdoc(block.forward)
    assert "Args:" in inspect.getdoc(Block)
