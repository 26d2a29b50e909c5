"""Chapter 11: the numbers of others. Their weights in our model, and what does not fit.

Case numbers are those of the collected bug reports.
"""

import copy
import math
import pickle
import shutil
import sysconfig
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch
import torch.nn.functional as F
from torch import nn

from minigpt.gpt import (
    FAMILIES,
    GPT,
    TRAITS,
    GPTConfig,
    describe,
    halves,
    load_weights,
    next_token_loss,
    preset,
    rotate,
)

SIZES = {"context": 64, "n_layers": 2, "n_heads": 4, "d_model": 24}
CONV1D = ("c_attn.weight", "c_proj.weight", "c_fc.weight")
PRESET_OF = {"gpt2": "gpt2", "llama": "llama-mini", "llama-meta": "llama-mini"}


def ours(family: str, **changes) -> GPT:
    torch.manual_seed(0)
    d_ff = 96 if family == "gpt2" else 40
    config = preset(PRESET_OF[family], 65, **SIZES | {"d_ff": d_ff} | changes)
    return GPT(config).eval()


def hugging_face(family: str, **changes) -> nn.Module:
    """A small random model of theirs, with weights that are no longer 0 or 1."""
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(3)
    if family == "gpt2":
        sizes = {"n_positions": 64, "n_embd": 24, "n_layer": 2, "n_head": 4}
        config = transformers.GPT2Config(vocab_size=65, **sizes | changes)
        model = transformers.GPT2LMHeadModel(config)
    else:
        config = transformers.LlamaConfig(
            vocab_size=65,
            hidden_size=24,
            intermediate_size=40,
            num_hidden_layers=2,
            num_attention_heads=4,
            max_position_embeddings=64,
            **changes,
        )
        model = transformers.LlamaForCausalLM(config)
    return stir(model).eval()


@torch.no_grad()
def stir(model: nn.Module) -> nn.Module:
    for parameter in model.parameters():
        parameter.add_(torch.randn_like(parameter) * 0.2)
    return model


def renamed(model: GPT, family: str) -> dict[str, torch.Tensor]:
    """Our weights under their names, for tests that need no library of theirs."""
    found = {}
    for name, weight in model.state_dict().items():
        parts = name.split(".")
        number = parts[1] if parts[0] == "blocks" else ""
        key = ".".join(["blocks", "*", *parts[2:]]) if number else name
        names = [n.replace("*", number) for n in FAMILIES[family][key]]
        for their_name, part in zip(names, weight.chunk(len(names))):
            turned = their_name.endswith(
                ("c_attn.weight", "c_proj.weight", "fc.weight")
            )
            part = part.T if turned else part
            if their_name.endswith(("wq.weight", "wk.weight")):
                part = neighbours(part, model.config.n_heads)
            found[their_name] = part.clone()
    return found


def neighbours(weight: torch.Tensor, n_heads: int) -> torch.Tensor:
    """What `halves` undoes."""
    return weight.unflatten(0, (n_heads, 2, -1)).transpose(1, 2).flatten(0, 2)


# the same numbers as Hugging Face


@pytest.mark.parametrize("family", ["gpt2", "llama"])
def test_e14_e15_a09_logits_loss_and_all_gradients_equal_hugging_faces(family):
    """Tanh GELU, transposed matrices, halves rotated, over 64 tokens."""
    theirs = hugging_face(family)
    mine = load_weights(ours(family), theirs.state_dict(), family)
    ids = torch.randint(65, (2, 64))
    torch.testing.assert_close(mine(ids), theirs(ids).logits, rtol=0, atol=1e-5)
    loss, other = next_token_loss(mine(ids[:, :-1]), ids[:, 1:]), None
    other = theirs(ids, labels=ids).loss
    torch.testing.assert_close(loss, other, rtol=0, atol=1e-5)
    loss.backward()
    other.backward()
    # Gradients have the names and shapes of weights, so the same table moves them.
    gradients = {name: p.grad for name, p in theirs.named_parameters()}
    moved = load_weights(ours(family), gradients, family)
    for (name, parameter), (_, expected) in zip(
        mine.named_parameters(), moved.named_parameters()
    ):
        assert expected.abs().sum() > 0, name
        torch.testing.assert_close(parameter.grad, expected, rtol=1e-4, atol=1e-6)


