"""Chapter 4: plain stacks, how they begin, the loop, and the probe on many models."""

import copy
import inspect
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import minigpt.depth
from minigpt.attention import CausalSelfAttention
from minigpt.block import BLOCKS
from minigpt.depth import (
    INITS,
    PlainBlock,
    Record,
    Stack,
    TokenEmbedding,
    WindowEmbedding,
    fit,
    held_out_loss,
    initialise,
    loss_of,
    record,
)
from minigpt.gpt import GPT, GPTConfig
from minigpt.layernorm import LayerNorm
from minigpt.mlp import MLP

often = settings(deadline=None, max_examples=25, derandomize=True)
V, T, D = 11, 6, 8


def relu_layer(width=D):
    return nn.Sequential(nn.Linear(width, width), nn.ReLU())


def window_stack(n_layers, seed=0):
    torch.manual_seed(seed)
    layers = [relu_layer() for _ in range(n_layers)]
    return Stack(WindowEmbedding(V, T, D), layers, nn.Linear(D, V))


def plain_gpt(n_blocks, seed=0):
    torch.manual_seed(seed)
    blocks = [
        PlainBlock(CausalSelfAttention(D, 2), MLP(D, 16)) for _ in range(n_blocks)
    ]
    return Stack(TokenEmbedding(V, T, D), blocks, nn.Linear(D, V))


def windows_batch(B=5, seed=0):
    g = torch.Generator().manual_seed(seed)
    tokens = torch.randint(V, (B, T), generator=g)
    return tokens, torch.randint(V, (B,), generator=g)


def tokens_batch(B=3, seed=0):
    g = torch.Generator().manual_seed(seed)
    return tuple(torch.randint(V, (B, T), generator=g) for _ in range(2))


def gpt(dropout=0.0, **changes):
    torch.manual_seed(0)
    config = {"vocab_size": V, "context": T, "n_layers": 3, "n_heads": 2, "d_model": D}
    return GPT(GPTConfig(**config, dropout=dropout, **changes))


# --- the formulas of the chapter ------------------------------------------------------


def pair_cosine(vectors):
    """Mean cosine over all pairs of different vectors, in plain Python."""
    total, n = 0.0, len(vectors)
    for i in range(n):
        for j in range(n):
            if i == j:
                continue
            dot = sum(a * b for a, b in zip(vectors[i], vectors[j]))
            lengths = [math.sqrt(sum(a * a for a in vectors[k])) for k in (i, j)]
            total += dot / (lengths[0] * lengths[1])
    return total / (n * (n - 1))


@often
@given(st.integers(2, 6), st.integers(1, 5), st.integers(0, 999))
def test_similarity_is_the_mean_cosine_of_pairs(n, width, seed):
    """formula: by-construction-read"""
    torch.manual_seed(seed)
    x = torch.randn(2, n, width, dtype=torch.float64)
    r = record(nn.Sequential(nn.Identity()), x, loss=lambda out: out.sum())
    expected = sum(pair_cosine(rows.tolist()) for rows in x) / 2
    assert math.isclose(r.similarity[0], expected, abs_tol=1e-12)
    assert math.isclose(r.signal[0], math.sqrt((x**2).mean()), rel_tol=1e-12)
    assert math.isclose(r.gradient[0], 1.0, rel_tol=1e-12)


def mean_squares(weight_variance, bias_variance, n, samples=4000):
    """Of a ReLU unit's output and of the gradient for its input, by plain averaging."""
    g = torch.Generator().manual_seed(0)
    x = torch.randn(n, generator=g, dtype=torch.float64)
    w = torch.randn(samples, n, generator=g, dtype=torch.float64)
    b = torch.randn(samples, generator=g, dtype=torch.float64)
    w, b = w * math.sqrt(weight_variance), b * math.sqrt(bias_variance)
    z = w @ x + b
    out = sum(max(0.0, v) ** 2 for v in z.tolist()) / samples
    on = (z > 0).double()  # of each unit, n of which make one gradient entry
    back = n * (w[:, 0] ** 2 * on).mean().item()
    return (x**2).mean().item(), out, back


