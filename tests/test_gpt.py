"""Chapter 11: the whole model. Case numbers are those of the collected bug reports."""

import ast
import math
import re
from dataclasses import replace
from pathlib import Path

import nbformat
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from minigpt.attention import CausalSelfAttention
from minigpt.block import BLOCKS
from minigpt.gpt import (
    GPT,
    IGNORE,
    MLPS,
    NORMS,
    POSITIONS,
    PRESETS,
    GPTConfig,
    QKNormAttention,
    QKNormRotaryAttention,
    RotaryAttention,
    TokenShift,
    check_ids,
    check_tokens,
    count_by_formula,
    count_by_part,
    describe,
    next_token_loss,
    preset,
    rotate,
)
from minigpt.layernorm import LayerNorm
from minigpt.rmsnorm import RMSNorm

CHAPTER = Path(__file__).resolve().parent.parent / "chapters" / "11_gpt.ipynb"
TINY = GPTConfig(vocab_size=13, context=8, n_layers=2, n_heads=2, d_model=16)
EVERY = [
    replace(TINY, norm=norm, mlp=mlp, order=order, positions=positions)
    for norm in NORMS
    for mlp in MLPS
    for order in BLOCKS
    for positions in POSITIONS
]
EVERY += [replace(TINY, shift=True), replace(TINY, shift=True, norm="rmsnorm")]
EVERY += [
    replace(TINY, qk_norm=True, positions=positions, order=order)
    for positions in POSITIONS
    for order in ("pre", "post")
]
loops = settings(deadline=None, max_examples=25, derandomize=True)


def name_of(config: GPTConfig) -> str:
    extras = "-qk" * config.qk_norm + "-shift" * config.shift
    return f"{config.norm}-{config.mlp}-{config.order}-{config.positions}{extras}"


def build(config: GPTConfig, seed: int = 0) -> GPT:
    torch.manual_seed(seed)
    return GPT(config)


def tokens(config: GPTConfig, B: int = 2, T: int | None = None) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randint(
        config.vocab_size, (B, T or config.context), generator=generator
    )


# construction


def test_a08_std_and_initial_loss_of_a_deep_model():
    """0.02 / sqrt(24) = 0.00408 on the writes of twelve blocks, 0.02 elsewhere."""
    config = GPTConfig(vocab_size=65, n_layers=12, n_heads=12, d_model=192)
    model = build(config)
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            assert not parameter.any(), name
        elif name.endswith(("attn.out.weight", "mlp.down.weight")):
            assert parameter.std().item() == pytest.approx(
                0.02 / math.sqrt(24), rel=0.05
            ), name
        elif "norm" not in name:
            assert parameter.std().item() == pytest.approx(0.02, rel=0.05), name
    x = tokens(config)
    loss = next_token_loss(model(x), tokens(config, T=64).flip(0))
    assert loss.item() == pytest.approx(math.log(65), abs=0.3)


@pytest.mark.parametrize("config", EVERY, ids=name_of)
@pytest.mark.parametrize("tied", [True, False])
def test_initial_loss_is_ln_v(config, tied):
    config = replace(config, vocab_size=65, context=64, d_model=64, tie_weights=tied)
    generator = torch.Generator().manual_seed(5)
    x, y = torch.randint(65, (2, 8, 64), generator=generator)
    assert next_token_loss(build(config)(x), y).item() == pytest.approx(
        math.log(65), abs=0.1
    )


def excess(config: GPTConfig, seed: int = 0) -> float:
    """First loss above ln V, in the mean over every candidate as the target."""
    x = torch.randint(config.vocab_size, (2, 64), generator=torch.manual_seed(seed))
    with torch.no_grad():
        logits = build(replace(config, dropout=0.0), seed)(x).double()
    loss = (logits.logsumexp(-1) - logits.mean(-1)).mean().item()
    return loss - math.log(config.vocab_size)


@pytest.mark.parametrize("name", [name for name in PRESETS if name != "gpt2"])
def test_a08_first_loss_of_every_small_preset_is_ln_v_within_a_tenth(name):
    for seed in range(2):
        assert -1e-6 < excess(preset(name, 65), seed) < 0.05
        assert -1e-6 < excess(preset(name, 5000), seed) < 0.05


