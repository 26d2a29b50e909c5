"""Chapter 12: training. Case numbers are those of the collected bug reports."""

import hashlib
import json
import math
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import safetensors.torch
import torch

import minigpt.train as module
from minigpt.book import records
from minigpt.gpt import GPT, IGNORE, GPTConfig, count_by_formula, next_token_loss
from minigpt.text import Batches, CharTokenizer, split, tiny_shakespeare
from minigpt.train import (
    DECAYS,
    RECIPES,
    DamagedFile,
    Muon,
    Optimizers,
    TrainConfig,
    TrainingDiverged,
    accumulate_gradient,
    bfloat16_pays,
    checkpoints,
    choose_compile,
    choose_device,
    choose_dtype,
    decay_groups,
    evaluate,
    learning_rate,
    load_checkpoint,
    load_model,
    make_optimizer,
    orthogonalize,
    recipe,
    save_checkpoint,
    save_weights,
    selfcheck,
    summed_loss,
    train,
    unwrap,
)

MODEL = GPTConfig(
    vocab_size=11, context=8, n_layers=2, n_heads=2, d_model=16, dropout=0.1
)
RECIPE = TrainConfig(
    steps=20,
    batch_size=4,
    lr=1e-2,
    warmup=3,
    seed=1,
    eval_every=5,
    checkpoint_every=5,
    device="cpu",
)
IDS = (torch.arange(333) * 7 + torch.arange(333) // 5) % 11
VAL = IDS[:50]


def build(config: GPTConfig = MODEL, seed: int = 0) -> GPT:
    torch.manual_seed(seed)
    return GPT(config)


def batches(recipe: TrainConfig = RECIPE, ids: torch.Tensor = IDS) -> Batches:
    return Batches(ids, recipe.batch_size, MODEL.context, seed=recipe.seed)


def without_speed(rows: list[dict]) -> list[dict]:
    return [{k: v for k, v in r.items() if k != "tokens_per_s"} for r in rows]


def last(folder: Path) -> Path:
    return checkpoints(folder)[-1]


def same(a, b) -> bool:
    """Equal bit for bit, through dicts and lists."""
    if isinstance(a, torch.Tensor):
        return torch.equal(a, b)
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    return a == b


# config


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"steps": 0}, ["steps=0"]),
        ({"steps": 2.5}, ["steps=2.5"]),
        ({"batch_size": 0}, ["batch_size=0"]),
        ({"accumulate": 0}, ["accumulate=0"]),
        ({"checkpoint_every": 0}, ["checkpoint_every=0"]),
        ({"seed": -1}, ["seed=-1"]),
        ({"lr": 0.0}, ["lr=0.0"]),
        ({"lr": math.nan}, ["lr=nan"]),
        ({"lr": 1e-3, "min_lr": 1e-2}, ["min_lr=0.01", "lr=0.001"]),
        ({"warmup": 21}, ["warmup=21", "steps=20"]),
        ({"betas": (0.9, 1.0)}, ["betas=(0.9, 1.0)"]),
        ({"weight_decay": -1.0}, ["weight_decay=-1.0"]),
        ({"clip": 0.0}, ["clip=0.0", "None"]),
        ({"decay": "steps"}, ["decay='steps'", "linear", "cosine"]),
        ({"dtype": "int8"}, ["dtype='int8'", "bfloat16"]),
        ({"optimizer": "sgd"}, ["optimizer='sgd'", "adamw", "muon"]),
        ({"compile": True}, ["compile=True", "off", "on", "auto"]),
        ({"muon_lr": 0.0}, ["muon_lr=0.0"]),
        ({"ns_steps": 0}, ["ns_steps=0"]),
    ],
)
def test_a_wrong_recipe_is_refused_with_field_and_value(wrong, words):
    with pytest.raises(ValueError) as caught:
        replace(RECIPE, **wrong)
    assert all(word in str(caught.value) for word in words)


def test_recipe_goes_through_json_and_back():
    recipe = replace(RECIPE, betas=(0.8, 0.95), clip=None)
    assert TrainConfig.from_dict(json.loads(json.dumps(recipe.to_dict()))) == recipe
    with pytest.raises(ValueError, match="learning_rate"):
        TrainConfig.from_dict({"learning_rate": 1.0})


# schedule


@pytest.mark.parametrize("decay", list(DECAYS))
@pytest.mark.parametrize("warmup", [0, 1, 5, 20])
@pytest.mark.parametrize("min_lr", [0.0, 1e-3, 1e-2])
def test_e06_schedule(decay, warmup, min_lr):
    recipe = replace(RECIPE, decay=decay, warmup=warmup, min_lr=min_lr)
    rates = [learning_rate(step, recipe) for step in range(21)]
    assert all(0 < rate <= recipe.lr for rate in rates[:20])
    assert rates[:warmup] == sorted(set(rates[:warmup]))  # rises
    assert rates[warmup:] == sorted(rates[warmup:], reverse=True)  # falls
    if warmup < recipe.steps:
        assert rates[warmup] == recipe.lr == max(rates)
    for late in (20, 21, 200):
        assert learning_rate(late, recipe) == min_lr


@pytest.mark.parametrize("decay", list(DECAYS))
def test_the_schedule_is_the_formula(decay):
    """formula: schedule-intro, step by step in plain numbers."""
    recipe = replace(RECIPE, decay=decay, warmup=4, min_lr=1e-3)
    high, low, w, S = recipe.lr, recipe.min_lr, recipe.warmup, recipe.steps
    for s in range(S + 5):
        u = (s - w) / (S - w)
        d = u if decay == "linear" else (1 - math.cos(math.pi * u)) / 2
        fallen = high - (high - low) * d
        eta = high * (s + 1) / (w + 1) if s < w else fallen if s < S else low
        assert learning_rate(s, recipe) == pytest.approx(eta, abs=1e-15)


def test_schedule_halfway():
    recipe = replace(RECIPE, warmup=0, min_lr=2e-3)
    assert learning_rate(10, recipe) == pytest.approx(6e-3)
    cosine = replace(recipe, decay="cosine")
    assert learning_rate(10, cosine) == pytest.approx(6e-3)
    assert learning_rate(5, cosine) == pytest.approx(
        2e-3 + 8e-3 * (1 + math.sqrt(0.5)) / 2
    )


# device and dtype


def test_f03_pairs_of_device_and_dtype(monkeypatch):
    monkeypatch.setattr(module, "bfloat16_pays", lambda: False)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (8, 0))
    cpu, cuda, mps = (torch.device(kind) for kind in ("cpu", "cuda:0", "mps"))
    assert choose_dtype(cpu) == torch.float32
    assert choose_dtype(mps) == torch.float32
    assert choose_dtype(cuda) == torch.bfloat16
    assert choose_dtype(cuda, "float16") == torch.float16
    assert choose_dtype(cpu, "bfloat16") == torch.bfloat16
    with pytest.raises(ValueError, match=r"float16.*'cpu'.*float32, bfloat16"):
        choose_dtype(cpu, "float16")
    with pytest.raises(ValueError, match=r"bfloat16.*'mps'"):
        choose_dtype(mps, "bfloat16")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (7, 5))
    assert choose_dtype(cuda) == torch.float32
    monkeypatch.setattr(module, "bfloat16_pays", lambda: True)
    assert choose_dtype(cpu) == torch.bfloat16
    assert choose_dtype(cpu, d_model=64) == torch.float32
    assert choose_dtype(mps) == torch.float32