@pytest.mark.parametrize(
    "how, factor", [("default", 1 / 6), ("xavier", 0.5), ("he", 1)]
)
def test_one_layer_multiplies_squares_by_half_n_times_the_variance(how, factor):
    """formula: inside-answer"""
    n = 64
    torch.manual_seed(0)
    drawn = initialise(nn.Linear(n, n), how)
    variance = 2 * factor / n
    assert math.isclose(drawn.weight.var().item(), variance, rel_tol=0.08)
    b = 1 / (3 * n) if how == "default" else 0.0
    q, out, back = mean_squares(variance, b, n)
    assert math.isclose(out, (n * variance * q + b) / 2, rel_tol=0.08)
    assert math.isclose(back, n * variance / 2, rel_tol=0.08)
    q = 1.0
    for _ in range(60):  # the fixed point of the default
        q = (q + 1 / n) / 6
    assert math.isclose(q, 1 / (5 * n), rel_tol=1e-12)


def test_the_default_start_is_that_of_linear_and_rests_on_its_biases():
    """Variances 1 / (3 n) for weights and biases, level sqrt(1 / (5 n))."""
    torch.manual_seed(0)
    fresh = nn.Linear(64, 4096)
    assert math.isclose(fresh.weight.var().item(), 1 / 192, rel_tol=0.03)
    assert math.isclose(fresh.bias.var().item(), 1 / 192, rel_tol=0.1)
    stack = nn.Sequential(*(relu_layer(64) for _ in range(24))).double()
    x = torch.randn(32, 64, dtype=torch.float64)
    r = record(stack, x, loss=lambda out: out.sum())
    level = sum(r.signal[8:]) / 16
    assert math.isclose(level, math.sqrt(1 / 320), rel_tol=0.2)
    assert r.similarity[-1] > 0.999 and r.gradient[0] < 1e-6 * r.gradient[-1]


def test_gradient_is_the_product_of_jacobians():
    """formula: factor-read"""
    torch.manual_seed(0)
    layers = nn.Sequential(*(nn.Sequential(nn.Linear(D, D), nn.Tanh()) for _ in "abcd"))
    layers.double()
    x = torch.randn(1, D, dtype=torch.float64)
    direction = torch.randn(D, dtype=torch.float64)
    r = record(layers, x, loss=lambda out: (out @ direction).sum())
    gradient, values = direction, [x[0]]
    for layer in layers:
        values.append(layer(values[-1]).detach())
    for depth in range(3, -1, -1):
        size = math.sqrt(sum(g * g for g in gradient.tolist()) / D)
        assert math.isclose(r.gradient[depth], size, rel_tol=1e-10)
        slope = 1 - values[depth + 1] ** 2  # tanh' from its output
        jacobian = slope[:, None] * layers[depth][0].weight.detach()
        gradient = jacobian.T @ gradient


def test_share_left_over_and_pure_averaging():
    """formula: block-answer"""
    torch.manual_seed(0)
    X = torch.randn(T, D, dtype=torch.float64)
    mean = [sum(X[t, d].item() for t in range(T)) / T for d in range(D)]
    rest = sum((X[t, d].item() - mean[d]) ** 2 for t in range(T) for d in range(D))
    r = math.sqrt(rest / sum(v * v for v in X.flatten().tolist()))
    left = ((X - X.mean(-2, keepdim=True)).norm() / X.norm()).item()  # as the chapter
    assert math.isclose(r, left, rel_tol=1e-12)
    A = [[1 / (t + 1) if s <= t else 0.0 for s in range(T)] for t in range(T)]
    A = torch.tensor(A, dtype=torch.float64)
    found = sorted(torch.linalg.eigvals(A).real.tolist(), reverse=True)
    assert all(abs(v - 1 / (t + 1)) < 1e-9 for t, v in enumerate(found))
    attn = CausalSelfAttention(D, 1, bias=False).double()
    with torch.no_grad():  # no scores, values and output the identity: A itself
        attn.qkv.weight.zero_()
        attn.qkv.weight[2 * D :] = torch.eye(D)
        attn.out.weight.copy_(torch.eye(D))
    torch.testing.assert_close(attn(X[None])[0], A @ X, rtol=0, atol=1e-12)
    averaged = torch.linalg.matrix_power(A, 60) @ X
    torch.testing.assert_close(averaged, X[:1].expand(T, D), rtol=0, atol=1e-9)


# --- models ---------------------------------------------------------------------------