def test_a_tied_llama_loads_into_a_tied_model():
    theirs = hugging_face("llama", tie_word_embeddings=True)
    state = dict(theirs.state_dict())
    mine = load_weights(ours("llama", tie_weights=True), state, "llama")
    ids = torch.randint(65, (1, 9))
    torch.testing.assert_close(mine(ids), theirs(ids).logits, rtol=0, atol=1e-5)


def test_berts_layer_is_our_post_norm_block():
    """Post-LN against `transformers`: same weights, vectors and gradients."""
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
    theirs = stir(BertLayer(config)).eval()
    eps = config.layer_norm_eps
    model = GPT(GPTConfig(5, d_model=24, order="post", norm_eps=eps))
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
    torch.testing.assert_close(block(x), expected, rtol=0, atol=1e-5)
    block(x).square().sum().backward()
    expected.square().sum().backward()
    for mine, parts in pairs.items():
        gradient = torch.cat([part.weight.grad for part in parts])
        torch.testing.assert_close(mine.weight.grad, gradient, rtol=1e-4, atol=1e-4)


# references of our own


def gpt2_in_numpy(w: dict[str, np.ndarray], ids: list[int], n_heads: int) -> np.ndarray:
    """GPT-2's forward on one sequence, from its file's names, in float64."""

    def norm(x, at):
        x = x - x.mean(-1, keepdims=True)
        x = x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-5)
        return x * w[f"{at}.weight"] + w[f"{at}.bias"]

    def conv(x, at):
        return x @ w[f"{at}.weight"] + w[f"{at}.bias"]

    def gelu(x):
        return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))

    T = len(ids)
    x = w["wte.weight"][ids] + w["wpe.weight"][:T]
    for i in range(2):
        h = conv(norm(x, f"h.{i}.ln_1"), f"h.{i}.attn.c_attn")
        q, k, v = (z.reshape(T, n_heads, -1) for z in np.split(h, 3, axis=-1))
        out = np.zeros_like(q)
        for t in range(T):
            for head in range(n_heads):
                scores = k[: t + 1, head] @ q[t, head] / math.sqrt(q.shape[-1])
                share = np.exp(scores - scores.max())
                out[t, head] = share / share.sum() @ v[: t + 1, head]
        x = x + conv(out.reshape(T, -1), f"h.{i}.attn.c_proj")
        h = gelu(conv(norm(x, f"h.{i}.ln_2"), f"h.{i}.mlp.c_fc"))
        x = x + conv(h, f"h.{i}.mlp.c_proj")
    return norm(x, "ln_f") @ w["wte.weight"].T


def test_e14_logits_equal_a_forward_written_in_numpy():
    model = stir(ours("gpt2"))
    state = renamed(model, "gpt2")
    w = {name: weight.double().numpy() for name, weight in state.items()}
    ids = torch.randint(65, (1, 20))
    expected = torch.from_numpy(gpt2_in_numpy(w, ids[0].tolist(), 4))
    mine = load_weights(ours("gpt2"), state, "gpt2")
    torch.testing.assert_close(mine(ids)[0].double(), expected, rtol=0, atol=1e-5)

    square = "h.0.attn.c_proj.weight"  # fits without its transpose, too
    state[square] = state[square].T
    wrong = load_weights(ours("gpt2"), state, "gpt2")
    assert (wrong(ids)[0].double() - expected).abs().max() > 0.01