@pytest.mark.parametrize(
    ("seconds", "pays"), [((4.0, 1.0), True), ((1.0, 70.0), False), ((1.0, 0.9), False)]
)
def test_f03_bfloat16_is_taken_on_a_cpu_only_if_the_clock_says_so(
    monkeypatch, seconds, pays
):
    """The probe compares the best of several products; small gains do not count."""
    now = [0.0]

    class Clock:
        perf_counter = staticmethod(lambda: now[0])

    matmul = torch.Tensor.__matmul__

    def product(a, b):
        now[0] += seconds[a.dtype is torch.bfloat16]
        return matmul(a, b)

    monkeypatch.setattr(module, "time", Clock)
    monkeypatch.setattr(torch.Tensor, "__matmul__", product)
    assert bfloat16_pays.__wrapped__() is pays


def test_f03_auto_is_not_slower_than_float32_here():
    """Whatever this CPU is: the dtype that auto takes multiplies as fast as float32."""
    dtype = choose_dtype(torch.device("cpu"))
    a = torch.ones(768, 128)
    best = {}
    for kind in (torch.float32, dtype):
        x, w = a.to(kind), torch.ones(128, 512, dtype=kind)
        times = []
        for _ in range(9):
            start = time.perf_counter()
            x @ w
            times.append(time.perf_counter() - start)
        best[kind] = min(times)
    assert best[dtype] <= best[torch.float32]


def test_f03_the_best_device_is_taken_and_a_missing_one_refused(monkeypatch):
    def there(cuda: bool, mps: bool):
        monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda)
        monkeypatch.setattr(torch.backends.mps, "is_available", lambda: mps)

    there(True, True)
    assert choose_device() == torch.device("cuda")
    assert choose_device("cuda:1") == torch.device("cuda:1")
    there(False, True)
    assert choose_device() == torch.device("mps")
    there(False, False)
    assert choose_device() == torch.device("cpu")
    for word in ("cuda", "cuda:0", "mps", "tpu"):
        with pytest.raises(ValueError, match=f"device='{word}'.*cpu"):
            choose_device(word)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_f03_the_cpus_pairs_train_and_keep_float32_weights(dtype):
    model = build()
    rows = train(model, batches(), replace(RECIPE, dtype=dtype, steps=3))
    assert len(rows) == 3 and all(math.isfinite(row["loss"]) for row in rows)
    assert all(p.dtype == torch.float32 for p in model.parameters())