@often
@given(st.integers(1, 4), st.integers(0, 3), st.booleans(), st.integers(0, 999))
def test_stack_is_its_parts_in_a_row(B, n_blocks, norm, seed):
    torch.manual_seed(seed)
    embed, head = TokenEmbedding(V, T, D), nn.Linear(D, V)
    blocks = [nn.Linear(D, D) for _ in range(n_blocks)]
    final = LayerNorm(D) if norm else None
    if norm:
        nn.init.normal_(final.weight)
    stack = Stack(embed, blocks, head, final)
    tokens = torch.randint(V, (B, T - 1))
    x = embed.tok_emb.weight[tokens] + embed.pos_emb.weight[: T - 1]
    for block in blocks:
        x = x @ block.weight.T + block.bias
    x = final(x) if norm else x
    torch.testing.assert_close(stack(tokens), head(x))
    assert stack(tokens).shape == (B, T - 1, V)


def test_window_embedding_joins_the_vectors_in_order():
    embed = WindowEmbedding(V, T, D)
    tokens = torch.randint(V, (4, T))
    joined = torch.cat([embed.tok_emb.weight[tokens[:, t]] for t in range(T)], dim=-1)
    expected = joined @ embed.join.weight.T + embed.join.bias
    torch.testing.assert_close(embed(tokens), expected)
    assert embed(tokens).shape == (4, D)


@pytest.mark.parametrize("embedding", [TokenEmbedding, WindowEmbedding])
def test_b02_a_sequence_of_the_wrong_length_is_refused(embedding):
    """Case B02, also for a context of 1, which broadcasting would hide."""
    for context in (1, T):
        with pytest.raises(ValueError, match=f"context={context}"):
            embedding(V, context, D)(torch.zeros(2, context + 1, dtype=torch.long))


def test_plain_block_replaces_its_input():
    torch.manual_seed(0)
    attn, mlp = CausalSelfAttention(D, 2), MLP(D, 16)
    block, x = PlainBlock(attn, mlp), torch.randn(2, T, D)
    torch.testing.assert_close(block(x), mlp(attn(x)), rtol=0, atol=0)
    for write in (attn.out, mlp.down):
        nn.init.zeros_(write.weight)
        nn.init.zeros_(write.bias)
    assert not block(x).any()  # nothing of the input is left
    x.requires_grad_()
    (slope,) = torch.autograd.grad(PlainBlock(attn, MLP(D, 16))(x)[0, 2].sum(), x)
    assert not slope[0, 3:].any()  # causal


# --- beginnings -----------------------------------------------------------------------


@often
@given(st.sampled_from(list(INITS)), st.sampled_from([32, 64]), st.integers(0, 99))
def test_variances_of_the_three_starts(how, width, seed):
    torch.manual_seed(seed)
    parts = nn.ModuleList(
        [CausalSelfAttention(width, 4), MLP(width, 4 * width), nn.Embedding(50, width)]
    )
    assert initialise(parts, how) is parts
    attn, mlp, embedding = parts

    def expected(inputs, outputs):
        share = {"default": 1 / (3 * inputs), "he": 2 / inputs}
        return share.get(how, 2 / (inputs + outputs))

    square = expected(width, width)  # queries, keys, values apart
    for matrix in (*attn.qkv.weight.chunk(3), attn.out.weight):
        assert math.isclose(matrix.var().item(), square, rel_tol=0.2)
    up, down = mlp.up.weight, mlp.down.weight
    for matrix in (up, down):
        outputs, inputs = matrix.shape
        variance = expected(inputs, outputs)
        assert math.isclose(matrix.var().item(), variance, rel_tol=0.2)
    if how != "default":
        assert not any(m.bias.any() for m in (attn.qkv, attn.out, mlp.up, mlp.down))
        assert math.isclose(embedding.weight.var().item(), 1 / width, rel_tol=0.2)


def test_default_leaves_biases_and_embeddings_and_none_touches_norms():
    for how in INITS:
        torch.manual_seed(0)
        parts = nn.ModuleList([nn.Linear(D, D), nn.Embedding(V, D), LayerNorm(D)])
        nn.init.normal_(parts[2].weight)
        before = copy.deepcopy(parts.state_dict())
        after = initialise(parts, how).state_dict()
        kept = {k for k in before if torch.equal(before[k], after[k])}
        norms = {"2.weight", "2.bias"}
        assert kept == (norms | {"0.bias", "1.weight"} if how == "default" else norms)