def llama_of_meta(w: dict[str, torch.Tensor], ids: torch.Tensor, n_heads: int):
    """Llama's forward from Meta's names: neighbours turned, as complex numbers."""

    def norm(x, name):
        return x / (x.pow(2).mean(-1, keepdim=True) + 1e-6).sqrt() * w[name]

    T, K = len(ids), 24 // n_heads
    theta = 10000.0 ** (-torch.arange(0, K, 2, dtype=torch.float64) / K)
    angle = torch.arange(T, dtype=torch.float64)[:, None] * theta
    turn = torch.polar(torch.ones_like(angle), angle)[:, None]  # (T, 1, K / 2)

    def turned(x):
        pairs = torch.view_as_complex(x.view(T, n_heads, -1, 2)) * turn
        return torch.view_as_real(pairs).flatten(-2)

    x = w["tok_embeddings.weight"][ids]
    for i in range(2):
        at = f"layers.{i}"
        h = norm(x, f"{at}.attention_norm.weight")
        q, k, v = (h @ w[f"{at}.attention.w{n}.weight"].T for n in "qkv")
        q, k, v = turned(q), turned(k), v.view(T, n_heads, -1)
        scores = torch.einsum("thk,shk->hts", q, k) / math.sqrt(K)
        scores += torch.full((T, T), -math.inf, dtype=x.dtype).triu(1)
        mixed = torch.einsum("hts,shk->thk", scores.softmax(-1), v).flatten(1)
        x = x + mixed @ w[f"{at}.attention.wo.weight"].T
        h = norm(x, f"{at}.ffn_norm.weight")
        gate, up = (h @ w[f"{at}.feed_forward.w{n}.weight"].T for n in "13")
        x = x + (F.silu(gate) * up) @ w[f"{at}.feed_forward.w2.weight"].T
    return norm(x, "norm.weight") @ w["output.weight"].T


def test_e15_metas_neighbours_equal_their_own_forward_and_not_as_halves():
    """Right over 64 tokens in its own style; visibly wrong in the other."""
    state = renamed(stir(ours("llama-meta")), "llama-meta")
    ids = torch.randint(65, (1, 64))
    wide = {name: weight.double() for name, weight in state.items()}
    expected = llama_of_meta(wide, ids[0], n_heads=4)
    mine = load_weights(
        ours("llama-meta"), state | {"rope.freqs": torch.ones(3)}, "llama-meta"
    )
    torch.testing.assert_close(mine(ids)[0].double(), expected, rtol=0, atol=1e-5)
    for name, weight in state.items():
        if name.endswith(("wq.weight", "wk.weight")):
            state[name] = halves(weight, 4)  # as if it were not needed any more
    wrong = load_weights(ours("llama-meta"), state, "llama-meta")
    assert (wrong(ids)[0].double() - expected).abs().max() > 0.01


@pytest.mark.parametrize("shape", [(24, 24), (24,), (24, 5)])
def test_e15_rows_there_and_back_and_biases_too(shape):
    weight = torch.randn(*shape)
    assert torch.equal(halves(neighbours(weight, 4), 4), weight)
    assert torch.equal(neighbours(halves(weight, 4), 4), weight)
    rows = halves(torch.arange(24), 4)
    assert rows[:6].tolist() == [0, 2, 4, 1, 3, 5]
    assert rows[6:12].tolist() == [6, 8, 10, 7, 9, 11]


def test_e15_position_0_is_not_turned_and_only_distances_count():
    q, k = torch.randn(2, 1, 12, dtype=torch.float64)
    assert torch.equal(rotate(q), q)
    scores = [(rotate(q, s + 5) @ rotate(k, s).T).item() for s in (0, 1, 7, 60, 2000)]
    assert max(scores) - min(scores) < 1e-10


# what files hold besides, and what they lack


@pytest.mark.parametrize("prefix", ["", "transformer."])
@pytest.mark.parametrize("masks", [True, False])
def test_b04_e14_masks_and_prefixes_do_not_matter(prefix, masks):
    model = stir(ours("gpt2"))
    state = {prefix + k: v for k, v in renamed(model, "gpt2").items()}
    if masks:
        state[f"{prefix}h.0.attn.bias"] = torch.ones(1, 1, 64, 64).tril()
        state[f"{prefix}h.0.attn.masked_bias"] = torch.tensor(-1e4)
    mine = load_weights(ours("gpt2"), state, "gpt2")
    ids = torch.randint(65, (1, 9))
    assert torch.equal(mine(ids), model(ids))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_f04_e14_other_dtypes_are_read_into_the_models_own(dtype):
    state = {k: v.to(dtype) for k, v in renamed(stir(ours("gpt2")), "gpt2").items()}
    mine = load_weights(ours("gpt2"), state, "gpt2")
    assert {p.dtype for p in mine.parameters()} == {torch.float32}
    assert torch.equal(mine.tok_emb.weight, state["wte.weight"].float())
    half = load_weights(ours("gpt2").bfloat16(), state, "gpt2")
    assert {p.dtype for p in half.parameters()} == {torch.bfloat16}