@pytest.mark.parametrize("width", [64, 256, 768])
def test_a_wider_model_begins_higher(width):
    """formula: init-width

    At GPT-2's width, 768, it is 0.15: the one preset that begins more than 0.1 above.
    """
    variance = sum(0.02**2 for _ in range(width))  # of a row times a vector of ones
    for changes in ({}, {"norm": "rmsnorm"}, {"mlp": "gelu_tanh"}):
        config = GPTConfig(2000, n_layers=1, d_model=width, tie_weights=False)
        found = excess(replace(config, **changes))
        assert found == pytest.approx(variance / 2, rel=0.06)


@pytest.mark.parametrize("order", [order for order in BLOCKS if order != "plain"])
def test_init_finds_residual_writes_by_structure_when_called_again(order):
    model = build(replace(TINY, d_model=64, order=order))
    model.init_weights(std=1.0)
    block = model.blocks[1]
    assert block.attn.out.weight.std().item() == pytest.approx(0.5, rel=0.05)
    assert block.mlp.down.weight.std().item() == pytest.approx(0.5, rel=0.05)
    assert block.attn.qkv.weight.std().item() == pytest.approx(1.0, rel=0.05)


def test_init_does_not_go_by_names():
    """A part that is called `out` but writes nothing keeps the full deviation."""
    model = build(replace(TINY, d_model=64))
    model.out = nn.Linear(64, 64)
    model.blocks[0].mlp.out = nn.Linear(64, 64)
    model.init_weights(std=1.0)
    for other in (model.out, model.blocks[0].mlp.out):
        assert other.weight.std().item() == pytest.approx(1.0, rel=0.05)
    plain = build(replace(TINY, d_model=64, order="plain"))
    deviation = plain.blocks[0].attn.out.weight.std().item()
    assert deviation == pytest.approx(0.02, rel=0.05)  # nothing is added up


def test_a12_dropping_everything_still_gives_finite_numbers():
    model = build(replace(TINY, dropout=1.0)).train()
    logits = model(torch.zeros(1, 4, dtype=torch.long))
    assert logits.isfinite().all()


def test_a12_every_eps_and_every_dropout_is_the_configs():
    model = build(replace(TINY, dropout=0.37, norm_eps=1e-3))
    norms = [m for m in model.modules() if isinstance(m, LayerNorm)]
    assert len(norms) == 2 * 2 + 1 and all(m.eps == 1e-3 for m in norms)
    rates = [m.dropout for b in model.blocks for m in (b.attn, b.mlp)]
    assert [*rates, model.drop.p] == [0.37] * 5
    root = build(
        replace(TINY, norm="rmsnorm", norm_eps=1e-3, mlp="swiglu", dropout=0.37)
    )
    norms = [m for m in root.modules() if isinstance(m, RMSNorm)]
    assert len(norms) == 2 * 2 + 1 and all(m.eps == 1e-3 for m in norms)
    assert [b.mlp.dropout for b in root.blocks] == [0.37] * 2
    bare = build(replace(TINY, bias=False))
    assert not [name for name, _ in bare.named_parameters() if name.endswith("bias")]


def test_a12_dropping_everything_stays_finite():
    model = build(replace(TINY, dropout=1.0)).train()
    loss = next_token_loss(model(tokens(TINY)), tokens(TINY))
    loss.backward()
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    assert loss.isfinite() and all(g.isfinite().all() for g in gradients)


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("config", EVERY, ids=name_of)
@pytest.mark.parametrize("bias", [True, False])
def test_parameters_by_formula_and_by_counting(tied, config, bias):
    config = replace(config, tie_weights=tied, bias=bias, d_ff=24)
    model = build(config)
    assert count_by_formula(config) == count_by_part(model)
    n = sum(p.numel() for p in model.parameters())
    assert sum(count_by_part(model).values()) == n


def test_b04_the_state_holds_parameters_only():
    model = build(TINY)
    assert set(model.state_dict()) == {
        name for name, _ in model.named_parameters(remove_duplicate=False)
    }
    longer = build(replace(TINY, context=16))
    with pytest.raises(RuntimeError, match="pos_emb"):
        longer.load_state_dict(model.state_dict())


def notebook_function(cell_id: str, name: str):
    """A function that the chapter defines in a cell of its own."""
    notebook = nbformat.read(CHAPTER, as_version=4)
    source = next(cell.source for cell in notebook.cells if cell.id == cell_id)
    kept = [n for n in ast.parse(source).body if isinstance(n, ast.FunctionDef)]
    names = {"GPT": GPT, "replace": replace, "nn": nn, "torch": torch}
    exec(compile(ast.Module(kept, []), cell_id, "exec"), names)
    return names[name]


