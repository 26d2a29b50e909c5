"""Chapter 11: the whole model. Case numbers are those of the collected bug reports."""

import json
import math
from dataclasses import replace
from itertools import pairwise

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from minigpt.attention import CausalSelfAttention
from minigpt.block import BLOCKS
from minigpt.gpt import (
    FAMILIES,
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
    load_weights,
    next_token_loss,
    preset,
    rotate,
)
from minigpt.layernorm import LayerNorm
from minigpt.rmsnorm import RMSNorm

TINY = GPTConfig(vocab_size=13, context=8, n_layers=2, n_heads=2, d_model=16)
EVERY = [
    replace(TINY, norm=norm, mlp=mlp, order=order)
    for norm in NORMS
    for mlp in MLPS
    for order in BLOCKS
]
EVERY += [replace(TINY, positions="rotary", order=order) for order in ("pre", "post")]
EVERY += [replace(TINY, shift=True), replace(TINY, shift=True, norm="rmsnorm")]
EVERY += [
    replace(TINY, qk_norm=True, positions=positions, order=order)
    for positions in POSITIONS
    for order in ("pre", "post")
]


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


# config


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"d_model": 1600, "n_heads": 48}, ["d_model=1600", "n_heads=48"]),
        ({"n_heads": 0}, ["n_heads=0"]),
        ({"n_layers": 0}, ["n_layers=0"]),
        ({"vocab_size": 0}, ["vocab_size=0"]),
        ({"vocab_size": 65.0}, ["vocab_size=65.0"]),
        ({"n_layers": True}, ["n_layers=True"]),
        ({"context": -1}, ["context=-1"]),
        ({"d_model": "wide"}, ["d_model='wide'"]),
        ({"d_ff": 0}, ["d_ff=0"]),
        ({"dropout": -0.1}, ["dropout=-0.1"]),
        ({"dropout": 1.5}, ["dropout=1.5"]),
        ({"dropout": math.nan}, ["dropout=nan"]),
        ({"norm_eps": 0.0}, ["norm_eps=0.0"]),
        ({"norm": "batch"}, ["norm='batch'", "layernorm"]),
        ({"mlp": "relu"}, ["mlp='relu'", "gelu"]),
        ({"order": "sideways"}, ["order='sideways'", "pre", "post"]),
        ({"positions": "sine"}, ["positions='sine'", "learned", "rotary"]),
        (
            {"positions": "rotary", "d_model": 30},
            ["positions='rotary'", "d_model=30", "n_heads=2"],
        ),
        ({"qk_norm": 1}, ["qk_norm=1", "True or False"]),
        ({"shift": "yes"}, ["shift='yes'"]),
        ({"zero_init": None}, ["zero_init=None"]),
        ({"shift": True, "order": "post"}, ["shift=True", "order='post'"]),
    ],
)
def test_b01_a_wrong_config_is_refused_with_field_and_value(wrong, words):
    with pytest.raises(ValueError) as caught:
        replace(TINY, **wrong)
    assert all(word in str(caught.value) for word in words)


def test_config_goes_through_json_and_back():
    config = replace(TINY, dropout=0.1, tie_weights=False)
    assert GPTConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config
    with pytest.raises(ValueError, match="n_embd"):
        GPTConfig.from_dict({"vocab_size": 5, "n_embd": 32})
    assert GPTConfig.from_json(config.to_json()) == config
    for text in ("[1, 2]", "not json", '{"vocab_size": 5, "n_embd": 32}'):
        with pytest.raises(ValueError):
            GPTConfig.from_json(text)


def test_presets_are_valid_and_changes_replace_their_fields():
    for name in PRESETS:
        assert preset(name, 65).vocab_size == 65
    assert preset("gpt2", 65, n_layers=2).n_layers == 2
    sizes = count_by_formula(preset("gpt2", 50257))
    assert sum(sizes.values()) == 124_439_808  # as OpenAI's GPT-2 small
    with pytest.raises(ValueError, match="'gpt3' is unknown; choose mini"):
        preset("gpt3", 65)
    with pytest.raises(ValueError, match="n_embd"):
        preset("mini", 65, n_embd=3)