@pytest.mark.parametrize("family", list(FAMILIES))
def test_f02_loaded_weights_are_contiguous(family):
    mine = load_weights(ours(family), renamed(stir(ours(family)), family), family)
    assert all(p.is_contiguous() for p in mine.parameters())


SPOILT = {
    "missing": (
        lambda s: s.pop("h.1.mlp.c_fc.weight"),
        r"blocks\.1\.mlp\.up\.weight finds no h\.1\.mlp\.c_fc\.weight",
    ),
    "without biases": (
        lambda s: [s.pop(k) for k in list(s) if k.endswith("c_attn.bias")],
        r"finds no h\.0\.attn\.c_attn\.bias.*finds no h\.1\.attn\.c_attn\.bias",
    ),
    "unknown": (
        lambda s: s.update({"h.9.ln_1.weight": torch.ones(3)}),
        r"h\.9\.ln_1\.weight is not used",
    ),
    "shape": (
        lambda s: s.update({"wpe.weight": torch.ones(8, 24)}),
        r"pos_emb\.weight is \(64, 24\), but wpe\.weight gives \(8, 24\)",
    ),
    "transposed": (
        lambda s: s.update({"h.0.mlp.c_fc.weight": torch.ones(96, 24)}),
        r"up\.weight is \(96, 24\), but h\.0\.mlp\.c_fc\.weight gives \(24, 96\)",
    ),
    "no table": (lambda s: s.pop("wte.weight"), r"tok_emb\.weight finds no wte"),
    "another head": (
        lambda s: s.update({"lm_head.weight": torch.ones(65, 24)}),
        r"lm_head\.weight differs from wte\.weight: use tie_weights=False",
    ),
}


@pytest.mark.parametrize(("spoil", "said"), SPOILT.values(), ids=list(SPOILT))
def test_e13_e14_what_does_not_fit_is_named_and_nothing_is_changed(spoil, said):
    mine = ours("gpt2")
    state = renamed(stir(ours("gpt2")), "gpt2")
    spoil(state)
    before = copy.deepcopy(mine.state_dict())
    with pytest.raises(ValueError, match=said):
        load_weights(mine, state, "gpt2")
    assert all(torch.equal(before[n], v) for n, v in mine.state_dict().items())


def test_e13_heads_that_are_there_missing_or_of_their_own():
    tied = renamed(stir(ours("gpt2")), "gpt2")
    ids = torch.randint(65, (1, 9))
    with_head = load_weights(ours("gpt2"), tied, "gpt2")
    del tied["lm_head.weight"]
    without = load_weights(ours("gpt2"), tied, "gpt2")
    assert torch.equal(with_head(ids), without(ids))
    assert without.head.weight is without.tok_emb.weight
    with pytest.raises(ValueError, match=r"head\.weight finds no lm_head\.weight"):
        load_weights(ours("gpt2", tie_weights=False), tied, "gpt2")
    own = stir(ours("gpt2", tie_weights=False))
    state = renamed(own, "gpt2")
    mine = load_weights(ours("gpt2", tie_weights=False), state, "gpt2")
    assert torch.equal(mine(ids), own(ids))
    assert not torch.equal(mine.head.weight, mine.tok_emb.weight)


@pytest.mark.parametrize("names", ["llama", "llama-meta"])
def test_e15_grouped_heads_are_refused_with_all_shapes(names):
    state = renamed(ours(names), names)
    key = next(n for n in state if n.endswith(("k_proj.weight", "wk.weight")))
    state[key] = state[key][:12]
    said = r"qkv\.weight is \(72, 24\), but .* gives \(24, 24\), \(12, 24\), \(24, 24\)"
    with pytest.raises(ValueError, match=said):
        load_weights(ours(names), state, names)