def test_mps_gets_what_it_can_and_nothing_else(monkeypatch):
    """First-class on a Mac, as far as can be said without one: no CUDA word is used."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    mps = choose_device("auto")
    assert mps.type == "mps" and choose_dtype(mps) == torch.float32
    for optimizer in ("adamw", "muon"):
        elsewhere = build().to("meta")  # neither CPU nor CUDA
        made = make_optimizer(elsewhere, replace(RECIPE, optimizer=optimizer))
        fused = [g["fused"] for g in made.param_groups if "fused" in g]
        assert fused and not any(fused)
    assert choose_compile(mps, torch.float32, "auto", 1e30) is False
    with pytest.raises(ValueError, match=r"compile='on'.*'mps'"):
        choose_compile(mps, torch.float32, "on")


def test_e04_mps_keeps_its_random_state(tmp_path, monkeypatch):
    state = torch.arange(5, dtype=torch.uint8)
    seen = []
    monkeypatch.setattr(torch.mps, "set_rng_state", seen.append)
    rng = {"cpu": torch.get_rng_state(), "mps": state}
    module.restore_rng(rng, torch.device("mps"))
    assert len(seen) == 1 and torch.equal(seen[0], state)


def test_e04_cuda_states_go_to_their_devices_and_only_to_those(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    seen = []
    monkeypatch.setattr(torch.cuda, "set_rng_state", lambda s, i: seen.append((i, s)))
    states = [torch.full((3,), i, dtype=torch.uint8) for i in (7, 8)]
    rng = {"cpu": torch.get_rng_state(), "cuda": states}
    module.restore_rng(rng, torch.device("cuda"))
    assert [i for i, _ in seen] == [0] and torch.equal(seen[0][1], states[0])
    with pytest.warns(UserWarning, match="no random state for cuda"):
        module.restore_rng({"cpu": rng["cpu"]}, torch.device("cuda"))


def test_f02_selfcheck_is_silent_on_the_cpu_and_warns_of_a_wrong_device(monkeypatch):
    state = torch.get_rng_state()
    assert selfcheck("cpu") == 0.0
    assert torch.equal(torch.get_rng_state(), state)
    forward, calls = GPT.forward, []

    def wrong_for_large_batches(self, tokens):
        calls.append(self)
        there = self is calls[0]  # the device's model is asked first
        return forward(self, tokens) + (0.1 if there and len(tokens) > 8 else 0.0)

    monkeypatch.setattr(GPT, "forward", wrong_for_large_batches)
    with pytest.warns(UserWarning, match=r"cpu differ from the CPU's by 0\.1.*torch"):
        assert selfcheck("cpu") == pytest.approx(0.1, abs=1e-3)


def test_f02_what_is_loaded_is_contiguous(tmp_path):
    save_weights(tmp_path / "model.safetensors", build())
    loaded = load_model(tmp_path / "model.safetensors")
    assert all(p.is_contiguous() for p in loaded.parameters())


def test_f04_a_bfloat16_file_becomes_a_float32_model_exactly(tmp_path):
    model = build().bfloat16()
    save_weights(tmp_path / "model.safetensors", model)
    loaded = load_model(tmp_path / "model.safetensors")
    for name, weight in model.state_dict().items():
        mine = loaded.state_dict()[name]
        assert mine.dtype == torch.float32 and torch.equal(mine, weight.float())
    assert loaded(VAL[None, :8]).isfinite().all()
    with torch.no_grad():
        assert model.eval()(VAL[None, :8]).dtype == torch.bfloat16  # masks are no bf16
    save_weights(tmp_path / "again.safetensors", loaded.bfloat16())
    first, again = (tmp_path / f"{name}.safetensors" for name in ("model", "again"))
    assert first.read_bytes() == again.read_bytes()


# torch.compile


CPU = torch.device("cpu")


@pytest.fixture
def quick_compile(monkeypatch):
    """torch.compile without building kernels: what is tested is who calls it."""
    calls = []
    real = torch.compile

    def quick(function, **options):
        calls.append(function)
        return real(function, backend="aot_eager", **options)

    monkeypatch.setattr(torch, "compile", quick)
    yield calls
    torch._dynamo.reset()


def test_compile_where_it_pays_and_only_there(monkeypatch):
    monkeypatch.setattr(module, "_compiler_lacks", lambda device: "")
    float32, bfloat16 = torch.float32, torch.bfloat16
    assert not choose_compile(CPU, float32, "off", 1e30)
    assert choose_compile(CPU, float32, "on", 0.0)
    for work, dtype, expected in (
        (1e13, bfloat16, False),
        (3e13, bfloat16, True),
        (3e13, float32, False),
        (5e13, float32, True),
    ):
        assert choose_compile(CPU, dtype, "auto", work) is expected
    monkeypatch.setattr(module, "_compiler_lacks", lambda device: "no compiler")
    assert choose_compile(CPU, bfloat16, "auto", 1e30) is False
    with pytest.raises(ValueError, match=r"compile='on'.*no compiler"):
        choose_compile(CPU, bfloat16, "on")


def test_the_runs_operations_decide_for_auto(monkeypatch):
    """`best` is too short to be compiled; `cpu-long` is not."""
    monkeypatch.setattr(module, "_compiler_lacks", lambda device: "")
    found = {}
    for name in ("best", "cpu-long"):
        config, training = recipe(name, 65, device="cpu", dtype="float32")
        data = Batches(IDS, training.batch_size, config.context)
        training = replace(training, compile="auto")
        run = module._Run(GPT(config), data, training, None, None)
        found[name] = run.compiled
        tokens = training.steps * training.batch_size * config.context
        weights = sum(p.numel() for p in run.model.parameters())
        assert run.operations() == 6 * tokens * weights
    assert found == {"best": False, "cpu-long": True}


def test_what_compiling_lacks_is_said(monkeypatch):
    monkeypatch.setattr(module.shutil, "which", lambda name: None)
    assert "C++ compiler" in module._compiler_lacks(CPU)
    monkeypatch.setattr(module.importlib.util, "find_spec", lambda name: None)
    assert "triton" in module._compiler_lacks(torch.device("cuda"))
    monkeypatch.undo()
    monkeypatch.setattr(module.shutil, "which", lambda name: name)

    def refuse(function):
        raise RuntimeError("Dynamo is not supported on this Python")

    monkeypatch.setattr(torch, "compile", refuse)
    assert "this Python" in module._compiler_lacks(CPU)


@pytest.mark.parametrize("words", [("on", "off"), ("off", "on"), ("on", "on")])
def test_e02_compiled_and_plain_runs_go_on_from_each_other(
    tmp_path, quick_compile, words
):
    """Files have plain names; losses are those of the plain run, to rounding."""
    config = replace(MODEL, dropout=0.0)
    plain = train(build(config), batches(), RECIPE)
    rows = []
    for word, until in zip(words, (10, None)):
        recipe = replace(RECIPE, compile=word)
        again = bool(rows)
        model = build(config, seed=5 if again else 0)
        rows += train(
            model, batches(), recipe, folder=tmp_path, resume=again, until=until
        )
        names = safetensors.torch.load_file(last(tmp_path).with_suffix(".safetensors"))
        assert names.keys() == {name for name, _ in build(config).named_parameters()}
        assert torch.load(last(tmp_path))["compiled"] is (word == "on")
    assert summed_loss in quick_compile
    for one, other in zip(rows, plain):
        assert one["loss"] == pytest.approx(other["loss"], abs=1e-5)


def test_auto_goes_on_compiled_or_not_as_the_run_began(
    tmp_path, quick_compile, monkeypatch
):
    auto = replace(RECIPE, compile="auto")
    monkeypatch.setattr(module, "COMPILE_FROM", {("cpu", "float32"): 0.0})
    train(build(), batches(), auto, folder=tmp_path, until=2)
    monkeypatch.setattr(module, "COMPILE_FROM", {("cpu", "float32"): 1e30})
    run = module._Run(build(), batches(), auto, tmp_path, None)
    assert not run.compiled
    run.restore()
    assert run.compiled


@pytest.mark.skipif(module._compiler_lacks(CPU) != "", reason="needs a C++ compiler")
def test_e01_f06_a_compiled_run_resumes_bit_for_bit(tmp_path):
    """Real kernels, with dropout, whose masks differ from those of a plain run."""
    small = replace(MODEL, n_layers=1)
    recipe = replace(RECIPE, compile="on", optimizer="muon")
    whole = build(small)
    expected = train(whole, batches(), recipe, val=VAL)
    rows = []
    for seed, until in ((0, 10), (9, None)):
        half = build(small, seed)
        torch.manual_seed(77 + seed)
        rows += train(
            half,
            batches(),
            recipe,
            val=VAL,
            folder=tmp_path,
            resume=bool(rows),
            until=until,
        )
    assert without_speed(rows) == without_speed(expected)
    assert same(half.state_dict(), whole.state_dict())
    assert load_model(last(tmp_path))(VAL[None, :8]).isfinite().all()  # plain names


@pytest.mark.skipif(module._compiler_lacks(CPU) != "", reason="needs a C++ compiler")
def test_f06_compiled_logits_are_those_of_the_model():
    model = build(replace(MODEL, n_layers=1)).eval()
    with torch.no_grad():
        compiled = torch.compile(model, fullgraph=True, dynamic=False)
        gap = (compiled(VAL[None, :8]) - model(VAL[None, :8])).abs().max()
    assert gap < 1e-4


# float16 and its scaler


@pytest.fixture
def float16_on_cpu(monkeypatch):
    """The CPU, taken for a device that trains in float16: the scaler is CUDA's own."""
    monkeypatch.setitem(module.SUPPORTED, "cpu", ("float32", "bfloat16", "float16"))


def test_f03_the_scaler_is_on_for_float16_alone(float16_on_cpu):
    for dtype in ("float32", "bfloat16", "float16"):
        run = module._Run(build(), batches(), replace(RECIPE, dtype=dtype), None, None)
        assert run.scaler.is_enabled() is (dtype == "float16")


@pytest.mark.parametrize("kind", ["adamw", "muon"])
def test_e05_the_loss_scale_survives_a_resume(tmp_path, float16_on_cpu, kind):
    """The scale that was found is taken up again, not the initial 65536."""
    recipe = replace(RECIPE, dtype="float16", optimizer=kind)
    whole = build()
    run = module._Run(whole, batches(), recipe, tmp_path, None)
    run.scaler = torch.amp.GradScaler("cpu", init_scale=256.0, growth_interval=4)
    torch.manual_seed(1)
    for _ in range(6):
        run.update(watch=True)
    run.save()
    assert run.scaler.get_scale() == 512.0
    rest = [run.update(watch=True)["loss"] for _ in range(4)]
    again = module._Run(build(seed=9), batches(), recipe, tmp_path, None)
    torch.manual_seed(1234)
    again.restore()
    assert again.scaler.get_scale() == 512.0
    assert [again.update(watch=True)["loss"] for _ in range(4)] == rest
    assert same(again.model.state_dict(), whole.state_dict())


def test_e05_an_overflow_skips_the_step_and_halves_the_scale(float16_on_cpu):
    run = module._Run(build(), batches(), replace(RECIPE, dtype="float16"), None, None)
    run.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**100)
    before = {k: v.clone() for k, v in run.model.state_dict().items()}
    record = run.update(watch=True)
    assert same(run.model.state_dict(), before) and run.scaler.get_scale() == 2.0**99
    assert record["step"] == 1  # the schedule goes by steps tried, so it cannot drift


# optimizer and gradient


def test_matrices_decay_and_vectors_do_not():
    model = build()
    decaying, rest = (group["params"] for group in decay_groups(model, 0.1))
    assert [g["weight_decay"] for g in decay_groups(model, 0.1)] == [0.1, 0.0]
    names = {id(p): name for name, p in model.named_parameters()}
    assert all(names[id(p)].endswith("bias") or "norm" in names[id(p)] for p in rest)
    assert not any("norm" in names[id(p)] for p in decaying)
    assert len(decaying) + len(rest) == len(names)
    assert make_optimizer(model, RECIPE).defaults["fused"] is True


