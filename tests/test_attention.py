"""Chapter 2: attention. Case numbers are those of the collected bug reports."""

import copy
import inspect
import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import minigpt.attention
from minigpt.attention import CausalSelfAttention, attention_weights


def build(d_model=32, n_heads=4, seed=0, **options):
    """Attention whose weights and biases are not what it starts with."""
    torch.manual_seed(seed)
    attn = CausalSelfAttention(d_model, n_heads, **options)
    with torch.no_grad():
        for parameter in attn.parameters():
            parameter.normal_(0.0, d_model**-0.5)  # outputs of the order of 1
    return attn


def pieces(attn):
    """Weights and biases by name: (H, K, D) and (H, K) each for query, key, value."""
    D, H = attn.d_model, attn.n_heads
    w = attn.qkv.weight.reshape(3, H, D // H, D)
    b = attn.qkv.bias
    b = torch.zeros(3, H, D // H).to(w) if b is None else b.reshape(3, H, D // H)
    return w, b


def formula(attn, x):
    """Vaswani et al., equation 1, by einsum, head by head and without a mask tensor."""
    w, b = pieces(attn)
    q, k, v = (torch.einsum("btd,hkd->bhtk", x, w[i]) + b[i][:, None] for i in range(3))
    y = torch.zeros_like(v)
    for t in range(x.shape[1]):  # token t is given tokens 0 to t and nothing else
        s = torch.einsum("bhk,bhsk->bhs", q[:, :, t], k[:, :, : t + 1])
        e = torch.exp(s / math.sqrt(q.shape[-1]))
        a = e / e.sum(-1, keepdim=True)
        y[:, :, t] = torch.einsum("bhs,bhsk->bhk", a, v[:, :, : t + 1])
    y = torch.einsum(
        "bhtk,ohk->bto", y, attn.out.weight.reshape(attn.d_model, *w.shape[1:3])
    )
    return y if attn.out.bias is None else y + attn.out.bias


class ListOfHeads(nn.Module):
    """The first seed's form: every head its own three matrices."""

    def __init__(self, attn):
        super().__init__()
        D, H = attn.d_model, attn.n_heads
        w, b = (p.detach() for p in pieces(attn))
        self.heads = nn.ModuleList()
        for h in range(H):
            head = nn.ModuleDict({n: nn.Linear(D, D // H) for n in "qkv"})
            for i, linear in enumerate(head.values()):
                linear.weight.data.copy_(w[i, h])
                linear.bias.data.copy_(b[i, h])
            self.heads.append(head)
        self.proj = copy.deepcopy(attn.out)

    def forward(self, x):
        T = x.shape[1]
        outs = []
        for head in self.heads:
            q, k, v = (head[n](x) for n in "qkv")
            wei = q @ k.transpose(-2, -1) * k.shape[-1] ** -0.5
            wei = wei.masked_fill(torch.tril(torch.ones(T, T)) == 0, float("-inf"))
            outs.append(F.softmax(wei, dim=-1) @ v)
        return self.proj(torch.cat(outs, dim=-1))


class Explicit(nn.Module):
    """The second seed's form: w_q, w_k, w_v, w_o, and a mask over the scores."""

    def __init__(self, attn):
        super().__init__()
        D = attn.d_model
        self.n_heads = attn.n_heads
        for name, w, b in zip("qkv", attn.qkv.weight.chunk(3), attn.qkv.bias.chunk(3)):
            linear = nn.Linear(D, D)
            linear.weight.data.copy_(w.detach())
            linear.bias.data.copy_(b.detach())
            self.add_module(f"w_{name}", linear)
        self.w_o = copy.deepcopy(attn.out)

    def forward(self, x):
        B, T, D = x.shape
        q, k, v = (
            linear(x).view(B, T, self.n_heads, D // self.n_heads).transpose(1, 2)
            for linear in (self.w_q, self.w_k, self.w_v)
        )
        scores = torch.matmul(q, k.transpose(-2, -1)) / math.sqrt(D // self.n_heads)
        mask = torch.triu(torch.ones(T, T), diagonal=1).bool()
        weights = F.softmax(scores.masked_fill(mask, float("-inf")), dim=-1)
        out = torch.matmul(weights, v).transpose(1, 2).contiguous().view(B, T, D)
        return self.w_o(out)


def values_and_gradients(module, x):
    z = x.clone().requires_grad_()
    y = module(z)
    (grad,) = torch.autograd.grad(y.square().mean(), z)
    return y.detach(), grad


SHAPES = [(1, 1, 8, 1), (2, 1, 32, 4), (1, 5, 12, 3), (3, 17, 32, 4), (2, 33, 32, 32)]


# --- the same function, whoever writes it ---------------------------------------------


@pytest.mark.parametrize("B, T, D, H", SHAPES)
@pytest.mark.parametrize("bias", [True, False])
def test_equals_the_formula_in_float64(B, T, D, H, bias):
    attn = build(D, H, bias=bias).double()
    x = torch.randn(B, T, D, dtype=torch.float64)
    torch.testing.assert_close(attn(x), formula(attn, x), rtol=0, atol=1e-12)


@pytest.mark.parametrize("way", [ListOfHeads, Explicit])
@pytest.mark.parametrize("B, T, D, H", SHAPES)
def test_three_ways_agree_in_value_and_gradient(way, B, T, D, H):
    attn = build(D, H)
    x = torch.randn(B, T, D)
    ours, theirs = values_and_gradients(attn, x), values_and_gradients(way(attn), x)
    for mine, other in zip(ours, theirs):
        torch.testing.assert_close(mine, other, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("way", [ListOfHeads, Explicit])
def test_three_ways_send_the_same_gradient_to_their_weights(way):
    attn = build(16, 2)
    other = way(attn)
    x = torch.randn(2, 6, 16)
    attn(x).square().mean().backward()
    other(x).square().mean().backward()
    if way is ListOfHeads:
        grads = [h[n].weight.grad for n in "qkv" for h in other.heads]
        out = other.proj
    else:
        grads = [getattr(other, f"w_{n}").weight.grad for n in "qkv"]
        out = other.w_o
    torch.testing.assert_close(
        attn.qkv.weight.grad, torch.cat(grads), rtol=0, atol=1e-6
    )
    torch.testing.assert_close(attn.out.weight.grad, out.weight.grad, rtol=0, atol=1e-6)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("dtype, atol", [(torch.float64, 1e-12), (torch.float32, 2e-6)])
def test_equals_torch_multihead_attention(bias, dtype, atol):
    attn = build(32, 4, bias=bias).to(dtype)
    theirs = nn.MultiheadAttention(32, 4, bias=bias, batch_first=True, dtype=dtype)
    with torch.no_grad():
        theirs.in_proj_weight.copy_(attn.qkv.weight)
        theirs.out_proj.weight.copy_(attn.out.weight)
        if bias:
            theirs.in_proj_bias.copy_(attn.qkv.bias)
            theirs.out_proj.bias.copy_(attn.out.bias)
    x = torch.randn(3, 11, 32, dtype=dtype)
    hide = torch.ones(11, 11, dtype=torch.bool).triu(1)
    y, weights = theirs(x, x, x, attn_mask=hide, average_attn_weights=False)
    torch.testing.assert_close(attn(x), y, rtol=0, atol=atol)
    torch.testing.assert_close(attention_weights(attn, x), weights, rtol=0, atol=atol)


def test_parameter_count_does_not_depend_on_the_heads():
    for heads in (1, 2, 4, 8):
        count = sum(p.numel() for p in CausalSelfAttention(32, heads).parameters())
        assert count == 4 * 32 * 32 + 4 * 32
    attn = CausalSelfAttention(32, 4, bias=False)
    assert sum(p.numel() for p in attn.parameters()) == 4 * 32 * 32
    assert attn.qkv.bias is None and attn.out.bias is None


# --- the future -----------------------------------------------------------------------


@pytest.mark.parametrize("B, T, D, H", SHAPES)
def test_c06_gradient_of_the_future_is_exactly_zero(B, T, D, H):
    attn = build(D, H)
    x = torch.randn(B, T, D, requires_grad=True)
    y = attn(x)
    direction = torch.randn(D)
    for t in range(T):
        (grad,) = torch.autograd.grad((y[:, t] @ direction).sum(), x, retain_graph=True)
        assert (grad[:, t + 1 :] == 0).all()
        assert (grad[:, : t + 1].abs().amax(-1) > 0).all(), (
            "some past token is not read"
        )


def test_c06_a_changed_future_changes_nothing_before_it():
    attn = build()
    x = torch.randn(2, 16, 32)
    for t in range(1, 16):
        changed = x.clone()
        changed[:, t:] += 1.0
        moved = (attn(changed) - attn(x)).abs().amax(dim=(0, 2))
        assert moved[:t].max() < 1e-6
        assert moved[t:].min() > 1e-3


def test_c06_the_prefix_alone_gives_the_same_outputs():
    attn = build()
    x = torch.randn(2, 16, 32)
    for t in (1, 7, 15):
        torch.testing.assert_close(attn(x[:, :t]), attn(x)[:, :t], rtol=0, atol=1e-6)


def test_one_sequence_does_not_read_another():
    attn = build()
    x = torch.randn(2, 6, 32)
    changed = x.clone()
    changed[1] += 1.0
    torch.testing.assert_close(attn(changed)[0], attn(x)[0], rtol=0, atol=0)


def test_without_positions_the_order_of_the_past_is_invisible():
    attn = build()
    x = torch.randn(1, 8, 32)
    order = torch.tensor([4, 0, 6, 2, 5, 1, 3, 7])
    torch.testing.assert_close(
        attn(x[:, order])[:, -1], attn(x)[:, -1], rtol=0, atol=1e-6
    )


# --- weights --------------------------------------------------------------------------


def test_weights_are_means_over_the_past_and_explain_the_output():
    attn = build(dropout=0.5)  # left in training: the weights must not be dropped
    x = torch.randn(2, 9, 32)
    weights = attention_weights(attn, x)
    assert weights.shape == (2, 4, 9, 9) and not weights.requires_grad
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, 4, 9))
    assert (weights.triu(1) == 0).all() and (weights >= 0).all()
    attn.eval()
    v = attn.queries_keys_values(x)[2]
    y = attn.out((weights @ v).transpose(1, 2).reshape(2, 9, 32))
    torch.testing.assert_close(attn(x), y, rtol=0, atol=1e-6)


def test_scores_are_divided_by_the_root_of_d_head():
    attn = build(64, 1)
    with torch.no_grad():  # queries and keys equal to x
        attn.qkv.weight[:128] = torch.eye(64).repeat(2, 1)
        attn.qkv.bias[:128] = 0
    x = torch.zeros(1, 2, 64)
    x[0, 0], x[0, 1] = 1.0, 0.5  # scores of token 1: 32 and 16, divided by 8: 4 and 2
    w = attention_weights(attn, x)[0, 0, 1]
    torch.testing.assert_close((w[0] / w[1]).log().item(), 2.0, rtol=0, atol=1e-5)


# --- C08: numbers that overflow -------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_c08_half_precision_is_finite_and_keeps_its_dtype(dtype):
    attn = CausalSelfAttention(32, 4).to(dtype)
    x = torch.randn(2, 16, 32).to(dtype).requires_grad_()
    y = attn(x)
    assert y.dtype == dtype and y.isfinite().all()
    y.float().square().mean().backward()
    assert x.grad.isfinite().all()
    weights = attention_weights(attn, x)
    assert weights.dtype == dtype and (weights.triu(1) == 0).all()
    sums = weights.float().sum(-1)
    torch.testing.assert_close(sums, torch.ones_like(sums), rtol=0, atol=1e-2)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("T", [1, 7, 64])
def test_half_precision_on_a_cpu_goes_by_hand_when_short(monkeypatch, dtype, T):
    """Same values and gradients as float64, and torch's slow kernel is not called."""
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 2, 4, T, 16).to(dtype).unbind(0)
    wide = [x.double().requires_grad_() for x in (q, k, v)]
    expected = F.scaled_dot_product_attention(*wide, is_causal=True)
    expected.square().sum().backward()

    def refuse(*args, **kwargs):
        raise AssertionError("torch's kernel was called")

    monkeypatch.setattr(F, "scaled_dot_product_attention", refuse)
    half = [x.clone().requires_grad_() for x in (q, k, v)]
    y = minigpt.attention.attend(*half)
    assert y.dtype == dtype
    y.square().sum().backward()
    pairs = [(y, expected), *((a.grad, b.grad) for a, b in zip(half, wide))]
    for ours, exact in pairs:
        worst = (ours.double() - exact).abs().max() / exact.abs().max().clamp(min=1)
        assert worst < 0.02
    for elsewhere in (q.float(), torch.zeros(1, 1, 512, 16, dtype=dtype)):
        with pytest.raises(AssertionError, match="kernel"):
            minigpt.attention.attend(elsewhere, elsewhere, elsewhere)


def test_a11_dropout_of_weights_by_hand_is_dropout_of_weights():
    q, k = torch.zeros(2, 1, 1, 64, 16, dtype=torch.bfloat16)
    v = torch.ones(1, 1, 64, 16, dtype=torch.bfloat16)
    torch.manual_seed(0)
    rows = minigpt.attention.attend(q, k, v, dropout=0.5).float()[0, 0, :, 0]
    assert rows[0] in (0.0, 2.0)  # its only weight, dropped or doubled
    assert (rows[32:].mean() - 1).abs() < 0.2 and rows[32:].std() > 0.01


@pytest.mark.parametrize("scale", [0.0, 1e4])
def test_c08_no_nan_for_zeros_and_for_huge_inputs(scale):
    attn = build()
    x = (scale * torch.randn(2, 8, 32)).requires_grad_()
    y = attn(x)
    y.sum().backward()
    assert y.isfinite().all() and x.grad.isfinite().all()
    rows = attention_weights(attn, x).sum(-1)
    torch.testing.assert_close(rows, torch.ones_like(rows), rtol=0, atol=1e-3)


def test_c08_huge_values_in_padding_after_the_text_change_nothing():
    attn = build()
    x = torch.randn(1, 8, 32)
    padded = torch.cat([x, torch.full((1, 4, 32), 1e10)], dim=1)
    torch.testing.assert_close(attn(padded)[:, :8], attn(x), rtol=0, atol=1e-6)


# --- A11: dropout ---------------------------------------------------------------------


def test_a11_eval_is_deterministic_equals_no_dropout_and_draws_nothing():
    attn = build(dropout=0.5).eval()
    plain = build(dropout=0.0)
    plain.load_state_dict(attn.state_dict())
    x = torch.randn(2, 16, 32)
    before = torch.get_rng_state()
    first, second = attn(x), attn(x)
    assert torch.equal(before, torch.get_rng_state())
    assert torch.equal(first, second) and torch.equal(first, plain(x))


def test_a11_training_draws_and_differs():
    attn = build(dropout=0.5).train()
    x = torch.randn(2, 16, 32)
    assert not torch.equal(attn(x), attn(x))
    torch.manual_seed(1)
    first = attn(x)
    torch.manual_seed(1)
    assert torch.equal(first, attn(x))


def test_a11_training_without_dropout_draws_nothing():
    attn = build(dropout=0.0).train()
    x = torch.randn(2, 16, 32)
    before = torch.get_rng_state()
    assert torch.equal(attn(x), attn.eval()(x))
    assert torch.equal(before, torch.get_rng_state())


def test_dropout_sits_on_the_weights_and_on_the_output():
    attn = build(64, 4, dropout=0.5).train()
    y = attn(torch.randn(8, 32, 64))
    assert abs((y == 0).float().mean().item() - 0.5) < 0.05  # the output
    with torch.no_grad():  # every value is 1 and `out` copies: y is the sum of weights
        attn.qkv.weight[128:], attn.qkv.bias[128:] = 0.0, 1.0
        attn.out.weight.copy_(torch.eye(64))
        attn.out.bias.zero_()
    sums = attn(torch.randn(8, 32, 64))
    sums = sums[sums != 0] / 2  # undo the output's own 1 / (1 - 0.5)
    assert sums.std() > 0.05, "no weight was dropped: all rows sum to 1"
    assert abs(sums.mean().item() - 1.0) < 0.1


# --- B01 and other errors -------------------------------------------------------------


@pytest.mark.parametrize("d_model, n_heads", [(1600, 48), (32, 0), (32, -4), (0, 1)])
def test_b01_the_message_names_both_numbers(d_model, n_heads):
    with pytest.raises(ValueError) as error:
        CausalSelfAttention(d_model, n_heads)
    message = str(error.value)
    assert f"d_model={d_model}" in message and f"n_heads={n_heads}" in message


@pytest.mark.parametrize("dropout", [-0.1, 1.5])
def test_dropout_out_of_range_is_refused_by_name(dropout):
    with pytest.raises(ValueError, match=f"dropout={dropout}"):
        CausalSelfAttention(32, 4, dropout=dropout)


@pytest.mark.parametrize("call", [lambda a, x: a(x), attention_weights])
@pytest.mark.parametrize("shape", [(2, 5, 33), (5, 32), (2, 3, 5, 32), (32,)])
def test_wrong_shapes_name_what_was_expected_and_what_came(call, shape):
    with pytest.raises(ValueError) as error:
        call(build(), torch.zeros(shape))
    assert "(B, T, 32)" in str(error.value) and str(shape) in str(error.value)


# --- B04 and housekeeping -------------------------------------------------------------


def test_b04_only_weights_are_stored():
    names = {"qkv.weight", "qkv.bias", "out.weight", "out.bias"}
    assert set(build().state_dict()) == names
    assert not list(build().buffers())


def test_b04_a_checkpoint_serves_any_length():
    attn, other = build(seed=0), build(seed=1)
    attn(torch.randn(1, 16, 32))
    other.load_state_dict(attn.state_dict())
    for T in (1, 8, 40):
        x = torch.randn(1, T, 32)
        assert torch.equal(attn(x), other(x))


def test_input_may_be_a_view_and_is_not_changed():
    attn = build()
    x = torch.randn(32, 2, 7).permute(1, 2, 0)
    assert not x.is_contiguous()
    kept = x.clone()
    torch.testing.assert_close(attn(x), attn(x.contiguous()), rtol=0, atol=1e-6)
    attention_weights(attn, x)
    assert torch.equal(x, kept)


@pytest.mark.parametrize("B, T", [(1, 1), (1, 0), (0, 4)])
def test_single_token_and_empty_inputs_keep_their_shape(B, T):
    assert build()(torch.randn(B, T, 32)).shape == (B, T, 32)


def test_one_token_sees_itself_only_and_attention_is_then_linear():
    attn = build(bias=False)
    x, y = torch.randn(2, 1, 1, 32)
    torch.testing.assert_close(attn(x + y), attn(x) + attn(y), rtol=0, atol=1e-5)
    x, y = torch.randn(2, 1, 4, 32)
    assert (attn(x + y) - attn(x) - attn(y)).norm() > 0.1 * attn(x + y).norm()


def test_second_seed_shapes():
    attn = CausalSelfAttention(768, 8, bias=False)
    assert attn(torch.randn(2, 4, 768)).shape == (2, 4, 768)


def test_public_names_are_documented():
    names = ["HAND_BELOW", "attend", "CausalSelfAttention", "attention_weights"]
    assert minigpt.attention.__all__ == names
    for item in (CausalSelfAttention, attention_weights):
        for word in ("Args:", "Raises:", "Source:"):
            assert word in inspect.getdoc(item)


def test_the_spread_of_a_score():
    """quiz: 1"""
    torch.manual_seed(0)
    q, k = torch.randn(2, 50_000, 16)
    scores = (q * k).sum(-1)
    assert scores.std().item() == pytest.approx(4, rel=0.02)
    assert scores.var().item() == pytest.approx(16, rel=0.04)
    assert (scores / math.sqrt(16)).std().item() == pytest.approx(1, rel=0.02)


def test_twice_the_heads_twice_the_weights():
    """quiz: 2"""
    x = torch.randn(1, 5, 64)
    four, eight = (CausalSelfAttention(64, heads) for heads in (4, 8))
    assert 64 // 4 == 16 and 64 // 8 == 8
    count = [sum(p.numel() for p in attn.parameters()) for attn in (four, eight)]
    assert count[0] == count[1]
    weights = [attention_weights(attn, x).numel() for attn in (four, eight)]
    assert weights[1] == 2 * weights[0]


def test_pairs_of_four_times_as_many_tokens():
    """quiz: 5"""
    attn = CausalSelfAttention(16, 2)
    few, many = (attention_weights(attn, torch.randn(1, T, 16)) for T in (32, 128))
    assert many.numel() == 16 * few.numel() and 128 == 4 * 32