def test_b04_a_shorter_context_is_an_explicit_call():
    """The chapter's exercise 1: cropped to 4 it is the same model, 16 is refused."""
    crop, model = notebook_function("solution-crop", "crop"), build(TINY)
    ids = tokens(TINY, T=4)
    short = crop(model, 4)
    assert short.config.context == 4 and torch.equal(short(ids), model(ids))
    with pytest.raises(ValueError, match=r"context=16.*8"):
        crop(model, 16)


# forward


def reference(model: GPT, ids: torch.Tensor) -> torch.Tensor:
    """GPT-2's forward from torch's own parts, for Pre-LN and Post-LN."""
    c, w = model.config, dict(model.named_parameters(remove_duplicate=False))

    def norm(x, name):
        return F.layer_norm(
            x, (c.d_model,), w[f"{name}.weight"], w[f"{name}.bias"], c.norm_eps
        )

    def attn(x, at):
        inner = nn.MultiheadAttention(c.d_model, c.n_heads, batch_first=True)
        inner = inner.to(x.dtype).eval()
        inner.in_proj_weight.data = w[f"{at}.qkv.weight"].data
        inner.in_proj_bias.data = w[f"{at}.qkv.bias"].data
        inner.out_proj.weight.data = w[f"{at}.out.weight"].data
        inner.out_proj.bias.data = w[f"{at}.out.bias"].data
        mask = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
        return inner(x, x, x, attn_mask=mask, need_weights=False)[0]

    def mlp(x, at):
        inner = F.gelu(x @ w[f"{at}.up.weight"].T + w[f"{at}.up.bias"])
        return inner @ w[f"{at}.down.weight"].T + w[f"{at}.down.bias"]

    x = w["tok_emb.weight"][ids] + w["pos_emb.weight"][: ids.shape[1]]
    for i in range(c.n_layers):
        at = f"blocks.{i}"
        if c.order == "pre":
            x = x + attn(norm(x, f"{at}.attn_norm"), f"{at}.attn")
            x = x + mlp(norm(x, f"{at}.mlp_norm"), f"{at}.mlp")
        else:
            x = norm(x + attn(x, f"{at}.attn"), f"{at}.attn_norm")
            x = norm(x + mlp(x, f"{at}.mlp"), f"{at}.mlp_norm")
    if c.order == "pre":
        x = norm(x, "final_norm")
    return x @ w["head.weight"].T


@pytest.mark.parametrize("order", ["pre", "post"])
def test_forward_equals_torchs_parts_in_float64(order):
    model = build(replace(TINY, order=order)).double()
    with torch.no_grad():
        for parameter in model.parameters():  # nothing is 0 or 1 any more
            parameter.add_(torch.randn_like(parameter) * 0.3)
    ids = tokens(TINY)
    assert torch.allclose(model(ids), reference(model, ids), rtol=0, atol=1e-12)


@pytest.mark.parametrize("config", EVERY, ids=name_of)
def test_c06_no_logit_depends_on_a_later_token(config):
    """By gradient: of the logits at t with respect to the embeddings at every place."""
    model = build(config).double()
    seen = {}

    def keep(module, inputs, output):
        output.retain_grad()
        seen["x"] = output

    model.drop.register_forward_hook(keep)
    logits = model(tokens(config, B=1))
    for t in range(config.context):
        seen["x"].grad = None
        logits[0, t].square().sum().backward(retain_graph=True)
        size = seen["x"].grad[0].abs().amax(-1)
        assert (size[: t + 1] > 0).all() and not size[t + 1 :].any()


@pytest.mark.parametrize("config", EVERY, ids=name_of)
def test_c06_other_tokens_later_change_no_logit_before_them(config):
    model, ids = build(config).double().eval(), tokens(config, B=1)
    with torch.no_grad():
        for parameter in model.parameters():  # a new shift would do nothing
            parameter.add_(torch.randn_like(parameter) * 0.3)
        for t in (1, 4, 7):
            other = ids.clone()
            other[:, t:] = (other[:, t:] + 1) % config.vocab_size
            moved = (model(ids) - model(other)).abs().amax(-1)[0]
            assert moved[:t].max() < 1e-14 and (moved[t:] > 1e-10).all()