@pytest.mark.parametrize("shape", [(3, 16, 24), (2, 24, 16), (1, 8, 8)])
def test_orthogonalize_keeps_directions_and_evens_out_values(shape):
    """formula: muon-intro. Against the singular value decomposition, in float64."""
    torch.manual_seed(0)
    matrices = torch.randn(shape, dtype=torch.float64)
    a, b, c = 3.4445, -4.775, 2.0315
    got = orthogonalize(matrices, dtype=torch.float64)
    for matrix, turned in zip(matrices, got):
        U, S, Vh = torch.linalg.svd(matrix, full_matrices=False)
        values = (S / matrix.norm()).tolist()
        for _ in range(5):
            values = [a * v + b * v**3 + c * v**5 for v in values]
        expected = U @ torch.tensor(values, dtype=torch.float64).diag() @ Vh
        torch.testing.assert_close(turned, expected, rtol=0, atol=1e-9)
    assert orthogonalize(matrices.float()).dtype == torch.float32
    assert not orthogonalize(torch.zeros(1, 4, 3)).any()  # and not NaN


def gradients(shapes, steps=4):
    torch.manual_seed(1)
    return [[torch.randn(shape) for shape in shapes] for _ in range(steps)]


def moved(optimizer, parameters, all_gradients):
    for some in all_gradients:
        for p, g in zip(parameters, some):
            p.grad = g.clone()
        optimizer.step()
    return [p.detach() for p in parameters]


SHAPES = ((6, 4), (4, 6), (6, 4), (5, 5))


@pytest.mark.skipif(not hasattr(torch.optim, "Muon"), reason="torch has it from 2.9 on")
def test_muon_equals_torchs():
    starts = [torch.randn(shape) for shape in SHAPES]
    results = []
    for make in (lambda p, **o: Muon(p, dtype=torch.bfloat16, **o), torch.optim.Muon):
        parameters = [torch.nn.Parameter(start.clone()) for start in starts]
        optimizer = make(parameters, lr=0.1, weight_decay=0.2)
        results.append(moved(optimizer, parameters, gradients(SHAPES)))
    for ours, theirs in zip(*results):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-3)  # bfloat16


def test_muon_by_the_formula_in_float64():
    """formula: muon-intro, with the polynomial in place of the decomposition."""
    lr, mu, decay = 0.1, 0.95, 0.2
    start = torch.randn(6, 4, dtype=torch.float64)
    p = torch.nn.Parameter(start.clone())
    optimizer = Muon([p], lr=lr, momentum=mu, weight_decay=decay, dtype=torch.float64)
    theta, m = start, torch.zeros_like(start)
    for (gradient,) in gradients(((6, 4),)):
        g = gradient.double()
        m = mu * m + (1 - mu) * g
        U, S, Vh = torch.linalg.svd((1 - mu) * g + mu * m, full_matrices=False)
        S = S / S.norm()
        for _ in range(5):
            S = 3.4445 * S - 4.775 * S**3 + 2.0315 * S**5
        theta = theta - lr * decay * theta - lr * math.sqrt(6 / 4) * U @ S.diag() @ Vh
        p.grad = g
        optimizer.step()
    torch.testing.assert_close(p.detach(), theta, rtol=0, atol=1e-9)


def test_muon_gets_the_matrices_of_the_blocks_and_adamw_the_rest():
    model = build(replace(MODEL, tie_weights=False))
    optimizer = make_optimizer(model, replace(RECIPE, optimizer="muon", muon_lr=0.03))
    assert isinstance(optimizer, Optimizers)
    names = {id(p): name for name, p in model.named_parameters()}
    muon, tables, vectors = (
        {names[id(p)] for p in group["params"]} for group in optimizer.param_groups
    )
    assert tables == {"tok_emb.weight", "pos_emb.weight", "head.weight"}
    assert all(name.startswith("blocks.") and ".weight" in name for name in muon)
    assert len(muon) == 2 * 4 and len(muon | tables | vectors) == len(names)
    assert [g["peak"] for g in optimizer.param_groups] == [0.03, 0.01, 0.01]
    with pytest.raises(ValueError, match=r"matrices.*\(16,\).*AdamW"):
        Muon([torch.nn.Parameter(torch.ones(16))])


def test_muons_rate_follows_the_schedule_of_the_run(monkeypatch):
    config = replace(RECIPE, optimizer="muon", muon_lr=0.05)
    seen = []
    step = Optimizers.step
    monkeypatch.setattr(
        Optimizers,
        "step",
        lambda self: (seen.append([g["lr"] for g in self.param_groups]), step(self)),
    )
    rows = train(build(), batches(), config)
    for row, (muon, tables, vectors) in zip(rows, seen):
        assert tables == vectors == row["lr"]
        assert muon == pytest.approx(5 * row["lr"])


def test_muon_iterates_in_the_dtype_of_the_run():
    config = replace(RECIPE, optimizer="muon")
    for dtype in (torch.float32, torch.bfloat16):
        assert make_optimizer(build(), config, dtype).parts[0].dtype is dtype


def test_adamw_moves_weights_by_the_formula():
    """formula: optimizer-intro, in float64, through the optimizer of a run."""
    model = build().double()
    optimizer = make_optimizer(model, RECIPE)
    p, decay, eps = model.blocks[0].mlp.up.weight, RECIPE.weight_decay, 1e-8
    (b1, b2), lr = RECIPE.betas, RECIPE.lr
    theta, m, v = p.detach().clone(), torch.zeros_like(p), torch.zeros_like(p)
    torch.manual_seed(2)
    for k in (1, 2, 3):
        g = torch.randn_like(p)
        m, v = b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * g**2
        theta = theta - lr * decay * theta
        theta = theta - lr * (m / (1 - b1**k)) / ((v / (1 - b2**k)).sqrt() + eps)
        p.grad = g
        optimizer.step()
    torch.testing.assert_close(p.detach(), theta, rtol=0, atol=1e-12)