def test_the_rungs_differ_in_one_choice_each():
    """From pre upwards each rung of the ladder changes the one below in one field."""
    names = ("plain", "residual", "post", "pre", "rmsnorm", "dropout")
    rungs = [preset(name, 65).to_dict() for name in names]
    for below, above in pairwise(rungs):
        assert sum(below[key] != above[key] for key in below) == 1
    gated = preset("swiglu", 65).to_dict()
    changed = [key for key in gated if gated[key] != rungs[4][key]]
    assert sorted(changed) == ["d_ff", "mlp"]


def test_the_mlp_is_four_times_as_wide_unless_it_is_said():
    assert GPTConfig(vocab_size=5, d_model=32).d_ff == 128
    assert build(replace(TINY, d_ff=40)).blocks[0].mlp.up.out_features == 40
    gated, plain = GPTConfig(5, d_model=96, mlp="swiglu"), GPTConfig(5, d_model=96)
    assert gated.d_ff == 256
    without = {"bias": False}
    assert (
        count_by_formula(replace(gated, **without))["mlp"]
        == count_by_formula(replace(plain, **without))["mlp"]
    )


# construction


def test_a08_std_and_initial_loss_of_a_deep_model():
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


def test_init_finds_residual_writes_by_structure_when_called_again():
    model = build(replace(TINY, d_model=64))
    model.init_weights(std=1.0)
    assert model.blocks[1].attn.out.weight.std().item() == pytest.approx(0.5, rel=0.05)
    assert model.blocks[1].attn.qkv.weight.std().item() == pytest.approx(1.0, rel=0.05)


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


def test_tying_survives_saving_and_loading(tmp_path):
    model, other = build(TINY), build(TINY, seed=7)
    torch.save(model.state_dict(), tmp_path / "model.pt")
    other.load_state_dict(torch.load(tmp_path / "model.pt"))
    assert other.head.weight is other.tok_emb.weight
    with torch.no_grad():
        other.tok_emb.weight.add_(1.0)
    assert torch.equal(other.head.weight, model.head.weight + 1.0)
    untied = build(replace(TINY, tie_weights=False))
    assert untied.head.weight is not untied.tok_emb.weight


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
def test_no_logit_depends_on_a_later_token(config):
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
    own = sum(row["parameters"] for row in rows)
    assert own == sum(p.numel() for p in model.parameters())
    assert model.training and model.drop.training
    assert not any(m._forward_hooks for m in model.modules())


# rotary positions


def test_rotate_equals_complex_multiplication_in_float64():
    """Each pair as a complex number times e^(i t theta); another code, same numbers."""
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
    near = rotate(x.float())[0, :, :].unique(dim=0)
    assert len(near) == 2048


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


# the same numbers as Hugging Face