def test_c08_a_huge_vector_later_changes_nothing_before_it():
    model, ids = build(TINY).eval(), torch.tensor([[1, 5, 3, 0, 2, 7, 12, 12]])
    with torch.no_grad():
        before = model(ids)
        model.tok_emb.weight[12] = 1e10
        model.head.weight = nn.Parameter(model.head.weight.clone())
        model.head.weight[12] = 0.0
        after = model(ids)
    assert torch.equal(before[:, :6, :12], after[:, :6, :12])
    assert after.isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", ["mini", "llama-mini", "modern-shift", "post"])
def test_c08_half_precision_is_finite_and_near(name, dtype):
    model, ids = build(preset(name, 65)).eval(), torch.arange(40)[None]
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.05)
        wide = model(ids)
        half = model.to(dtype)(ids)
    assert half.dtype == dtype and half.isfinite().all()
    assert (half.float() - wide).abs().max() < 0.05 * wide.abs().max()


def test_the_stream_begins_as_the_sum_of_two_rows():
    """formula: order-answer"""
    model, seen = build(TINY).double(), []
    model.drop.register_forward_hook(lambda m, inputs, output: seen.append(output))
    ids = tokens(TINY)
    model(ids)
    E, P = model.tok_emb.weight.tolist(), model.pos_emb.weight.tolist()
    for b in range(2):
        for t in range(8):
            expected = [e + p for e, p in zip(E[ids[b, t]], P[t])]
            assert seen[0][b, t].tolist() == expected


def test_positions_tell_equal_tokens_apart():
    model = build(TINY)
    same = torch.full((1, 8), 3)
    logits = model(same)[0]
    assert not torch.allclose(logits[1], logits[2], atol=1e-4)
    with torch.no_grad():
        model.pos_emb.weight.zero_()
    logits = model(same)[0]
    assert torch.allclose(logits[1], logits[2], atol=1e-6)


def test_a11_evaluation_is_free_of_dropout_and_of_random_numbers():
    model, plain = build(replace(TINY, dropout=0.5)), build(TINY)
    x = tokens(TINY)
    model.eval()
    before = torch.get_rng_state()
    first, second = model(x), model(x)
    assert torch.equal(first, second) and torch.equal(first, plain(x))
    assert torch.equal(torch.get_rng_state(), before)
    model.train()
    assert not torch.equal(model(x), model(x))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_logits_have_the_models_dtype_and_the_loss_is_wide(dtype):
    model = build(TINY).to(dtype)
    logits = model(tokens(TINY))
    assert logits.dtype == dtype and logits.shape == (2, 8, 13)
    wide = torch.promote_types(dtype, torch.float32)
    assert next_token_loss(logits, tokens(TINY)).dtype == wide


def test_b02_too_many_tokens_name_both_numbers():
    config = replace(TINY, context=16)
    model = build(config)
    assert model(tokens(config, T=16)).shape == (2, 16, 13)
    with pytest.raises(ValueError, match=r"17.*context=16"):
        model(tokens(config, T=17))


def test_b03_wrong_ids_are_named():
    model = build(TINY)
    with pytest.raises(ValueError, match=r"id 13 .*vocab_size=13"):
        model(torch.tensor([[0, 13]]))
    with pytest.raises(ValueError, match="id -1 "):
        model(torch.tensor([[0, -1]]))
    with pytest.raises(ValueError, match="float32"):
        model(torch.zeros(1, 4))
    with pytest.raises(ValueError, match=r"\(B, T\).*\(4,\)"):
        model(torch.zeros(4, dtype=torch.long))
    ids = tokens(TINY)
    assert torch.equal(model(ids.int()), model(ids))


def test_b03_ids_on_another_device_are_not_waited_for():
    """The meta device has no values to look at: looking would raise."""
    ids = torch.empty(2, 8, dtype=torch.long, device="meta")
    check_tokens(ids, TINY)
    check_ids(ids, 13, "target", ignore=True)


# loss


def test_loss_is_the_mean_negative_log_probability():
    """formula: loss-intro"""
    logits = torch.randn(2, 3, 5, dtype=torch.float64)
    targets = torch.tensor([[0, 1, 2], [3, 4, 0]])
    expected = sum(
        -math.log(logits[b, t].softmax(-1)[targets[b, t]])
        for b in range(2)
        for t in range(3)
    )
    loss = next_token_loss(logits, targets)
    assert loss.item() == pytest.approx(expected / 6, abs=1e-12)
    total = next_token_loss(logits, targets, "sum")
    assert total.item() == pytest.approx(expected, abs=1e-12)