@pytest.mark.parametrize(
    ("family", "change"),
    [
        ("gpt2", {"mlp": "gelu"}),
        ("gpt2", {"order": "reordered"}),
        ("gpt2", {"qk_norm": True}),
        ("llama", {"norm": "layernorm"}),
        ("llama-meta", {"order": "reordered"}),
    ],
)
def test_a09_a_choice_that_no_shape_betrays_is_refused(family, change):
    """The names and shapes fit all the same: only the logits would be wrong."""
    model = ours(family, **change)
    (field, value), theirs = next(iter(change.items())), TRAITS[family]
    said = f"{family} has {field}={theirs[field]!r}, the model {field}={value!r}"
    with pytest.raises(ValueError, match=said):
        load_weights(model, renamed(ours(family), family), family)


def test_a_wrong_family_or_a_wrong_model_is_refused():
    with pytest.raises(ValueError, match="family='bert' must be one of gpt2, llama,"):
        load_weights(ours("gpt2"), {}, "bert")
    with pytest.raises(ValueError, match=r"the model mlp='swiglu'.*; \.\.\.$"):
        load_weights(ours("llama"), renamed(ours("gpt2"), "gpt2"), "gpt2")


# tying: saved, loaded, copied, compiled

TIED = GPTConfig(vocab_size=13, context=8, n_layers=1, n_heads=2, d_model=16)


def test_tying_survives_saving_loading_and_copying(tmp_path):
    model, other = GPT(TIED), GPT(TIED)
    torch.save(model.state_dict(), tmp_path / "model.pt")
    other.load_state_dict(torch.load(tmp_path / "model.pt"))
    safetensors.torch.save_model(model, tmp_path / "model.safetensors")
    third = GPT(TIED)
    safetensors.torch.load_model(third, tmp_path / "model.safetensors")
    for twin in (
        other,
        third,
        copy.deepcopy(model),
        pickle.loads(pickle.dumps(model)),
        copy.deepcopy(model).bfloat16().float(),
    ):
        assert twin.head.weight is twin.tok_emb.weight
        with torch.no_grad():
            twin.tok_emb.weight.add_(1.0)
        close = {"rtol": 0, "atol": 0.02}  # bfloat16 has rounded one of them
        torch.testing.assert_close(twin.head.weight, model.head.weight + 1, **close)
    untied = GPT(replace(TIED, tie_weights=False))
    assert untied.head.weight is not untied.tok_emb.weight


def compiler() -> str:
    """torch's own backend where it can build, else the one that needs no compiler."""
    header = Path(sysconfig.get_paths()["include"]) / "Python.h"
    there = header.exists() and any(map(shutil.which, ("g++", "clang++", "c++")))
    return "inductor" if there and "linux" in sysconfig.get_platform() else "aot_eager"


def test_f06_tying_survives_compilation():
    """And eval logits are those of eager, also after the one matrix has changed."""
    torch.manual_seed(0)
    model = GPT(TIED).eval()
    compiled = torch.compile(model, backend=compiler())
    ids = torch.randint(13, (2, 8))
    with torch.no_grad():
        first = compiled(ids)
        torch.testing.assert_close(first, model(ids), rtol=0, atol=1e-5)
        model.tok_emb.weight.mul_(2.0)
        torch.testing.assert_close(compiled(ids), model(ids), rtol=0, atol=1e-5)
        assert not torch.allclose(compiled(ids), first, atol=1e-3)


def test_e02_f06_tying_survives_a_compiled_training_step():
    """One step of SGD, compiled and not, gives equal weights, and one matrix."""
    ids, ends = torch.randint(13, (2, 8)), []
    for wrap in (lambda m: m, lambda m: torch.compile(m, backend="aot_eager")):
        torch.manual_seed(0)
        model = GPT(TIED)
        next_token_loss(wrap(model)(ids), ids).backward()
        torch.optim.SGD(model.parameters(), lr=0.5).step()
        assert model.head.weight is model.tok_emb.weight
        ends.append(model.state_dict())
    for name, eager in ends[0].items():
        torch.testing.assert_close(ends[1][name], eager, rtol=0, atol=1e-6)