def test_a_shared_head_is_drawn_as_the_embedding():
    model = initialise(gpt(), "he")
    assert model.head.weight is model.tok_emb.weight
    assert math.isclose(model.tok_emb.weight.var().item(), 1 / D, rel_tol=0.4)


def test_unknown_start_is_refused_by_name():
    with pytest.raises(
        ValueError, match="how='kaiming' must be one of default, xavier"
    ):
        initialise(nn.Linear(2, 2), "kaiming")


# --- the loop -------------------------------------------------------------------------


def test_loss_equals_torch_for_windows_and_sequences():
    model, (tokens, targets) = plain_gpt(1), tokens_batch()
    logp = model(tokens).log_softmax(-1)
    picked = [logp[b, t, targets[b, t]].item() for b in range(3) for t in range(T)]
    assert math.isclose(
        loss_of(model, (tokens, targets)).item(), -sum(picked) / (3 * T), rel_tol=1e-5
    )
    model, batch = window_stack(1), windows_batch()
    same = nn.functional.cross_entropy(model(batch[0]), batch[1])
    assert torch.equal(loss_of(model, batch), same)


def test_held_out_loss_weighs_targets_and_restores_the_mode():
    model = gpt(dropout=0.5).train()
    parts = [tokens_batch(1, seed=1), tokens_batch(5, seed=2)]
    whole = tuple(torch.cat(both) for both in zip(*parts))
    apart = held_out_loss(model, parts)
    assert model.training and math.isclose(
        apart, held_out_loss(model, [whole]), rel_tol=1e-6
    )
    assert apart == held_out_loss(model, parts)  # no dropout
    model.eval()
    held_out_loss(model, parts)
    assert not model.training


def test_c13_held_out_loss_restores_the_mode_after_an_error():
    model = gpt(dropout=0.5).train()
    tokens, targets = tokens_batch()
    with pytest.raises(ValueError):
        held_out_loss(model, [(tokens + V, targets)])
    assert model.training


@pytest.mark.parametrize("warmup, clip", [(0, None), (3, None), (0, 0.1), (3, 0.1)])
def test_fit_is_adam_step_for_step(warmup, clip):
    batches = [windows_batch(seed=s) for s in range(6)]
    ours, theirs = window_stack(2), window_stack(2)
    losses = fit(ours, batches, steps=6, lr=1e-2, warmup=warmup, clip=clip)
    optimizer = torch.optim.Adam(theirs.parameters(), lr=1e-2)
    for step, batch in enumerate(batches, 1):
        optimizer.param_groups[0]["lr"] = 1e-2 * (
            min(1, step / warmup) if warmup else 1
        )
        loss = nn.functional.cross_entropy(theirs(batch[0]), batch[1])
        assert math.isclose(loss.item(), losses[step - 1], rel_tol=1e-4)
        optimizer.zero_grad()
        loss.backward()
        if clip:
            nn.utils.clip_grad_norm_(theirs.parameters(), clip)
        optimizer.step()
    for a, b in zip(ours.parameters(), theirs.parameters()):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-5)


def test_fit_ends_at_a_loss_that_is_not_finite_and_refuses_too_few_batches():
    model = window_stack(1)
    nn.init.constant_(model.head.weight, math.inf)
    losses = fit(model, [windows_batch()] * 4, steps=4, lr=1e-3)
    assert len(losses) == 4 and all(math.isnan(v) for v in losses[1:])
    with pytest.raises(ValueError, match="batches ended after 2 of steps=3"):
        fit(window_stack(1), [windows_batch()] * 2, steps=3, lr=1e-3)


# --- the probe ------------------------------------------------------------------------


def by_hand(model, names, run):
    """Outputs and gradients with retain_grad, as one would write it for one model."""
    outputs = {}
    modules = dict(model.named_modules())
    hooks = []
    for name in names:

        def keep(module, arguments, output, name=name):
            output.retain_grad()
            outputs[name] = output

        hooks.append(modules[name].register_forward_hook(keep))
    model.zero_grad()
    run(model).backward()
    for hook in hooks:
        hook.remove()

    def rms(x):
        return x.double().square().mean().sqrt().item()

    own = [modules[name].parameters() for name in names]
    weights = [
        math.sqrt(sum(p.grad.double().square().sum().item() for p in ps)) for ps in own
    ]
    signal = [rms(outputs[name]) for name in names]
    gradient = [rms(outputs[name].grad) for name in names]
    model.zero_grad()
    return signal, gradient, weights