def test_d10_ignored_targets_do_not_count():
    logits = torch.randn(2, 4, 5, requires_grad=True)
    targets = torch.randint(5, (2, 4))
    targets[1] = IGNORE
    loss = next_token_loss(logits, targets)
    loss.backward()
    assert torch.allclose(loss, F.cross_entropy(logits[0], targets[0]))
    assert not logits.grad[1].any() and logits.grad[0].any()

    logits.grad = None
    none = next_token_loss(logits, torch.full((2, 4), IGNORE))
    none.backward()
    assert none.item() == 0.0 and not logits.grad.any()


@pytest.mark.parametrize("bad", [5, -1, -101])
def test_b03_wrong_targets_are_named(bad):
    targets = torch.tensor([[0, bad, IGNORE]])
    with pytest.raises(ValueError, match=f"target id {bad} "):
        next_token_loss(torch.zeros(1, 3, 5), targets)


def test_loss_refuses_other_shapes_and_words():
    with pytest.raises(ValueError, match=r"\(1, 4\).*\(1, 3, 5\)"):
        next_token_loss(torch.zeros(1, 3, 5), torch.zeros(1, 4, dtype=torch.long))
    with pytest.raises(ValueError, match="reduction='none'"):
        next_token_loss(torch.zeros(1, 3, 5), torch.zeros(1, 3).long(), "none")


# describe


def test_describe_lists_every_part_once_and_leaves_nothing_behind():
    model = build(replace(TINY, dropout=0.5)).train()
    rows = describe(model, tokens(TINY))
    shapes = {row["part"]: row["shape"] for row in rows}
    assert shapes["tok_emb"] == (2, 8, 16)
    assert shapes["blocks.1.attn.qkv"] == (2, 8, 48)
    assert shapes["blocks.0.mlp.up"] == (2, 8, 64)
    assert rows[-1]["part"] == "head" and rows[-1]["shape"] == (2, 8, 13)
    taken = {row["part"]: row["input"] for row in rows}
    assert taken["tok_emb"] == (2, 8) and taken["blocks.0.mlp.down"] == (2, 8, 64)
    own = sum(row["parameters"] for row in rows)
    assert own == sum(p.numel() for p in model.parameters())
    assert model.training and model.drop.training
    assert not any(m._forward_hooks for m in model.modules())


def test_the_chapter_follows_one_token_through_every_step():
    """보았다 of 고양이가 창밖을 보았다: 18 steps, each with shape, size and values."""
    cells = {cell.id: cell for cell in nbformat.read(CHAPTER, as_version=4).cells}
    assert "고양이가 창밖을 보았다" in cells["walk"].source
    lines = cells["walk"].outputs[0].data["text/plain"].splitlines()[1:]
    steps = [re.split(r"  +", line) for line in lines]
    assert len(steps) == 2 + 2 * 7 + 2
    shapes = {f"(1,\u00a03,\u00a0{width})" for width in (64, 256, 3)}
    assert {step[1] for step in steps} == shapes
    for name, _, size, begins in steps:
        values = begins.split()  # three, kept on one line
        assert len(values) == 3 and all(math.isfinite(float(v)) for v in values)
        if name.startswith(("normalised", "block")):
            assert 0.98 < float(size) <= 1.0
    assert "step by step equals forward: True" in cells["walk-check"].outputs[0].text


# rotary positions


def test_rotate_equals_complex_multiplication_in_float64():
    """formula: rotary

    Each pair as a complex number times e^(i t theta); another code, same numbers.
    """
    x = torch.randn(2, 3, 7, 10, dtype=torch.float64)
    theta = torch.tensor([10000.0 ** (-2 * i / 10) for i in range(5)], dtype=x.dtype)
    angle = torch.arange(4, 11, dtype=x.dtype)[:, None] * theta
    turned = torch.complex(x[..., :5], x[..., 5:]) * torch.polar(
        torch.ones_like(angle), angle
    )
    expected = torch.cat((turned.real, turned.imag), -1)
    assert torch.allclose(rotate(x, start=4), expected, rtol=0, atol=1e-12)