def unequal() -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Two batches of one row, the second with two targets that count."""
    x, y = torch.randint(11, (2, 2, 8), generator=torch.Generator().manual_seed(3))
    y[1, 2:] = IGNORE
    return [(x[:1], y[:1]), (x[1:], y[1:])]


def gradient(model: GPT) -> torch.Tensor:
    return torch.cat([p.grad.flatten() for p in model.parameters()])


def test_e10_accumulation_is_the_big_batch():
    """formula: gradient-intro."""
    parts = unequal()
    model = build(replace(MODEL, dropout=0.0)).double()
    x, y = (torch.cat(pair) for pair in zip(*parts))
    whole = next_token_loss(model(x), y)
    whole.backward()
    expected = gradient(model)
    model.zero_grad()
    loss, n_tokens = accumulate_gradient(model, iter(parts), 2)
    assert (gradient(model) - expected).abs().max() < 1e-12
    assert loss.item() == pytest.approx(whole.item(), abs=1e-6) and n_tokens == 16

    model.zero_grad()  # a mean of means is something else
    for part in parts:
        (next_token_loss(model(part[0]), part[1]) / 2).backward()
    assert (gradient(model) - expected).abs().max() > 1e-4


def test_d10_a_batch_without_targets_changes_nothing():
    parts = unequal()
    empty = (parts[0][0], torch.full((1, 8), IGNORE))
    model = build(replace(MODEL, dropout=0.0)).double()
    accumulate_gradient(model, iter([parts[0]]), 1)
    expected = gradient(model)
    model.zero_grad()
    accumulate_gradient(model, iter([parts[0], empty]), 2)
    assert (gradient(model) - expected).abs().max() < 1e-12
    model.zero_grad()
    loss, _ = accumulate_gradient(model, iter([empty]), 1)
    assert loss.item() == 0.0 and not gradient(model).any()


def test_batches_that_end_are_an_error():
    with pytest.raises(ValueError, match="2 needed, 1 left"):
        accumulate_gradient(build(), iter(unequal()[:1]), 2)


def test_b03_ids_outside_the_vocabulary_stop_training_before_it_begins():
    ids = IDS.clone()
    ids[300] = 11
    with pytest.raises(ValueError, match=r"11.*vocab_size=11"):
        train(build(), batches(ids=ids), RECIPE)


def test_clipping_shortens_long_gradients_only():
    """formula: accumulate-answer: g times min(1, c / its length)."""
    steps = replace(RECIPE, steps=1, warmup=0)
    free = train(build(), batches(), replace(steps, clip=None))[0]["grad_norm"]
    model = build()
    assert train(model, batches(), replace(steps, clip=1e-3))[0]["grad_norm"] == free
    # AdamW is blind to the gradient's length, so look at the gradient itself.
    accumulate_gradient(model, batches())
    g = gradient(model)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1e-3)
    expected = g * min(1.0, 1e-3 / g.norm().item())
    torch.testing.assert_close(gradient(model), expected, rtol=1e-3, atol=1e-12)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # short enough: stays
    torch.testing.assert_close(gradient(model), expected, rtol=1e-3, atol=1e-12)


# training


def test_a_small_model_learns_a_pattern():
    recipe = replace(RECIPE, steps=200, eval_every=200)
    rows = train(build(), batches(), recipe, val=VAL)
    assert rows[0]["loss"] > 2.2 and rows[-1]["val_loss"] < 1.0
    assert [row["step"] for row in rows] == list(range(1, 201))
    assert set(rows[0]) == {"step", "loss", "lr", "grad_norm", "tokens_per_s"}


def test_records_say_what_happened_and_nothing_is_printed(capsys):
    seen = []
    recipe = replace(RECIPE, record_every=4, eval_every=10)
    rows = train(build(), batches(), recipe, val=VAL, on_record=seen.append)
    assert [row["step"] for row in rows] == [4, 8, 10, 12, 16, 20] and seen == rows
    assert [row["step"] for row in rows if "val_loss" in row] == [10, 20]
    assert rows[0]["lr"] == learning_rate(3, recipe)
    assert capsys.readouterr() == ("", "")


def test_what_is_recorded_does_not_change_the_run():
    every, some = build(), build()
    train(every, batches(), RECIPE, val=VAL)
    train(some, batches(), replace(RECIPE, record_every=7, eval_every=20))
    assert same(every.state_dict(), some.state_dict())


def test_same_seed_same_losses_and_another_seed_others():
    first, second, other = (
        [row["loss"] for row in train(build(), batches(r), r)]
        for r in (RECIPE, RECIPE, replace(RECIPE, seed=2))
    )
    assert first == second and first != other


# evaluation


@pytest.mark.parametrize("n", [2, 8, 9, 10, 17, 33])
def test_evaluate_counts_every_target_once(n):
    model, ids = build().double().eval(), IDS[:n]
    total = 0.0
    for start in range(0, n - 1, 8):
        x, y = ids[start : n - 1][:8], ids[start + 1 : n][:8]
        total += next_token_loss(model(x[None]), y[None], "sum").item()
    for batch_size in (1, 3, 64):
        loss = evaluate(model, ids, batch_size)
        assert loss == pytest.approx(total / (n - 1), abs=1e-12)


def test_evaluate_refuses_what_has_no_target():
    for ids in (IDS[:1], IDS[None]):
        with pytest.raises(ValueError, match=r"\(N,\)"):
            evaluate(build(), ids)


def test_c13_evaluate_restores_every_modules_mode_and_all_random_state(monkeypatch):
    model = build()
    model.train()
    model.blocks[1].eval()
    modes = [m.training for m in model.modules()]
    before = torch.get_rng_state()
    first, second = evaluate(model, VAL), evaluate(model, VAL)
    assert first == second  # dropout was off
    assert [m.training for m in model.modules()] == modes
    assert torch.equal(torch.get_rng_state(), before)
    assert all(p.grad is None and p.requires_grad for p in model.parameters())

    def fail(*args):
        raise RuntimeError("in the middle")

    monkeypatch.setattr(module, "next_token_loss", fail)
    with pytest.raises(RuntimeError, match="in the middle"):
        evaluate(model, VAL)
    assert [m.training for m in model.modules()] == modes


# resume


@pytest.mark.parametrize("accumulate", [1, 3])
@pytest.mark.parametrize("stop", [10, 13])
@pytest.mark.parametrize("kind", ["adamw", "muon"])
def test_e01_e07_a_resumed_run_is_the_uninterrupted_one(
    tmp_path, accumulate, stop, kind
):
    """With dropout, in the middle of an epoch, with a new model and new batches."""
    recipe = replace(RECIPE, accumulate=accumulate, optimizer=kind)
    whole, data = build(), batches()
    expected = train(whole, data, recipe, val=VAL, folder=tmp_path / "whole")
    halves = []
    for seed, until in ((0, stop), (99, None)):
        half, more = build(seed=seed), batches()
        torch.manual_seed(1234 + seed)  # whatever happened in between
        halves += train(
            half,
            more,
            recipe,
            val=VAL,
            folder=tmp_path / "half",
            resume=bool(halves),
            until=until,
        )
    here = without_speed(halves)
    here[stop - 1].pop("val_loss")  # a stop is an occasion to look
    there = without_speed(expected)
    there[stop - 1].pop("val_loss", None)
    assert here == there
    a, b = (load_checkpoint(last(tmp_path / run)) for run in ("whole", "half"))
    assert same(a, b) and a["step"] == 20
    assert same(next(data), next(more))
    rows = (tmp_path / "half" / "records.jsonl").read_text("utf-8").splitlines()
    assert [json.loads(row)["step"] for row in rows] == list(range(1, 21))


def test_e01_in_a_new_process(tmp_path):
    code = f"""