def agrees(r: Record, model, run):
    for ours, theirs in zip(
        (r.signal, r.gradient, r.weight_gradient), by_hand(model, r.names, run)
    ):
        assert ours == pytest.approx(theirs, rel=1e-5)


@often
@given(st.integers(2, 5), st.integers(0, 999))
def test_record_on_a_stack(n_layers, seed):
    model, batch = window_stack(n_layers, seed).double(), windows_batch(seed=seed)
    r = record(model, batch)
    assert r.names == [f"blocks.{n}" for n in range(n_layers)]
    agrees(r, model, lambda m: loss_of(m, batch))


@pytest.mark.parametrize("order", list(BLOCKS))
def test_record_on_every_block_with_parts_named(order):
    torch.manual_seed(0)
    parts = CausalSelfAttention(D, 2), MLP(D, 16), LayerNorm(D), LayerNorm(D)
    block = BLOCKS[order](*parts)
    x, direction = torch.randn(3, T, D), torch.randn(D)

    def loss(out):
        return (out @ direction).square().mean()

    r = record(block, x, layers=["attn", "mlp"], loss=loss)
    agrees(r, block, lambda m: loss(m(x)))
    with pytest.raises(ValueError, match="no ModuleList or Sequential"):
        record(nn.Linear(2, 2), torch.randn(3, 2), loss=loss)


@pytest.mark.parametrize("tied", [True, False])
def test_record_on_gpt_with_its_head_shared_or_not(tied):
    model, batch = gpt(tie_weights=tied), tokens_batch()
    assert (model.head.weight is model.tok_emb.weight) == tied
    r = record(model, batch)
    assert r.names == ["blocks.0", "blocks.1", "blocks.2"]
    agrees(r, model, lambda m: loss_of(m, batch))
    ends = record(model, batch, layers=["tok_emb", "head"])
    agrees(ends, model, lambda m: loss_of(m, batch))


def test_record_on_a_sequential_that_writes_in_place():
    torch.manual_seed(0)
    safe = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 3))
    risky = nn.Sequential(safe[0], nn.ReLU(inplace=True), safe[2])
    batch = torch.randn(5, 4), torch.randint(3, (5,))
    assert record(safe, batch) == record(risky, batch)
    agrees(record(safe, batch), safe, lambda m: loss_of(m, batch))
    assert record(safe, batch).weight_gradient[1] == 0


def test_record_of_frozen_layers():
    model, batch = window_stack(3), windows_batch()
    expected = record(model, batch)
    for p in model.parameters():
        p.requires_grad_(False)
    frozen = record(model, batch)
    assert frozen.gradient == expected.gradient and frozen.signal == expected.signal
    assert frozen.weight_gradient == [0, 0, 0]
    assert not any(p.requires_grad for p in model.parameters())