def test_f06_growing_lengths_compile_twice_at_most():
    """Once for the first length, once for any length."""
    graphs = []

    def count(graph, inputs):
        graphs.append(graph)
        return graph.forward

    torch._dynamo.reset()
    model = GPT(TIED).eval()
    compiled = torch.compile(model, backend=count)
    for T in range(2, 9):
        ids = torch.randint(13, (1, T))
        torch.testing.assert_close(compiled(ids), model(ids), rtol=0, atol=1e-5)
    assert len(graphs) <= 2


# the block of the second article


class Article(nn.Module):
    """Pre-RMSNorm, causal attention, SwiGLU, in the words of the book's second seed."""

    def __init__(self, dim, n_heads, hidden_dim, eps=1e-6):
        super().__init__()
        self.n_heads, self.head_dim, self.eps = n_heads, dim // n_heads, eps
        for name in ("w_q", "w_k", "w_v", "w_o"):
            setattr(self, name, nn.Linear(dim, dim, bias=False))
        self.w_gate = nn.Linear(dim, hidden_dim, bias=False)
        self.w_up = nn.Linear(dim, hidden_dim, bias=False)
        self.w_down = nn.Linear(hidden_dim, dim, bias=False)
        self.norm1 = nn.Parameter(torch.randn(dim))
        self.norm2 = nn.Parameter(torch.randn(dim))

    def norm(self, x, weight):
        mean_square = x.pow(2).mean(-1, keepdim=True)
        return x * torch.rsqrt(mean_square + self.eps) * weight

    def attend(self, x):
        B, T, D = x.shape
        shape = (B, T, self.n_heads, self.head_dim)
        q, k, v = (
            w(x).view(shape).transpose(1, 2) for w in (self.w_q, self.w_k, self.w_v)
        )
        scores = torch.matmul(q, k.transpose(-2, -1)) / math.sqrt(self.head_dim)
        mask = torch.triu(torch.ones(T, T), diagonal=1).bool()
        weights = F.softmax(scores.masked_fill(mask, float("-inf")), dim=-1)
        out = torch.matmul(weights, v).transpose(1, 2).contiguous().view(B, T, D)
        return self.w_o(out)

    def forward(self, x):
        x = x + self.attend(self.norm(x, self.norm1))
        h = self.norm(x, self.norm2)
        return x + self.w_down(F.silu(self.w_gate(h)) * self.w_up(h))


def test_the_second_articles_block_on_2_4_768():
    """8 heads, int(8/3 * 768) = 2048 hidden: equal values, and the shapes it lists."""
    torch.manual_seed(0)
    theirs = Article(768, 8, int(8 / 3 * 768))
    config = GPTConfig(
        65, 8, 1, 8, 768, norm="rmsnorm", mlp="swiglu", bias=False, norm_eps=1e-6
    )
    assert config.d_ff == 2048
    block = GPT(config).blocks[0].eval()
    t = theirs
    with torch.no_grad():
        qkv = torch.cat([t.w_q.weight, t.w_k.weight, t.w_v.weight])
        for mine, weight in (
            (block.attn.qkv, qkv),
            (block.attn.out, t.w_o.weight),
            (block.attn_norm, t.norm1),
            (block.mlp_norm, t.norm2),
            (block.mlp.gate, t.w_gate.weight),
            (block.mlp.up, t.w_up.weight),
            (block.mlp.down, t.w_down.weight),
        ):
            mine.weight.copy_(weight)
    x = torch.randn(2, 4, 768)
    torch.testing.assert_close(block(x), theirs(x), rtol=1e-5, atol=1e-5)

    part = {row["part"]: row for row in describe(block, x)}
    stream, wide = (2, 4, 768), (2, 4, 2048)
    listed = [part[name]["shape"] for name in ("attn_norm", "attn", "mlp_norm", "mlp")]
    assert listed == [stream] * 4
    assert part["mlp_norm"]["input"] == stream  # the first sum
    assert part["mlp.gate"]["shape"] == part["mlp.up"]["shape"] == wide
    assert part["mlp.down"]["input"] == wide and part["mlp.down"]["shape"] == stream