import sys; sys.path[:0] = {sys.path!r}
from test_train import *
train(build(seed=5), batches(), RECIPE, val=VAL, folder={str(tmp_path)!r}, resume=True)
"""
    train(build(), batches(), RECIPE, val=VAL, folder=tmp_path, until=10)
    root = Path(__file__).resolve().parent.parent
    subprocess.run([sys.executable, "-c", code], check=True, cwd=root)
    whole = build()
    train(whole, batches(), RECIPE, val=VAL)
    assert same(load_checkpoint(last(tmp_path))["model"], whole.state_dict())


def test_records_beyond_the_checkpoint_are_dropped_on_resume(tmp_path):
    train(build(), batches(), RECIPE, folder=tmp_path, until=10)
    with open(tmp_path / "records.jsonl", "a", encoding="utf-8") as file:
        file.write(json.dumps({"step": 11, "loss": 0.0}) + "\n")
    train(build(), batches(), RECIPE, folder=tmp_path, resume=True)
    rows = (tmp_path / "records.jsonl").read_text("utf-8").splitlines()
    assert [json.loads(row)["step"] for row in rows] == list(range(1, 21))


@pytest.mark.skipif(sys.platform == "win32", reason="needs POSIX signals")
@pytest.mark.parametrize("when", ["in the forward pass", "when a record is shown"])
def test_ctrl_c_finishes_the_step_and_leaves_a_checkpoint(tmp_path, when):
    model, before = build(), signal.getsignal(signal.SIGINT)
    calls = []

    def press(*args):
        calls.append(args)
        if len(calls) == 7:
            os.kill(os.getpid(), signal.SIGINT)

    forward = when == "in the forward pass"
    if forward:
        model.blocks[0].register_forward_hook(press)
    show = None if forward else press
    with pytest.raises(KeyboardInterrupt):
        train(model, batches(), RECIPE, folder=tmp_path, on_record=show)
    assert signal.getsignal(signal.SIGINT) is before
    assert load_checkpoint(last(tmp_path))["step"] == 7
    model, whole = build(), build()
    train(model, batches(), RECIPE, folder=tmp_path, resume=True)
    train(whole, batches(), RECIPE)
    assert same(model.state_dict(), whole.state_dict())


def test_an_existing_run_is_not_overwritten(tmp_path):
    train(build(), batches(), RECIPE, folder=tmp_path, until=2)
    with pytest.raises(FileExistsError, match="resume=True"):
        train(build(), batches(), RECIPE, folder=tmp_path)
    with pytest.raises(FileNotFoundError, match=r"nothing to resume.*new"):
        train(build(), batches(), RECIPE, folder=tmp_path / "new", resume=True)
    with pytest.raises(ValueError, match="folder"):
        train(build(), batches(), RECIPE, resume=True)


def test_resume_refuses_another_recipe_model_or_text(tmp_path):
    train(build(), batches(), RECIPE, folder=tmp_path, until=2)
    go = {"folder": tmp_path, "resume": True}
    with pytest.raises(ValueError, match=r"lr=0\.01, now 0\.02"):
        train(build(), batches(), replace(RECIPE, lr=0.02), **go)
    with pytest.raises(ValueError, match=r"dropout=0\.1, now 0\.0"):
        train(build(replace(MODEL, dropout=0.0)), batches(), RECIPE, **go)
    with pytest.raises(ValueError, match="tokens=333"):
        train(build(), batches(ids=IDS[:300]), RECIPE, **go)
    with pytest.raises(ValueError, match=r"batch_size=4.*batch_size=8"):
        train(build(), batches(), replace(RECIPE, batch_size=8))
    longer = train(build(), batches(), replace(RECIPE, steps=25), **go)
    assert longer[-1]["step"] == 25


# checkpoints


def test_e03_checkpoints_are_plain_data(tmp_path):
    train(build(), batches(), RECIPE, folder=tmp_path, until=3)
    plain = torch.load(last(tmp_path))  # weights_only is torch's default
    assert GPTConfig.from_dict(plain["model_config"]) == MODEL
    assert TrainConfig.from_dict(plain["train_config"]) == RECIPE

    class Hostile:
        def __reduce__(self):
            return (os.system, ("echo this must not run",))

    torch.save({"model": Hostile()}, tmp_path / "hostile.pt")
    with pytest.raises(ValueError, match=r"hostile\.pt.*refused"):
        load_checkpoint(tmp_path / "hostile.pt")
    root = Path(module.__file__).parent.parent
    for path in [*root.glob("minigpt/**/*.py"), *root.glob("chapters/*.ipynb")]:
        assert "weights_only=False" not in path.read_text("utf-8"), path


def test_weights_are_what_other_tools_read(tmp_path):
    """Plain safetensors, with the config in its header."""
    model = build().eval()
    save_weights(tmp_path / "model.safetensors", model, note="hello")
    with safetensors.safe_open(tmp_path / "model.safetensors", "pt") as file:
        header = file.metadata()
        names = set(file.keys())
    assert GPTConfig.from_json(header["model_config"]) == MODEL
    assert names == {name for name, _ in model.named_parameters()}
    loaded = load_checkpoint(tmp_path / "model.safetensors")
    assert loaded["note"] == "hello"
    other = load_model(tmp_path / "model.safetensors")
    assert torch.equal(other(VAL[None, :8]), model(VAL[None, :8]))


def test_e13_tied_weights_are_stored_once_and_a_conflict_is_named(tmp_path):
    model, path = build(), tmp_path / "model.safetensors"
    save_weights(path, model)
    weights = safetensors.torch.load_file(path)
    assert "head.weight" not in weights
    header = {"model_config": json.dumps(MODEL.to_dict())}
    weights["head.weight"] = weights["tok_emb.weight"].clone()
    safetensors.torch.save_file(weights, path, header)
    assert load_model(path).head.weight is not None
    weights["head.weight"] += 1
    safetensors.torch.save_file(weights, path, header)
    with pytest.raises(ValueError, match=r"head\.weight differs.*tie_weights"):
        load_model(path)
    untied = build(replace(MODEL, tie_weights=False))
    save_weights(path, untied)
    assert torch.equal(load_model(path).head.weight, untied.head.weight)
    weights = safetensors.torch.load_file(path)
    del weights["head.weight"]
    header = {"model_config": json.dumps(untied.config.to_dict())}
    safetensors.torch.save_file(weights, path, header)
    with pytest.raises(ValueError, match=r"head\.weight"):
        load_model(path)


def test_e02_wrapper_prefixes_never_reach_a_file_and_are_understood(tmp_path):
    class Wrapper(torch.nn.Module):
        def __init__(self, inner):
            super().__init__()
            self.module = inner

    model = build().eval()
    compiled = torch.compile(model, backend="eager")
    assert unwrap(Wrapper(compiled)) is model
    save_checkpoint(tmp_path / "clean.pt", Wrapper(compiled))
    weights = safetensors.torch.load_file(tmp_path / "clean.safetensors")
    assert weights.keys() == {name for name, _ in model.named_parameters()}

    raw = {f"module._orig_mod.{k}": v for k, v in weights.items()}
    header = {"model_config": json.dumps(MODEL.to_dict())}
    safetensors.torch.save_file(raw, tmp_path / "raw.safetensors", header)
    for name in ("clean.pt", "clean.safetensors", "raw.safetensors"):
        assert torch.equal(
            load_model(tmp_path / name)(VAL[None, :8]), model(VAL[None, :8])
        )


def test_e02_missing_parts_are_named(tmp_path):
    train(build(), batches(), RECIPE, folder=tmp_path, until=3)
    path = last(tmp_path)
    state = torch.load(path)
    optimizer = state.pop("optimizer")
    torch.save(state, path)
    assert load_model(path)(VAL[None, :8]).shape == (1, 8, 11)
    with pytest.raises(ValueError, match=rf"no optimizer state in .*{path.name}"):
        train(build(), batches(), RECIPE, folder=tmp_path, resume=True)

    beside = path.with_suffix(".safetensors")
    weights = safetensors.torch.load_file(beside)
    weights["blocks.0.attn.qkv.waight"] = weights.pop("blocks.0.attn.qkv.weight")
    header = {"model_config": json.dumps(MODEL.to_dict())}
    safetensors.torch.save_file(weights, beside, header)
    state["optimizer"] = optimizer
    state["weights"]["sha256"] = hashlib.sha256(beside.read_bytes()).hexdigest()
    torch.save(state, path)
    with pytest.raises(ValueError, match=r"does not fit[\s\S]*qkv\.weight"):
        load_model(path)
    with pytest.raises(ValueError, match=r"qkv\.weight"):
        train(build(), batches(), RECIPE, folder=tmp_path, resume=True)


def test_e04_random_state_stays_on_the_cpu(tmp_path):
    train(build(), batches(), RECIPE, folder=tmp_path, until=3)
    expected = torch.rand(3)  # the draws that would come next
    checkpoint = load_checkpoint(last(tmp_path), map_location="cpu")
    assert checkpoint["rng"]["cpu"].dtype == torch.uint8
    torch.set_rng_state(checkpoint["rng"]["cpu"])
    assert torch.equal(torch.rand(3), expected)

    state = torch.load(last(tmp_path))
    state["rng"]["cuda"] = [state["rng"]["cpu"]]  # as if it came from a GPU
    torch.save(state, last(tmp_path))
    with pytest.warns(UserWarning, match="no random state for cpu|other numbers"):
        train(build(), batches(), RECIPE, folder=tmp_path, resume=True)


def test_e05_the_optimizers_kernel_is_this_devices_and_not_the_files(tmp_path):
    train(build(), batches(), RECIPE, folder=tmp_path, until=3)
    state = torch.load(last(tmp_path))
    for group in state["optimizer"]["param_groups"]:
        group["fused"] = None  # as from a device without a fused kernel
    torch.save(state, last(tmp_path))
    run = module._Run(build(), batches(), RECIPE, tmp_path, None)
    run.restore()
    assert [group["fused"] for group in run.optimizer.param_groups] == [True, True]


def test_f03_auto_goes_on_in_the_dtype_of_the_run(tmp_path, monkeypatch):
    """A clock that says otherwise on the second day does not change a run."""
    wide = replace(MODEL, d_model=128)
    recipe = replace(RECIPE, optimizer="muon")
    monkeypatch.setattr(module, "bfloat16_pays", lambda: True)
    train(build(wide), batches(), recipe, folder=tmp_path, until=2)
    assert torch.load(last(tmp_path))["dtype"] == "bfloat16"
    monkeypatch.setattr(module, "bfloat16_pays", lambda: False)
    run = module._Run(build(wide), batches(), recipe, tmp_path, None)
    assert run.dtype == torch.float32
    run.restore()
    assert run.dtype == run.optimizer.parts[0].dtype == torch.bfloat16


@pytest.mark.parametrize("ending", [".safetensors", ".pt"])
def test_e08_a_failed_save_leaves_the_old_file(tmp_path, monkeypatch, ending):
    path = tmp_path / f"model{ending}"
    module._write(path, b"old")

    def fail(descriptor):
        raise OSError("no space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="no space"):
        module._write(path, b"new")
    assert path.read_bytes() == b"old"
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def test_e08_the_new_file_comes_into_place_in_one_move(tmp_path, monkeypatch):
    path = tmp_path / "model.pt"
    module._write(path, b"old")

    def fail(source, target):
        assert source.read_bytes() == b"new"  # complete before it is moved
        raise OSError("killed just before the move")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="killed"):
        module._write(path, b"new")
    assert path.read_bytes() == b"old"
    assert [file.name for file in tmp_path.iterdir()] == ["model.pt"]


def test_e08_a_stop_between_weights_and_state_leaves_the_checkpoint_before(
    tmp_path, monkeypatch
):
    train(build(), batches(), RECIPE, folder=tmp_path, until=5)
    write = module._write

    def killed(path, content):
        if path.suffix == ".pt":
            raise OSError("killed")
        write(path, content)

    monkeypatch.setattr(module, "_write", killed)
    with pytest.raises(OSError):
        train(build(), batches(), RECIPE, folder=tmp_path, resume=True, until=10)
    monkeypatch.undo()
    model, whole = build(seed=9), build()
    train(model, batches(), RECIPE, folder=tmp_path, resume=True)
    train(whole, batches(), RECIPE)
    assert same(model.state_dict(), whole.state_dict())


@pytest.mark.parametrize("ending", [".pt", ".safetensors"])
@pytest.mark.parametrize("share", [0.0, 0.1, 0.9])
def test_e08_a_truncated_file_is_named(tmp_path, share, ending):
    path = tmp_path / f"model{ending}"
    save_checkpoint(tmp_path / "model.pt", build())
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])
    with pytest.raises(DamagedFile, match=rf"model\{ending} is incomplete or damaged"):
        load_checkpoint(tmp_path / "model.pt")


def test_e08_a_single_changed_bit_of_the_weights_is_noticed(tmp_path):
    save_checkpoint(tmp_path / "model.pt", build())
    path = tmp_path / "model.safetensors"
    content = bytearray(path.read_bytes())
    content[-5] ^= 1
    path.write_bytes(content)
    with pytest.raises(DamagedFile, match="sha256"):
        load_checkpoint(tmp_path / "model.pt")
    path.unlink()
    with pytest.raises(DamagedFile, match=r"lost its weights.*model\.safetensors"):
        load_checkpoint(tmp_path / "model.pt")


@pytest.mark.parametrize("ending", [".pt", ".safetensors"])
def test_e08_a_damaged_last_checkpoint_is_named_and_the_one_before_used(
    tmp_path, ending
):
    train(build(), batches(), RECIPE, folder=tmp_path, until=15)
    assert [path.stem for path in checkpoints(tmp_path)] == [
        "step-000010",
        "step-000015",
    ]
    damaged = last(tmp_path).with_suffix(ending)
    damaged.write_bytes(damaged.read_bytes()[:300])
    model, whole = build(seed=9), build()
    with pytest.warns(UserWarning, match=rf"{damaged.name} is incomplete.*before it"):
        rows = train(model, batches(), RECIPE, folder=tmp_path, resume=True)
    assert rows[0]["step"] == 11
    train(whole, batches(), RECIPE)
    assert same(model.state_dict(), whole.state_dict())
    for path in checkpoints(tmp_path):
        path.write_bytes(b"nothing")
    with (
        pytest.raises(DamagedFile, match="no checkpoint in"),
        pytest.warns(UserWarning),
    ):
        train(build(), batches(), RECIPE, folder=tmp_path, resume=True)


def test_going_back_leaves_no_checkpoint_of_the_old_future(tmp_path):
    train(build(), batches(), RECIPE, folder=tmp_path, until=15)
    last(tmp_path).write_bytes(b"")
    with pytest.warns(UserWarning, match="before it"):
        train(build(), batches(), RECIPE, folder=tmp_path, resume=True, until=12)
    assert [path.stem for path in checkpoints(tmp_path)] == [
        "step-000010",
        "step-000012",
    ]


def test_what_is_no_checkpoint_is_said(tmp_path):
    torch.save({"numbers": 1}, tmp_path / "other.pt")
    with pytest.raises(ValueError, match=r"other\.pt is not a checkpoint"):
        load_checkpoint(tmp_path / "other.pt")
    safetensors.torch.save_file({"a": torch.ones(2)}, tmp_path / "other.safetensors")
    with pytest.raises(
        ValueError, match=r"other\.safetensors is not a file of minigpt"
    ):
        load_checkpoint(tmp_path / "other.safetensors")
    for name in ("missing.pt", "missing.safetensors"):
        with pytest.raises(FileNotFoundError):
            load_checkpoint(tmp_path / name)


def test_e08_the_last_state_is_kept_beside_the_best(tmp_path, monkeypatch):
    losses = iter([1.0, 2.0, math.nan, 3.0])
    monkeypatch.setattr(module, "evaluate", lambda model, ids: next(losses))
    train(build(), batches(), RECIPE, val=VAL, folder=tmp_path)
    best = load_checkpoint(tmp_path / "best.safetensors")
    state = load_checkpoint(last(tmp_path))
    assert (best["step"], best["val_loss"]) == (5, 1.0)
    assert (state["step"], state["best"]) == (20, 1.0)


def test_d05_another_tokenizer_is_noticed(tmp_path):
    ours, other = CharTokenizer("abcdefghijk"), CharTokenizer("bcdefghijkl")
    train(build(), batches(), RECIPE, folder=tmp_path, until=2, tokenizer=ours)
    assert load_checkpoint(last(tmp_path), tokenizer=ours)["step"] == 2
    with pytest.raises(ValueError, match=r"another tokenizer.*abcdefghijk"):
        load_checkpoint(last(tmp_path), tokenizer=other)
    with pytest.raises(ValueError, match="another tokenizer"):
        train(build(), batches(), RECIPE, folder=tmp_path, resume=True, tokenizer=other)


# failure


@pytest.mark.parametrize("bad", [math.inf, math.nan])
def test_e11_a_bad_weight_stops_the_run_and_the_last_checkpoint_is_good(tmp_path, bad):
    model = build()

    def break_it(record):
        if record["step"] == 5:
            with torch.no_grad():
                model.blocks[0].mlp.up.weight[0, 0] = bad

    recipe = replace(RECIPE, checkpoint_every=2, eval_every=20)
    with pytest.raises(TrainingDiverged, match=r"step 6: .*step-000004\.pt \(step 4\)"):
        train(model, batches(), recipe, folder=tmp_path, val=VAL, on_record=break_it)
    state = load_checkpoint(last(tmp_path))["model"]
    assert all(value.isfinite().all() for value in state.values())


def test_e11_a_bad_weight_is_never_saved(tmp_path):
    model = build()

    def break_it(record):  # between the update and the checkpoint of the same step
        if record["step"] == 4:
            with torch.no_grad():
                model.pos_emb.weight[0, 0] = math.nan

    recipe = replace(RECIPE, checkpoint_every=2, record_every=4)
    with pytest.raises(TrainingDiverged, match=r"weight.*\(step 2\)"):
        train(model, batches(), recipe, folder=tmp_path, on_record=break_it)
    assert load_checkpoint(last(tmp_path))["step"] == 2


def test_e11_a_huge_learning_rate_is_named(tmp_path):
    recipe = replace(RECIPE, lr=1e30, warmup=0, clip=None)
    with pytest.raises(TrainingDiverged, match=r"step \d+: .*none was written.*1e\+30"):
        train(build(), batches(), recipe)


# the recorded runs


def test_recipes_are_valid_and_changes_go_where_they_belong():
    for name in RECIPES:
        model, training = recipe(name, 65)
        tokens = training.steps * training.batch_size * model.context
        n_parameters = sum(count_by_formula(model).values())
        if name.startswith("gpu"):
            assert n_parameters <= 11e6 and training.compile == "auto"
        elif name == "cpu-long":
            assert n_parameters <= 1.9e6 and model.context == 256
        else:  # the budget of nanoGPT's command
            assert tokens == (898_560 if name == "best-short" else 1_536_000)
            assert n_parameters <= 844_000
    model, training = recipe("best", 65, steps=500, n_layers=2)
    assert (model.n_layers, training.steps) == (2, 500)
    with pytest.raises(ValueError, match="'worst' is unknown; choose nanogpt"):
        recipe("worst", 65)
    with pytest.raises(ValueError, match="n_embd"):
        recipe("best", 65, n_embd=5)


BARS = {  # of the mean
    "plain": 1.76,
    "adamw": 1.74,
    "muon": 1.59,
    "best": 1.545,
    "best-short": 1.67,
    "cpu-long": 1.455,
}


@pytest.mark.parametrize("name", records.RECORDED)
def test_records_are_of_todays_recipes_and_hold_the_bars(name):
    finals = []
    fixed = {"device": "cpu", "dtype": "float32", "compile": "off"}
    for seed in records.RECORDED[name]:
        record = records.read(name, seed)
        model, training = recipe(name, 65, seed=seed, **fixed)
        assert (record.model_config, record.train_config) == (model, training)
        assert len(record.losses) == record.train_config.steps
        assert record.n_parameters <= (1.9e6 if name == "cpu-long" else 844_000)
        assert record.val_steps[-1] == record.train_config.steps
        finals.append(record.final)
    assert sum(finals) / len(finals) <= BARS[name]


def test_the_ablation_is_of_todays_recipe():
    lines = records.ablation()
    for line in lines:
        assert records.CHANGES[line["label"]] == line["changes"]
        assert 1 < line["val_loss"] < 3
    runs = [(label, seed) for label in records.CHANGES for seed in records.SEEDS]
    assert [(line["label"], line["seed"]) for line in lines] == runs


@pytest.mark.parametrize("name", records.RECORDED)
def test_the_first_steps_of_a_record_are_reproduced(name):
    record = records.read(name, records.RECORDED[name][0])
    text = tiny_shakespeare()
    ids, _ = split(torch.tensor(CharTokenizer(text).encode(text)))
    config = record.train_config
    torch.manual_seed(config.seed)
    model = GPT(record.model_config)
    data = Batches(ids, config.batch_size, model.config.context, seed=config.seed)
    rows = train(model, data, config, until=12)
    for row, expected in zip(rows, record.losses):
        assert row["loss"] == pytest.approx(expected, abs=0.02)


def test_the_first_rate_of_a_warm_up_of_ten_steps():
    """quiz: 2"""
    config = TrainConfig(steps=100, warmup=10, lr=0.01)
    assert learning_rate(0, config) == pytest.approx(0.01 * 1 / 11, rel=1e-12)
    assert round(learning_rate(0, config), 4) == 0.0009
    assert learning_rate(9, config) < learning_rate(10, config) == 0.01


def test_parts_of_a_batch_count_by_their_targets():
    """quiz: 3"""
    torch.manual_seed(0)
    model = GPT(replace(MODEL, dropout=0.0)).double()
    x, y = torch.randint(11, (32, 8)), torch.randint(11, (32, 8))

    def gradient(y, weights):
        model.zero_grad()
        for weight, a, b in zip(weights, x.split(8), y.split(8)):
            (weight * next_token_loss(model(a), b)).backward()
        return torch.cat([p.grad.flatten() for p in model.parameters()])

    def whole(y):
        model.zero_grad()
        next_token_loss(model(x), y).backward()
        return torch.cat([p.grad.flatten() for p in model.parameters()])

    torch.testing.assert_close(gradient(y, [1.0] * 4), 4 * whole(y))
    torch.testing.assert_close(gradient(y, [0.25] * 4), whole(y))
    y[:8, 2:] = IGNORE  # the first part has fewer targets that count
    counts = [(part != IGNORE).sum().item() for part in y.split(8)]
    shares = [count / sum(counts) for count in counts]
    torch.testing.assert_close(gradient(y, shares), whole(y))
    off = (gradient(y, [0.25] * 4) - whole(y)).norm() / whole(y).norm()
    assert off > 0.05