@pytest.mark.parametrize("training", [True, False])
def test_the_model_is_left_as_it_was(training):
    """Weights, gradients, buffers in and out of the graph, mode, hooks, randomness."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(0.5), nn.Linear(4, 3)
    ).train(training)
    batch = torch.randn(5, 4), torch.randint(3, (5,))
    loss_of(model, batch).backward()
    grads = [p.grad.clone() for p in model.parameters()]
    state, random = copy.deepcopy(model.state_dict()), torch.get_rng_state()
    with torch.no_grad():
        first, second = record(model, batch), record(model, batch)
    assert first == second  # the same dropout mask as well
    assert torch.equal(random, torch.get_rng_state())
    assert all(torch.equal(v, state[k]) for k, v in model.state_dict().items())
    assert all(torch.equal(p.grad, g) for p, g in zip(model.parameters(), grads))
    assert all(m.training == training for m in model.modules())
    assert not any(m._forward_hooks for m in model.modules())


def test_the_model_is_left_as_it_was_after_an_error():
    model = nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 3))
    state = copy.deepcopy(model.state_dict())

    def loss(out):
        raise RuntimeError("no loss today")

    with pytest.raises(RuntimeError, match="no loss today"):
        record(model, torch.randn(5, 4), loss=loss)
    assert all(torch.equal(v, state[k]) for k, v in model.state_dict().items())
    assert not any(m._forward_hooks for m in model.modules())


def test_layers_are_those_of_the_longest_list_outside_other_lists():
    assert record(window_stack(2), windows_batch()).names == ["blocks.0", "blocks.1"]
    deep = nn.ModuleList([nn.Sequential(*(nn.Linear(D, D) for _ in range(5)))])
    stack = Stack(WindowEmbedding(V, T, D), deep, nn.Linear(D, V))
    assert record(stack, windows_batch()).names == ["blocks.0"]
    nested = nn.Sequential(nn.Linear(4, 4), nn.Sequential(*(nn.Tanh() for _ in "abc")))
    r = record(nested, torch.randn(2, 4), loss=lambda out: out.sum())
    assert r.names == ["1.0", "1.1", "1.2"]


def test_similarity_needs_two_vectors_and_a_layer_may_not_matter():
    r = record(nn.Sequential(nn.Tanh()), torch.randn(1, 4), loss=lambda out: out.sum())
    assert math.isnan(r.similarity[0])
    model = gpt()
    r = record(model, tokens_batch(), loss=lambda out: out.sum() * 0.0)
    assert r.gradient == [0, 0, 0] and r.weight_gradient == [0, 0, 0]


def test_errors_name_what_is_wrong():
    model, batch = window_stack(2), windows_batch()
    with pytest.raises(ValueError, match=r"no submodule named 'blocks\.7'"):
        record(model, batch, layers=["blocks.7"])
    with pytest.raises(ValueError, match="batch has no targets"):
        record(model, batch[0])
    model.spare = nn.Linear(2, 2)
    with pytest.raises(ValueError, match="'spare' did not run"):
        record(model, batch, layers=["blocks.0", "spare"])
    attn = nn.Sequential(nn.LSTM(4, 4))
    with pytest.raises(ValueError, match="'0' returned no tensor"):
        record(attn, torch.randn(2, 3, 4), loss=lambda out: out[0].sum())
    assert not any(m._forward_hooks for m in model.modules())


def test_plain_attention_makes_tokens_alike_and_a_way_around_does_not():
    torch.manual_seed(0)
    layers = [CausalSelfAttention(32, 4, bias=False) for _ in range(8)]
    x = torch.randn(4, 16, 32, dtype=torch.float64)
    r = record(nn.Sequential(*layers).double(), x, loss=lambda out: out.sum())
    assert r.similarity[-1] > 0.95 and r.similarity[0] < r.similarity[3]
    for layer in layers:
        x = x + layer(x)
    around = record(nn.Sequential(nn.Identity()), x, loss=lambda out: out.sum())
    assert around.similarity[0] < 0.5


def test_public_names_are_documented():
    for name in minigpt.depth.__all__:
        thing = getattr(minigpt.depth, name)
        if name != "INITS":
            assert len(inspect.getdoc(thing)) > 40
    for thing in (record, fit, initialise):
        for word in ("Args:", "Returns:", "Raises:"):
            assert word in inspect.getdoc(thing)


def test_a_halved_mean_square_over_20_layers():
    """quiz: 1"""
    share = math.sqrt(0.5**20)
    assert 1 / 1100 < share < 1 / 1000
    assert 0.9e-6 < 0.5**20 < 1e-6


def test_averages_of_averages_end_at_the_first_token():
    """quiz: 5"""
    n = 12
    average = torch.ones(n, n, dtype=torch.float64).tril()
    average /= average.sum(1, keepdim=True)
    values = torch.linalg.eigvals(average).real.sort(descending=True).values
    assert values[0] == pytest.approx(1) and values[1] == pytest.approx(0.5)
    x = torch.randn(n, 3, dtype=torch.float64)
    far = torch.linalg.matrix_power(average, 60) @ x
    torch.testing.assert_close(far, x[:1].expand(n, 3), atol=1e-6, rtol=0)


def test_the_default_start_leaves_a_sixth():
    """quiz: 2"""
    torch.manual_seed(0)
    n = 512
    layer = nn.Linear(n, n, bias=False)  # the default start, without its biases
    x = torch.randn(2000, n)
    kept = layer(x).relu().square().mean() / x.square().mean()
    assert kept.item() == pytest.approx(1 / 6, rel=0.05)
    he = layer(x) * math.sqrt(2 / n) / layer.weight.std()
    assert (he.relu().square().mean() / x.square().mean()).item() == pytest.approx(
        1, rel=0.05
    )