def test_c14_half_precision_keeps_late_positions_apart():
    """A table of angles in bfloat16 has far fewer than 2048 different rows."""
    x = torch.ones(1, 2048, 64, dtype=torch.bfloat16)
    turned = rotate(x)
    assert turned.dtype == torch.bfloat16
    wide = rotate(x.double())
    assert (turned.double() - wide).abs().max() < 0.01
    for different in (turned, rotate(x.float())):
        assert len(different[0].unique(dim=0)) == 2048


def test_c14_a_model_cast_to_bfloat16_or_under_autocast_turns_as_in_float32():
    """There is no table that a cast could round."""
    model = build(replace(TINY, positions="rotary", context=2048))
    attn, x = model.blocks[0].attn, torch.randn(1, 2048, 16)
    with torch.no_grad():
        for cast in (False, True):
            with torch.autocast("cpu", torch.bfloat16, enabled=cast):
                raw = CausalSelfAttention.queries_keys_values(attn, x)
                turned = attn.queries_keys_values(x)
            expected = rotate(raw[0].double())
            size = expected.abs().max()
            assert (turned[0].double() - expected).abs().max() < 0.01 * size
        model.bfloat16()
        raw = CausalSelfAttention.queries_keys_values(attn, x.bfloat16())
        turned = attn.queries_keys_values(x.bfloat16())
    expected = rotate(raw[1].double())
    assert (turned[1].double() - expected).abs().max() < 0.01 * expected.abs().max()


@loops
@given(T=st.integers(1, 9), K=st.integers(1, 8), start=st.integers(0, 5000))
def test_c07_turned_in_pieces_is_turned_at_once(T, K, start):
    """As with a cache. And turning keeps every length."""
    x = torch.randn(2, T, 2 * K, generator=torch.manual_seed(T), dtype=torch.float64)
    whole = rotate(x, start)
    pieces = [rotate(x[:, t : t + 1], start + t) for t in range(T)]
    torch.testing.assert_close(torch.cat(pieces, 1), whole, rtol=0, atol=1e-12)
    torch.testing.assert_close(whole.norm(dim=-1), x.norm(dim=-1))


def test_rotary_scores_see_distances_only():
    attn = RotaryAttention(32, 4).double().eval()
    x = torch.randn(1, 6, 32, dtype=torch.float64)
    q, k, v = attn.queries_keys_values(x)
    later_q, later_k, later_v = attn.queries_keys_values(x, start=100)
    assert torch.allclose(q @ k.mT, later_q @ later_k.mT, atol=1e-10)
    assert torch.equal(v, later_v) and not torch.allclose(q, later_q)


def test_qk_norm_in_float64():
    """formula: extras"""
    torch.manual_seed(0)
    x = 50 * torch.randn(2, 6, 32, dtype=torch.float64)
    kinds = (
        (QKNormAttention, CausalSelfAttention),
        (QKNormRotaryAttention, RotaryAttention),
    )
    for kind, plain in kinds:
        normed = kind(32, 4).double()
        other = plain(32, 4).double()
        other.load_state_dict(normed.state_dict())  # no parameters of its own
        q, k, v = normed.queries_keys_values(x)
        raw_q, raw_k, raw_v = other.queries_keys_values(x)
        assert torch.equal(v, raw_v)
        for got, raw in ((q, raw_q), (k, raw_k)):
            for b, h, t in ((0, 0, 0), (1, 3, 5), (0, 2, 4)):
                vector = raw[b, h, t].tolist()
                size = math.sqrt(sum(a * a for a in vector) / len(vector) + 1e-6)
                expected = torch.tensor([a / size for a in vector], dtype=torch.float64)
                torch.testing.assert_close(got[b, h, t], expected)
        scores = q @ k.mT / math.sqrt(8)
        assert scores.abs().max() <= math.sqrt(8) + 1e-9


def test_token_shift_adds_a_share_of_the_token_before():
    torch.manual_seed(0)
    norm = LayerNorm(6).double()
    shift, x = TokenShift(norm, 6).double(), torch.randn(2, 5, 6, dtype=torch.float64)
    assert torch.equal(shift(x), norm(x))  # nothing at the start
    torch.nn.init.normal_(shift.mix)
    y, h = shift(x), norm(x)
    assert torch.equal(y[:, 0], h[:, 0])
    for t in range(1, 5):
        torch.testing.assert_close(y[:, t], h[:, t] + shift.mix * h[:, t - 1])
    rest = shift(x[:, 3:], before=h[:, 2:3])  # as with a cache
    torch.testing.assert_close(rest, y[:, 3:])


