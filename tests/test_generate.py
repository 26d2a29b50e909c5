"""Chapter 14: choosing a token, the cache, whole texts, and their streams."""

import itertools
import math

import pytest
import tiktoken
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import minigpt.generate as module
from minigpt.block import BLOCKS
from minigpt.generate import (
    CachedGPT,
    Sampling,
    cache_bytes,
    decode_stream,
    filter_logits,
    generate,
    stream,
    stream_text,
)
from minigpt.gpt import (
    GPT,
    MLPS,
    NORMS,
    POSITIONS,
    GPTConfig,
    eval_mode,
    load_weights,
    preset,
)
from minigpt.text import CharTokenizer, train_bpe

V, CONTEXT = 11, 8
PROPERTY = settings(deadline=None, max_examples=25, derandomize=True)


def make(seed: int = 0, std: float = 0.3, **changes) -> GPT:
    """A small GPT that was never trained, with weights large enough to matter."""
    sizes = {"context": CONTEXT, "n_layers": 2, "n_heads": 2, "d_model": 16}
    torch.manual_seed(seed)
    model = GPT(GPTConfig(V, **sizes | changes)).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=std)
    return model


def prompt(*shape: int, seed: int = 1) -> torch.Tensor:
    return torch.randint(V, shape, generator=torch.Generator().manual_seed(seed))


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def by_the_rule(model: GPT, row: list[int], n_new: int) -> list[int]:
    """Greedy, token by token, with plain forward passes over the window."""
    C = model.config.context
    window = row[-C:]
    for _ in range(n_new):
        with torch.no_grad():
            token = model(torch.tensor([window]))[0, -1].argmax().item()
        row = [*row, token]
        window = [*window, token]
        if len(window) > C:
            window = window[-max(1, C // 2) :]
    return row


# --- choosing a token ------------------------------------------------------------


def test_formula_of_the_temperature():
    """formula: greedy-answer: softmax of z / T, in plain Python."""
    z, T = [1.5, -0.5, 3.0, 0.25], 0.7
    powers = [math.exp(value / T) for value in z]
    expected = [power / sum(powers) for power in powers]
    p = Sampling(temperature=T).probabilities(torch.tensor([z], dtype=torch.float64))
    assert p.dtype == torch.float64
    assert p[0].tolist() == pytest.approx(expected, abs=1e-12)


def test_formula_of_top_p():
    """formula: top-p: the smallest set whose mass reaches top_p, by trying all sets."""
    for seed in range(5):
        z = torch.randn(6, generator=seeded(seed), dtype=torch.float64)
        powers = [math.exp(value) for value in z.tolist()]
        q = [power / sum(powers) for power in powers]
        for top_p in (0.2, 0.5, 0.8, 0.95):
            sets = [
                s
                for size in range(1, 7)
                for s in itertools.combinations(range(6), size)
                if sum(q[i] for i in s) >= top_p
            ]
            smallest = min(map(len, sets))
            best = max(
                (s for s in sets if len(s) == smallest),
                key=lambda s: sum(q[i] for i in s),
            )
            kept = filter_logits(z, top_p=top_p).isfinite().nonzero().flatten()
            assert tuple(kept.tolist()) == best
            p = Sampling(top_p=top_p).probabilities(z[None])[0].tolist()
            mass = sum(q[i] for i in best)
            expected = [q[i] / mass if i in best else 0.0 for i in range(6)]
            assert p == pytest.approx(expected, abs=1e-12)


def test_c05_edges_of_top_p():
    """C05: binary fractions, so that the boundary is exact."""
    z = torch.tensor([0.5, 0.25, 0.125, 0.125]).log()
    kept = [
        int(filter_logits(z, top_p=p).isfinite().sum())
        for p in (0, 0.5, 0.6, 0.75, 0.9, 1.0)
    ]
    assert kept == [1, 1, 2, 2, 4, 4]
    assert int(filter_logits(z, top_k=1, top_p=0.8).isfinite().sum()) == 1
    # After top-k the rest is weighed anew: 2/3 of what is left is enough for 0.6.
    assert int(filter_logits(z, top_k=2, top_p=0.6).isfinite().sum()) == 1


@pytest.mark.parametrize("top_p", [0.9999999, 1.0])
def test_c05_many_candidates_near_1(top_p):
    z = torch.randn(1, 32000, generator=seeded())
    p = Sampling(top_p=top_p).probabilities(z)
    assert p.sum().item() == pytest.approx(1, abs=1e-5)
    assert 0 <= Sampling(top_p=top_p).draw(z, seeded()).item() < 32000


def test_c03_top_k_off_greedy_and_too_large():
    """C03: None and 0 keep all; 1 is greedy; above V is V; the rest is refused."""
    z = torch.randn(5, 65, generator=seeded())
    for off in (None, 0, 65, 200):
        assert torch.equal(filter_logits(z, top_k=off), z)
    one = filter_logits(z, top_k=1)
    assert torch.equal(one.argmax(-1), z.argmax(-1))
    assert int(one.isfinite().sum()) == 5
    for wrong in (-1, 2.5, True, "5"):
        with pytest.raises(ValueError, match=r"top_k=.*at least 1"):
            filter_logits(z, top_k=wrong)


def test_ties_never_let_more_than_k_through():
    z = torch.tensor([[1.0, 2.0, 2.0, 2.0, 0.0]])
    assert filter_logits(z, top_k=2).isfinite().tolist() == [
        [False, True, True, False, False]
    ]
    equal = torch.zeros(3, 40)
    assert filter_logits(equal, top_k=7).isfinite().sum(-1).tolist() == [7, 7, 7]
    p = filter_logits(equal, top_p=0.5).isfinite()
    assert p.sum(-1).tolist() == [20, 20, 20]
    assert p[0, :20].all()


def test_c01_temperature_zero_is_greedy_whatever_else_is_set():
    """C01: no draw is made; tiny temperatures do not crash; the rest is refused."""
    z = torch.tensor([[0.0, 3.0, 3.0, -1.0]])
    before = torch.get_rng_state()
    g = seeded()
    state = g.get_state()
    for others in ({}, {"top_k": 3}, {"top_p": 0.1}, {"top_k": 2, "top_p": 1.0}):
        for t in (0, 0.0, 1e-45, 1e-8):
            sampling = Sampling(temperature=t, **others)
            assert sampling.draw(z, g).tolist() == [1]
            assert sampling.probabilities(z).tolist() == [[0, 1, 0, 0]]
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(g.get_state(), state)
    for wrong in (-1, -1e-9, math.nan, math.inf, "0.7", None, True):
        with pytest.raises(ValueError, match=r"temperature=.*0 or more"):
            Sampling(temperature=wrong)


@pytest.mark.parametrize("wrong", [-0.1, 1.5, math.nan, "0.9", True])
def test_top_p_out_of_range(wrong):
    with pytest.raises(ValueError, match=r"top_p=.*0 to 1"):
        Sampling(top_p=wrong)


@PROPERTY
@given(
    values=st.lists(st.integers(-6, 6), min_size=1, max_size=12),
    temperature=st.sampled_from([0.0, 0.3, 1.0, 2.5]),
    top_k=st.one_of(st.none(), st.integers(0, 14)),
    top_p=st.one_of(st.none(), st.floats(0, 1)),
)
def test_probabilities_are_a_distribution_over_the_best(
    values, temperature, top_k, top_p
):
    z = torch.tensor([values], dtype=torch.float64)
    p = Sampling(temperature, top_k, top_p).probabilities(z)[0]
    assert p.sum().item() == pytest.approx(1) and bool((p >= 0).all())
    kept = p > 0
    if top_k and temperature:
        assert kept.sum() <= top_k
    assert kept[z[0].argmax()]
    if (~kept).any() and temperature:  # nothing that is dropped beats what is kept
        assert z[0][~kept].max() <= z[0][kept].min()


@PROPERTY
@given(
    values=st.lists(st.floats(-20, 20), min_size=2, max_size=8),
    shift=st.floats(-1000, 1000),
)
def test_a_constant_in_all_logits_changes_nothing(values, shift):
    z = torch.tensor([values], dtype=torch.float64)
    sampling = Sampling(temperature=0.8)
    torch.testing.assert_close(
        sampling.probabilities(z), sampling.probabilities(z + shift)
    )


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_dtypes(dtype):
    z = torch.randn(3, 9, generator=seeded()).to(dtype)
    p = Sampling(temperature=0.5, top_k=4, top_p=0.9).probabilities(z)
    assert p.dtype == torch.promote_types(dtype, torch.float32)
    assert filter_logits(z, 4).dtype == dtype
    torch.testing.assert_close(p.sum(-1), torch.ones_like(p[:, 0]))


def test_draws_have_the_probabilities_of_the_softmax():
    """Frequencies of 20,000 draws, against the exact distribution and torch's."""
    z = torch.tensor([[1.0, 0.0, 2.0, -1.0, 0.5]])
    sampling = Sampling(temperature=0.8, top_k=4)
    exact = sampling.probabilities(z)[0]
    n = 20_000
    ids = sampling.draw(z.expand(n, -1), seeded(3))
    ours = torch.bincount(ids, minlength=5) / n
    theirs = torch.bincount(
        torch.multinomial(exact, n, replacement=True, generator=seeded(4)), minlength=5
    )
    sigma = (exact * (1 - exact) / n).sqrt() + 1e-9
    assert bool(((ours - exact).abs() < 5 * sigma).all())
    assert bool(((theirs / n - exact).abs() < 5 * sigma).all())
    assert ours[3] == 0


def test_hugging_face_cuts_the_same_tail():
    """The same set as TopKLogitsWarper and TopPLogitsWarper, without ties."""
    process = pytest.importorskip("transformers.generation.logits_process")
    z = torch.randn(4, 50, generator=seeded())
    for k, p in itertools.product((1, 5, 49), (0.1, 0.5, 0.9, 0.999)):
        theirs = process.TopKLogitsWarper(top_k=k)(None, z)
        assert torch.equal(theirs, filter_logits(z, top_k=k))
        theirs = process.TopPLogitsWarper(top_p=p)(None, theirs)
        assert torch.equal(theirs, filter_logits(z, top_k=k, top_p=p))


def test_f01_an_impossible_id_is_named(monkeypatch):
    """F01: what some versions of torch draw on MPS."""

    def broken(p, n, generator=None):
        return torch.full((len(p), 1), -(2**63))

    monkeypatch.setattr(torch, "multinomial", broken)
    with pytest.raises(ValueError, match=r"-9223372036854775808.*torch \d.*on cpu"):
        generate(make(), prompt(1, 3), 2)


def test_logits_that_are_not_finite_are_refused():
    for bad in (math.nan, math.inf):
        for t in (0, 1):
            with pytest.raises(ValueError, match="not all of them finite"):
                Sampling(temperature=t).draw(torch.tensor([[0.0, bad]]))
    with pytest.raises(ValueError, match="finite"):
        Sampling().draw(torch.full((1, 3), -math.inf))
    assert Sampling().draw(torch.tensor([[-math.inf, 0.0]])).tolist() == [1]


# --- the cache -------------------------------------------------------------------

SWITCHES = [
    (order, qk_norm, shift)
    for order in BLOCKS
    for qk_norm in (False, True)
    for shift in ((False, True) if order == "pre" else (False,))
]


@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize("mlp", MLPS)
@pytest.mark.parametrize("norm", NORMS)
def test_c07_cached_logits_are_those_of_a_full_forward(norm, mlp, positions):
    """C07: at once, in pieces, one by one; every order, with QK-norm and shift."""
    kind = {"norm": norm, "mlp": mlp, "positions": positions}
    tokens = prompt(2, CONTEXT)
    for order, qk_norm, shift in SWITCHES:
        switches = {"order": order, "qk_norm": qk_norm, "shift": shift}
        # Without norms these weights would make numbers that no tolerance fits.
        model = make(
            std=0.1 if order in ("plain", "residual") else 0.3, **kind, **switches
        )
        with torch.no_grad():
            full = model(tokens)
        for cuts in ((8,), (3, 5), (5, 2, 1), (1,) * 8):
            cached, at = CachedGPT(model, batch_size=2), 0
            for cut in cuts:
                logits = cached(tokens[:, at : at + cut])
                at += cut
                torch.testing.assert_close(
                    logits, full[:, at - 1], rtol=1e-5, atol=1e-5, msg=str(switches)
                )


@pytest.mark.parametrize("name", ["mini", "modern-shift"])
def test_greedy_with_and_without_cache_far_past_the_context(name):
    """C07, B02: the same window rule for both, as plain forward passes spell it out."""
    changes = {"context": CONTEXT, "n_layers": 2, "n_heads": 2, "d_model": 16}
    torch.manual_seed(0)
    model = GPT(preset(name, V, **changes))
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    for length in (1, 5, 8, 13):
        tokens = prompt(1, length)
        cached = generate(model, tokens, 30, temperature=0)
        plain = generate(model, tokens, 30, temperature=0, cache=False)
        assert cached.tolist() == plain.tolist()
        assert cached[0].tolist() == by_the_rule(model, tokens[0].tolist(), 30)


@pytest.mark.parametrize("context", [1, 2, 3])
@pytest.mark.parametrize("cache", [True, False])
def test_tiny_windows(context, cache):
    model = make(context=context)
    ids = generate(model, prompt(1, 4), 7, temperature=0, cache=cache)
    assert ids[0].tolist() == by_the_rule(model, prompt(1, 4)[0].tolist(), 7)


def test_what_the_cache_takes():
    """formula: cache-bytes: 2 L B C D numbers, as many as the buffers hold."""
    config = GPTConfig(V, context=24, n_layers=3, n_heads=2, d_model=16)
    cached = CachedGPT(GPT(config), batch_size=5)
    assert cached.n_bytes == cache_bytes(config, 5) == 2 * 3 * 5 * 24 * 16 * 4
    half = CachedGPT(GPT(config).to(torch.bfloat16), batch_size=5)
    assert half.n_bytes == cache_bytes(config, 5, itemsize=2)


def test_only_a_gpt_can_be_cached_and_anything_can_be_recomputed():
    class Counts(torch.nn.Module):
        config = GPTConfig(V, context=4)

        def __init__(self):
            super().__init__()
            self.bias = torch.nn.Parameter(torch.zeros(V))

        def forward(self, tokens):
            following = torch.nn.functional.one_hot((tokens + 1) % V, V)
            return 9.0 * following + self.bias

    model = Counts()
    with pytest.raises(ValueError, match=r"not Counts: use cache=False"):
        generate(model, prompt(1, 2), 3)
    ids = generate(model, torch.tensor([[3]]), 12, temperature=0, cache=False)
    assert ids[0].tolist() == [(3 + i) % V for i in range(13)]


def test_half_precision_and_another_shape_of_the_weights():
    model = make().to(torch.bfloat16)
    a = generate(model, prompt(3, 4), 9, temperature=0)
    b = generate(model, prompt(3, 4), 9, temperature=0, cache=False)
    assert a.shape == b.shape == (3, 13)
    wide = make().double()
    a = generate(wide, prompt(3, 4), 9, temperature=0)
    assert torch.equal(a, generate(wide, prompt(3, 4), 9, temperature=0, cache=False))


def test_f06_a_compiled_model_is_used_uncompiled():
    """F06: no compilation, so none for every new length."""
    model = make()
    compiled = torch.compile(model, backend="eager")
    for cache in (True, False):
        ids = generate(compiled, prompt(1, 3), 6, temperature=0, cache=cache)
        assert torch.equal(ids, generate(model, prompt(1, 3), 6, temperature=0))


# --- whole texts -----------------------------------------------------------------


@pytest.mark.parametrize("cache", [True, False])
def test_c13_nothing_of_the_model_changes(cache, monkeypatch):
    """C13: modes of all modules, weights, attributes; also after an error."""
    model = make(dropout=0.5)
    model.train()
    model.blocks[1].eval()
    modes = {name: m.training for name, m in model.named_modules()}
    parts = {name: id(m) for name, m in model.named_modules()}
    keys = {name: sorted(vars(m)) for name, m in model.named_modules()}
    weights = {k: w.clone() for k, w in model.state_dict().items()}

    def unchanged():
        for name, m in model.named_modules():
            assert m.training == modes[name] and id(m) == parts[name]
            assert sorted(vars(m)) == keys[name]
        assert all(torch.equal(w, weights[k]) for k, w in model.state_dict().items())
        assert all(p.requires_grad and p.grad is None for p in model.parameters())

    ids = generate(model, prompt(2, 3), 12, temperature=0, cache=cache)
    unchanged()
    assert ids.grad_fn is None and not ids.is_inference()
    with eval_mode(model):  # dropout was off, although the model was in training
        again = generate(model, prompt(2, 3), 12, temperature=0, cache=cache)
    assert torch.equal(ids, again)
    pieces = stream(model, prompt(1, 3), 5, cache=cache)
    next(pieces)
    unchanged()  # in the middle of a stream that nobody finishes

    def broken(self, logits, generator=None):
        raise RuntimeError("stop here")

    monkeypatch.setattr(Sampling, "draw", broken)
    with pytest.raises(RuntimeError, match="stop here"):
        generate(model, prompt(1, 3), 5, cache=cache)
    unchanged()


def test_training_goes_on_after_and_during_generation():
    model = make()
    pieces = stream(model, prompt(1, 3), 4)
    next(pieces)
    ids = generate(model, prompt(1, 3), 4)
    model(ids).sum().backward()
    assert model.head.weight.grad is not None
    next(pieces)


def test_two_runs_on_one_model_do_not_meet():
    """C07: neither one after the other nor in turns."""
    model = make(positions="rotary", shift=True)
    a, b = prompt(1, 6, seed=2), prompt(1, 2, seed=3)
    alone = [generate(model, x, 9, temperature=0)[0, -9:].tolist() for x in (a, b)]
    both = [stream(model, x, 9, temperature=0) for x in (a, b)]
    turns = list(zip(*both))
    assert [[pair[i].item() for pair in turns] for i in (0, 1)] == alone


def test_b02_a_long_prompt_is_its_last_window():
    """B02: 40 tokens and 30 new ones for a context of 16."""
    model = make(context=16)
    long = prompt(2, 40)
    ids = generate(model, long, 30, generator=seeded(5))
    assert ids.shape == (2, 70) and torch.equal(ids[:, :40], long)
    cropped = generate(model, long[:, -16:], 30, generator=seeded(5))
    assert torch.equal(ids[:, 40:], cropped[:, 16:])


@pytest.mark.parametrize("cache", [True, False])
@pytest.mark.parametrize("positions", POSITIONS)
def test_c10_prompts_of_unequal_length(positions, cache):
    """C10: each as alone, in lengths below, at and above the context."""
    model = make(positions=positions, shift=True)
    prompts = [prompt(n, seed=n) for n in (3, 5, 8, 1, 13)]
    together = generate(model, prompts, 14, temperature=0, cache=cache)
    for alone, ids in zip(prompts, together):
        assert ids.shape == (len(alone) + 14,)
        single = generate(model, alone[None], 14, temperature=0, cache=cache)
        assert torch.equal(ids, single[0])


def test_c10_a_rectangle_is_its_rows():
    model = make()
    ids = generate(model, prompt(4, 5), 20, temperature=0)
    rows = [generate(model, row[None], 20, temperature=0) for row in prompt(4, 5)]
    assert torch.equal(ids, torch.cat(rows))


@pytest.mark.parametrize(
    ("tokens", "words"),
    [
        (torch.zeros(1, 0, dtype=torch.int64), "prompt 0 is empty: begin with"),
        (torch.zeros(0, 3, dtype=torch.int64), "no prompt: B must be at least 1"),
        ([], "no prompt"),
        ([torch.tensor([1]), torch.tensor([], dtype=torch.int64)], "prompt 1 is empty"),
        (torch.tensor([1, 2]), r"shape \(B, T\), got \(2,\).*tokens\[None\]"),
        ([torch.tensor([[1]])], r"prompt 0 must be one row"),
        (torch.tensor([[1.0]]), r"int64 or int32 ids, got torch.float32"),
        (torch.tensor([[1, V]]), rf"prompt 0: token id {V} is outside vocab_size={V}"),
        (torch.tensor([[1], [-1]]), r"prompt 1: token id -1 is outside"),
        ("text", "tokens is text: encode it first"),
    ],
)
def test_c12_prompts_that_are_refused(tokens, words):
    """C12 and B03: an error that says what to do, never one from inside torch."""
    with pytest.raises(ValueError, match=words):
        generate(make(), tokens, 3)


@pytest.mark.parametrize("wrong", [-1, 2.5, True, "3", None])
def test_n_new_that_is_refused(wrong):
    with pytest.raises(ValueError, match=r"n_new=.*0 or more"):
        generate(make(), prompt(1, 3), wrong)


def test_nothing_new():
    model, rng = make(), torch.get_rng_state()
    assert torch.equal(generate(model, prompt(2, 3), 0), prompt(2, 3))
    assert list(stream(model, prompt(2, 3), 0)) == []
    assert torch.equal(torch.get_rng_state(), rng)


def test_samples_hang_on_the_generator_alone():
    model = make()
    torch.manual_seed(1)
    a = generate(model, prompt(2, 3), 20, generator=seeded(7))
    torch.manual_seed(2)
    rng = torch.get_rng_state()
    b = generate(model, prompt(2, 3), 20, generator=seeded(7))
    assert torch.equal(a, b) and torch.equal(torch.get_rng_state(), rng)
    assert not torch.equal(a, generate(model, prompt(2, 3), 20, generator=seeded(8)))
    torch.manual_seed(3)
    c = generate(model, prompt(2, 3), 20)
    torch.manual_seed(3)
    assert torch.equal(c, generate(model, prompt(2, 3), 20))


def test_the_cache_changes_no_draw():
    model = make()
    for seed in range(3):
        a, b = (
            generate(model, prompt(2, 3), 25, generator=seeded(seed), cache=cache)
            for cache in (True, False)
        )
        assert torch.equal(a, b)


def test_stop_ends_a_row_and_fills_it_up():
    """A row repeats the id that ended it; ids in the prompt do not count."""
    model = make(std=0.5)
    tokens = prompt(6, 3)
    free = generate(model, tokens, 12, generator=seeded(1))
    holding = {i: int((free[:, 3:] == i).any(1).sum()) for i in range(V)}
    stop = {next(i for i, n_rows in holding.items() if 0 < n_rows < 6)}
    ids = generate(model, tokens, 12, generator=seeded(1), stop=stop)
    assert ids.shape == free.shape
    ended = 0
    for row, other in zip(ids[:, 3:].tolist(), free[:, 3:].tolist()):
        first = next((i for i, token in enumerate(row) if token in stop), None)
        if first is None:
            assert row == other
        else:
            ended += 1
            assert row[: first + 1] == other[: first + 1]
            assert set(row[first:]) == {row[first]}
    assert 0 < ended < 6
    for wrong in (V, -1, "a", [1, 2.5]):
        with pytest.raises(ValueError, match=r"stop=.*token id"):
            generate(model, tokens, 2, stop=wrong)


def test_stop_in_prompts_of_unequal_length():
    model = make(std=0.5)
    prompts = [prompt(n, seed=n) for n in (2, 6, 4)]
    stop = int(generate(model, prompts[1][None], 1, temperature=0)[0, -1])
    together = generate(model, prompts, 9, temperature=0, stop=stop)
    for alone, ids in zip(prompts, together):
        single = generate(model, alone[None], 9, temperature=0, stop=stop)
        assert torch.equal(ids, single[0])
    assert set(together[1][6:].tolist()) == {stop}


def test_no_forward_pass_after_all_rows_stopped(monkeypatch):
    model = make()
    first = int(generate(model, prompt(1, 3), 1, temperature=0)[0, -1])
    calls = []
    read = CachedGPT.__call__
    monkeypatch.setattr(
        CachedGPT, "__call__", lambda self, x: calls.append(x.shape) or read(self, x)
    )
    ids = generate(model, prompt(1, 3), 50, temperature=0, stop=first)
    assert ids.shape == (1, 53) and len(calls) == 1
    assert len(list(stream(model, prompt(1, 3), 50, temperature=0, stop=first))) == 1


def test_hugging_face_writes_the_same_text():
    """Greedy, from the same weights: GPT-2 and Llama, random and small."""
    transformers = pytest.importorskip("transformers")
    sizes = {"vocab_size": 30, "initializer_range": 0.4}
    torch.manual_seed(0)
    gpt2 = transformers.GPT2LMHeadModel(
        transformers.GPT2Config(n_positions=32, n_embd=16, n_layer=2, n_head=2, **sizes)
    ).eval()
    llama = transformers.LlamaForCausalLM(
        transformers.LlamaConfig(
            hidden_size=16,
            intermediate_size=40,
            num_hidden_layers=2,
            num_attention_heads=2,
            max_position_embeddings=32,
            **sizes,
        )
    ).eval()
    shape = {"context": 32, "n_layers": 2, "n_heads": 2, "d_model": 16}
    configs = {
        "gpt2": preset("gpt2", 30, **shape, dropout=0.0),
        "llama": preset("llama-mini", 30, **shape, d_ff=40),
    }
    tokens = prompt(3, 4)
    for family, theirs in (("gpt2", gpt2), ("llama", llama)):
        ours = load_weights(GPT(configs[family]), theirs.state_dict(), family)
        expected = theirs.generate(
            tokens,
            attention_mask=torch.ones_like(tokens),
            max_new_tokens=20,
            min_new_tokens=20,
            do_sample=False,
            pad_token_id=0,
        )
        assert torch.equal(generate(ours, tokens, 20, temperature=0), expected)


# --- text ------------------------------------------------------------------------


def test_d03_no_character_is_broken():
    """D03: tokens of single bytes; the stream is the text, without U+FFFD."""
    bytes_only = tiktoken.Encoding(
        "bytes",
        pat_str=r"[\s\S]",
        mergeable_ranks={bytes([b]): b for b in range(256)},
        special_tokens={},
    )
    text = "a🔥é You 고양이"
    ids = bytes_only.encode(text)
    assert len(ids) == len(text.encode("utf-8"))
    pieces = list(decode_stream(bytes_only, ids))
    assert pieces == list(text)
    for cut in range(len(ids)):
        part = "".join(decode_stream(bytes_only, ids[:cut]))
        assert text.startswith(part) and "\ufffd" not in part
    assert "".join(decode_stream(bytes_only, [0xFF, 97])) == "\ufffda"
    bpe = train_bpe("고양이가 창밖을 보았다. 🔥 " * 20, 262)
    assert "".join(decode_stream(bpe, bpe.encode(text))) == text


def test_text_of_a_stream_is_that_of_generate():
    text = "the quiet parts\n"
    tokenizer = CharTokenizer(text)
    model = GPT(GPTConfig(tokenizer.vocab_size, context=8, n_layers=1, d_model=16))
    pieces = stream_text(model, tokenizer, "the", 30, generator=seeded(4))
    tokens = torch.tensor([tokenizer.encode("the")])
    ids = generate(model, tokens, 30, generator=seeded(4))
    assert "".join(pieces) == tokenizer.decode(ids[0, 3:].tolist())
    stop = ids[0, 10].item()
    pieces = stream_text(model, tokenizer, "the", 30, generator=seeded(4), stop=stop)
    told = "".join(pieces)
    assert tokenizer.decode(ids[0, 3:].tolist()).startswith(told)
    assert tokenizer.decode([stop]) not in told


def test_d05_ids_that_only_the_model_has_are_never_chosen():
    """D05: a vocabulary padded from 300 to 320; letters that are not known."""
    bpe = train_bpe("to be or not to be, that is the question. " * 30, 265)
    n = bpe.n_vocab
    model = GPT(GPTConfig(n + 40, context=16, n_layers=1, d_model=16, n_heads=2))
    with torch.no_grad():
        model.head.weight[n:] *= 50  # the padding is what the model likes best
    for t in (0, 1.0):
        pieces = stream_text(model, bpe, "to be", 200, temperature=t)
        assert "".join(pieces)
    p = Sampling(n_ids=n).probabilities(torch.randn(2, n + 40))
    assert p.shape == (2, n + 40) and p[:, n:].sum() == 0
    tokenizer = CharTokenizer("abc ")
    small = GPT(GPTConfig(4, context=8, n_layers=1, d_model=16))
    with pytest.raises(ValueError, match=r"Z"):
        stream_text(small, tokenizer, "Zab", 3)


def test_c12_prompts_of_text():
    """C12: empty is refused, white space is not; errors come before the first piece."""
    tokenizer = CharTokenizer("ab ")
    model = GPT(GPTConfig(3, context=8, n_layers=1, d_model=16))
    with pytest.raises(ValueError, match="prompt 0 is empty"):
        stream_text(model, tokenizer, "", 3)
    assert len("".join(stream_text(model, tokenizer, "   ", 5))) == 5
    with pytest.raises(ValueError, match="top_k"):
        stream_text(model, tokenizer, "a", 3, top_k=-1)
    with pytest.raises(ValueError, match="temperature"):
        stream(model, torch.tensor([[0]]), 3, temperature=-1)
    with pytest.raises(ValueError, match="generate takes a list"):
        stream(model, [torch.tensor([0])], 3)


def test_a_shift_remembers_the_normalised_token():
    """A mutant's trap: with a large mix the token before must be the right one."""
    model = make(shift=True)
    for name, parameter in model.named_parameters():
        if name.endswith("mix"):
            torch.nn.init.constant_(parameter, 2.0)
    tokens = prompt(1, CONTEXT)
    cached = CachedGPT(model)
    for t in range(CONTEXT):
        logits = cached(tokens[:, t : t + 1])
    with torch.no_grad():
        full = model(tokens)[:, -1]
    torch.testing.assert_close(logits, full, rtol=1e-5, atol=1e-5)
    assert module.CachedGPT is CachedGPT


# The quiz -----------------------------------------------------------------------------


def test_half_the_temperature_squares_a_ratio():
    """quiz: 1"""
    z = torch.tensor([0.4, 0.2, 0.2, 0.1, 0.1], dtype=torch.float64).log()
    p = Sampling(temperature=0.5).probabilities(z)
    assert (p[0] / p[1]).item() == pytest.approx(4)
    assert p[1] == p[2], "equal candidates stay equal"
    hot = Sampling(temperature=1e6).probabilities(z)
    assert (hot[0] / hot[1]).item() == pytest.approx(1, abs=1e-5)


def test_the_candidate_that_crosses_top_p_is_kept():
    """quiz: 2"""
    p = torch.tensor([0.5, 0.3, 0.15, 0.05], dtype=torch.float64)
    kept = filter_logits(p.log(), top_p=0.75).isfinite()
    assert kept.tolist() == [True, True, False, False]
    assert p[0] < 0.75 and p[:2].sum().item() == pytest.approx(0.8)


def test_dropping_the_oldest_key_is_another_function():
    """quiz: 5: what is kept in the second layer has read the token that is gone."""
    model = make(positions="rotary", norm="rmsnorm")
    row = prompt(1, CONTEXT)
    long, short = CachedGPT(model), CachedGPT(model)
    long(row)
    short(row[:, 1:])
    old = long.memory[:, :, 1, :, 1:]  # values: no place turns them
    new = short.memory[:, :, 1, :, :-1]
    torch.testing.assert_close(old[0], new[0])
    assert (old[1] - new[1]).abs().max() > 0.01