def hugging_face(family: str):
    """A small random model of theirs, with weights that are no longer 0 or 1."""
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(3)
    if family == "gpt2":
        config = transformers.GPT2Config(
            vocab_size=65, n_positions=16, n_embd=24, n_layer=2, n_head=4
        )
        model = transformers.GPT2LMHeadModel(config)
    else:
        config = transformers.LlamaConfig(
            vocab_size=65,
            hidden_size=24,
            intermediate_size=40,
            num_hidden_layers=2,
            num_attention_heads=4,
            max_position_embeddings=16,
        )
        model = transformers.LlamaForCausalLM(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
    return model.eval()


def ours(family: str, **changes) -> GPT:
    sizes = {"context": 16, "n_layers": 2, "n_heads": 4, "d_model": 24}
    if family == "gpt2":
        return build(preset("gpt2", 65, **sizes | changes)).eval()
    return build(preset("llama-mini", 65, d_ff=40, **sizes | changes)).eval()


@pytest.mark.parametrize("family", list(FAMILIES))
def test_e14_logits_loss_and_gradients_equal_hugging_faces(family):
    """A09, E14, E15: tanh GELU, transposed matrices, halves rotated."""
    theirs = hugging_face(family)
    mine = load_weights(ours(family), theirs.state_dict(), family)
    ids = torch.randint(65, (2, 16))
    assert torch.allclose(mine(ids), theirs(ids).logits, rtol=0, atol=1e-5)
    loss = next_token_loss(mine(ids[:, :-1]), ids[:, 1:])
    other = theirs(ids, labels=ids).loss
    assert torch.allclose(loss, other, rtol=0, atol=1e-5)
    loss.backward()
    other.backward()
    table = "transformer.wte" if family == "gpt2" else "model.embed_tokens"
    gradient = theirs.get_submodule(table).weight.grad
    assert torch.allclose(mine.tok_emb.weight.grad, gradient, rtol=1e-4, atol=1e-6)


def test_e14_files_with_masks_and_without_prefix_load_too():
    theirs = hugging_face("gpt2")
    state = theirs.transformer.state_dict() | {"h.0.attn.bias": torch.ones(1, 1, 4, 4)}
    mine = load_weights(ours("gpt2"), state, "gpt2")
    ids = torch.randint(65, (1, 9))
    assert torch.allclose(mine(ids), theirs(ids).logits, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda s: s.pop("h.1.mlp.c_fc.weight"), "finds no h.1.mlp.c_fc.weight"),
        (lambda s: s.update({"h.9.ln_1.weight": torch.ones(3)}), "h.9.ln_1.weight is"),
        (
            lambda s: s.update({"wpe.weight": torch.ones(8, 24)}),
            r"pos_emb.weight is \(16, 24\), but wpe.weight gives \(8, 24\)",
        ),
        (
            lambda s: s.update({"lm_head.weight": torch.ones(65, 24)}),
            "tie_weights=False",
        ),
    ],
    ids=["missing", "unknown", "shape", "untied"],
)
def test_e14_weights_that_do_not_fit_are_named_and_nothing_is_changed(spoil, said):
    state = dict(hugging_face("gpt2").transformer.state_dict())
    spoil(state)
    mine = ours("gpt2")
    before = {name: value.clone() for name, value in mine.state_dict().items()}
    with pytest.raises(ValueError, match=said):
        load_weights(mine, state, "gpt2")
    assert all(torch.equal(before[n], v) for n, v in mine.state_dict().items())


def test_a_wrong_family_or_a_wrong_model_is_refused():
    with pytest.raises(ValueError, match="family='bert' must be one of gpt2, llama"):
        load_weights(ours("gpt2"), {}, "bert")
    with pytest.raises(ValueError, match="do not fit the model"):
        load_weights(ours("llama"), hugging_face("gpt2").state_dict(), "gpt2")


def test_berts_layer_is_our_post_norm_block():
    """Post-LN against `transformers`: the same weights, the same vectors."""
    transformers = pytest.importorskip("transformers")
    from transformers.models.bert.modeling_bert import BertLayer

    torch.manual_seed(0)
    config = transformers.BertConfig(
        hidden_size=24,
        num_attention_heads=4,
        intermediate_size=96,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    config._attn_implementation = "eager"
    theirs = BertLayer(config).eval()
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
    eps = config.layer_norm_eps
    model = build(GPTConfig(5, d_model=24, order="post", norm_eps=eps))
    block, own, out = model.blocks[0].eval(), theirs.attention.self, theirs.attention
    pairs = {
        block.attn.qkv: [own.query, own.key, own.value],
        block.attn.out: [out.output.dense],
        block.attn_norm: [out.output.LayerNorm],
        block.mlp.up: [theirs.intermediate.dense],
        block.mlp.down: [theirs.output.dense],
        block.mlp_norm: [theirs.output.LayerNorm],
    }
    with torch.no_grad():
        for mine, parts in pairs.items():
            mine.weight.copy_(torch.cat([part.weight for part in parts]))
            mine.bias.copy_(torch.cat([part.bias for part in parts]))
    x = torch.randn(2, 7, 24)
    mask = torch.full((7, 7), torch.finfo(x.dtype).min).triu(1)[None, None]
    expected = theirs(x, attention_mask=mask)
    expected = expected[0] if isinstance(expected, tuple) else expected
    assert torch.allclose(block(x), expected, rtol=0, atol=1e-5)