def test_zero_init_begins_with_the_identity_and_exactly_ln_v():
    config = replace(TINY, zero_init=True, tie_weights=False)
    model = build(config).double()
    x = torch.randn(2, 8, 16, dtype=torch.float64)
    assert all(torch.equal(block(x), x) for block in model.blocks)
    ids = tokens(config)
    loss = next_token_loss(model(ids), ids)
    assert loss.item() == pytest.approx(math.log(13), abs=1e-12)
    loss.backward()  # and it can leave this state
    assert model.head.weight.grad.abs().sum() > 0
    tied = build(replace(TINY, zero_init=True))
    assert tied.tok_emb.weight.abs().sum() > 0
    assert not tied.blocks[0].mlp.down.weight.any()


def test_a_rotary_model_has_no_table_and_still_tells_orders_apart():
    model = build(replace(TINY, positions="rotary"))
    assert not [name for name in model.state_dict() if "pos_emb" in name]
    ids = torch.tensor([[1, 2, 3, 4]])
    swapped = torch.tensor([[2, 1, 3, 4]])
    assert not torch.allclose(model(ids)[0, -1], model(swapped)[0, -1], atol=1e-6)


def test_two_random_blocks_without_positions_see_the_order():
    """quiz: 1"""
    ids, changes = torch.tensor([[1, 5, 3, 0, 2]]), []
    for n_layers in (1, 2):
        model = build(replace(TINY, n_layers=n_layers)).double()
        nn.init.zeros_(model.pos_emb.weight)
        moved = model(ids) - model(ids[:, [1, 0, 2, 3, 4]])
        changes.append(moved[0, -1].abs().max().item())
    assert changes[0] < 1e-14 and changes[1] > 1e-6


def test_moved_alone_a_rotary_query_changes_its_score_but_not_by_one_cosine():
    """quiz: 2"""
    q, k = torch.randn(2, 1, 8, dtype=torch.float64)
    turned = rotate(q) @ rotate(k).T
    both = rotate(q, 10) @ rotate(k, 10).T
    torch.testing.assert_close(both, turned, rtol=0, atol=1e-12)
    alone = rotate(q, 10) @ rotate(k).T
    theta = [10000.0 ** (-2 * i / 8) for i in range(4)]
    assert all(abs(alone - math.cos(10 * a) * turned) > 1e-3 for a in theta)
    a, b, c, d = q[0, :4], q[0, 4:], k[0, :4], k[0, 4:]
    by_hand = sum(
        math.cos(10 * w) * (a * c + b * d)[i] + math.sin(10 * w) * (a * d - b * c)[i]
        for i, w in enumerate(theta)
    )
    assert alone.item() == pytest.approx(by_hand.item(), abs=1e-12)


def test_a_first_loss_of_9_comes_from_large_weights():
    """quiz: 3"""
    assert round(math.log(65), 2) == 4.17
    torch.manual_seed(0)
    x, y = torch.randint(65, (2, 4, 64))
    assert next_token_loss(torch.zeros(4, 64, 65), y).item() == pytest.approx(
        math.log(65), abs=1e-5
    )
    model, losses = build(GPTConfig(vocab_size=65, n_layers=2)), {}
    for std in (0.02, 0.5):
        model.init_weights(std)
        with torch.no_grad():
            losses[std] = next_token_loss(model(x), y).item()
    assert abs(losses[0.02] - math.log(65)) < 0.1 and losses[0.5] > 9


def test_the_writes_of_24_blocks_are_divided_by_about_7():
    """quiz: 4"""
    assert round(math.sqrt(48), 1) == 6.9 and round(math.sqrt(24)) == 5
    model = build(GPTConfig(vocab_size=13, n_layers=24, d_model=64))
    for block in model.blocks:
        for write in (block.attn.out, block.mlp.down):
            divisor = 0.02 / write.weight.std().item()
            assert divisor == pytest.approx(math.sqrt(48), rel=0.1)
    assert len(model.blocks) * 2 == 48


def test_double_width_is_twice_the_table_and_four_times_the_blocks():
    """quiz: 5"""
    narrow, wide = (
        count_by_formula(GPTConfig(vocab_size=65, d_model=width, bias=False))
        for width in (64, 128)
    )
    assert wide["tok_emb"] == 2 * narrow["tok_emb"]
    assert wide["attn"] == 4 * narrow["attn"] and wide["mlp"] == 4 * narrow["mlp"]
