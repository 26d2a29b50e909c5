"""The bars of chapter 12 that need a GPU, all of them in under eight minutes.

    python benchmarks/gpu.py            on CUDA
    python benchmarks/gpu.py --small    everything at tiny size, on the CPU

Four parts, each with a time of its own that it keeps, and each written as soon as it is
done: `checks` (the device computes what the CPU computes; a stopped run goes on bit for
bit; the loss scale of float16 survives a stop), `nanogpt` (its command for a GPU,
restated as a recipe of this book), `ours` (the recipe `gpu`, three seeds) and `speed`
(tokens per second in the shape of GPT-2 with 124 million parameters). The result is
benchmarks/results/gpt_cuda.json, and once more minigpt/book/records/bench_cuda.json,
where the chapter finds it.

The share of peak is tokens per second, times the operations that a token needs, by what
the device could do: 6 N + 12 L D T operations, with N weights without the position
table, L layers, width D and T tokens (Chowdhery et al., 2022, PaLM, appendix B; nanoGPT
counts the same). The peak is the maker's number for dense bfloat16. Where it is not
known, the fastest product of two large matrices that was seen stands in for it.
"""

import argparse
import json
import math
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # for exact resumes

import torch  # noqa: E402
from torch import Tensor, nn  # noqa: E402

from benchmarks.gpt import RECORDS, RESULTS, V, row, show, text  # noqa: E402
from minigpt.gpt import GPT, GPTConfig, preset  # noqa: E402
from minigpt.text import Batches  # noqa: E402
from minigpt.train import (  # noqa: E402
    SUPPORTED,
    TrainConfig,
    accumulate_gradient,
    choose_compile,
    choose_device,
    choose_dtype,
    make_optimizer,
    recipe,
    selfcheck,
    summed_loss,
    train,
)
from tools.recording import replace_text  # noqa: E402

PUBLISHED = 1.4697  # best validation loss, nanoGPT's README, "quick start"
SECONDS = {"checks": 60.0, "nanogpt": 200.0, "ours": 110.0, "speed": 90.0}
PEAK = {  # dense bfloat16, operations per second, from the makers' data sheets
    "H200": 989e12,
    "H100 80GB HBM3": 989e12,
    "A100": 312e12,
    "L4": 121e12,
}
CHECKED = {"context": 64, "n_layers": 2, "n_heads": 2, "d_model": 128}
TINY_MODEL = {"context": 32, "n_layers": 1, "n_heads": 2, "d_model": 32, "d_ff": 64}
TINY_TRAINING = {"batch_size": 4, "steps": 6, "warmup": 2, "eval_every": 3}


class OutOfTime(Exception):
    """A part has used up its seconds."""


class Clock:
    """The seconds of a part."""

    def __init__(self, seconds: float):
        self.begun, self.seconds = time.perf_counter(), seconds

    def spent(self) -> float:
        return time.perf_counter() - self.begun

    def check(self, *_) -> None:
        if self.spent() > self.seconds:
            raise OutOfTime(f"stopped after {self.spent():.0f} s")


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--small", action="store_true", help="tiny, on the CPU")
    parser.add_argument("--parts", nargs="*", choices=list(SECONDS), default=None)
    parser.add_argument("--folder", type=Path, default=RESULTS)
    args = parser.parse_args(argv)
    if not args.small and not torch.cuda.is_available():
        parser.error("there is no CUDA device here: --small runs it all on the CPU")
    device = choose_device("cpu" if args.small else "cuda")
    result = {"machine": machine(device), "small": args.small, "rows": []}
    parts = {"checks": checks, "nanogpt": nanogpt, "ours": ours, "speed": speed}
    for name in args.parts or parts:
        clock = Clock(SECONDS[name])
        try:
            rows = parts[name](device, args.small, clock, result["rows"])
        except Exception as error:  # the other parts can still be measured
            problem = f"{type(error).__name__}: {str(error).splitlines()[0]}"
            rows = [row(f"part {name}", None, None, why=problem)]
        if args.small:  # bars are for the real size
            rows = [line if name == "checks" else unbarred(line) for line in rows]
        result["rows"] += [line | {"part": name} for line in rows]
        print(f"{name}: {clock.spent():.0f} s", flush=True)
        keep(result, args.folder)
    show(result["rows"], result["machine"])
    return 0


def unbarred(line: dict) -> dict:
    return line | {"bar": None, "held": None}


def keep(result: dict, folder: Path) -> None:
    """Write what there is; a small run does not stand for a device."""
    content = json.dumps(result, indent=1) + "\n"
    folder.mkdir(parents=True, exist_ok=True)
    name = "small" if result["small"] else "cuda"
    if folder != RESULTS or not result["small"]:
        replace_text(folder / f"gpt_{name}.json", content)
    if folder == RESULTS and not result["small"]:
        replace_text(RECORDS / "bench_cuda.json", content)


def machine(device: torch.device) -> dict:
    about = {"device": device.type, "torch": torch.__version__.split("+")[0]}
    if device.type == "cuda":
        about["device"] = torch.cuda.get_device_name(device)
        about["cuda"] = torch.version.cuda
    return about | {"python": platform.python_version()}


# checks


def checks(device: torch.device, small: bool, clock: Clock, _: list) -> list[dict]:
    """Does the device compute what the CPU computes, and does a run resume on it?"""
    rows = [row("largest gap of a logit to the CPU", selfcheck(device), 1e-3, True)]
    sizes = TINY_MODEL if small else CHECKED
    for name in ("mini", "llama-mini", "modern-shift"):
        rows.append(step_gap(device, name, sizes))
    rows += resumes(device, sizes, clock)
    rows.append(scaler_resumes(device))
    return rows


def step_gap(device: torch.device, name: str, sizes: dict) -> dict:
    """Losses of ten steps in float32 on the device, against those on the CPU."""
    config = preset(name, V, **sizes)
    training = TrainConfig(steps=10, warmup=5, lr=1e-3, dtype="float32")
    losses = []
    for place in ("cpu", str(device)):
        there = replace(training, device=place)
        losses.append([line["loss"] for line in train(*start(config, place), there)])
    gap = max(abs(a - b) for a, b in zip(*losses))
    return row(f"gap of ten losses to the CPU, {name}", gap, 1e-3, at_most=True)


def start(config: GPTConfig, place: str, seed: int = 0) -> tuple[GPT, Batches]:
    torch.manual_seed(seed)
    ids = (torch.arange(20_000) * 7 + torch.arange(20_000) // 5) % V
    return GPT(config), Batches(ids, 12, config.context, seed=1, device=place)


def resumes(device: torch.device, sizes: dict, clock: Clock) -> list[dict]:
    """10 + 10 steps against 20, with dropout and accumulation, in each dtype."""
    config = preset("modern-shift", V, **sizes, dropout=0.2)
    rows = []
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        for dtype in SUPPORTED[device.type]:
            clock.check()
            training = TrainConfig(
                steps=20,
                warmup=5,
                accumulate=2,
                optimizer="muon",
                eval_every=100,
                device=str(device),
                dtype=dtype,
            )
            gap = resume_gap(config, training)
            what = f"gap of the losses after a resume, {dtype}"
            rows.append(row(what, gap, 0.0, at_most=True))
    finally:
        torch.use_deterministic_algorithms(False)
    return rows


def resume_gap(config: GPTConfig, training: TrainConfig) -> float:
    place = training.device
    whole = train(*start(config, place), training)
    with tempfile.TemporaryDirectory() as folder:
        rows = train(*start(config, place), training, folder=folder, until=10)
        again = start(config, place, seed=9)
        rows += train(*again, training, folder=folder, resume=True)
    return max(abs(a["loss"] - b["loss"]) for a, b in zip(whole, rows))


def scaler_resumes(device: torch.device) -> dict:
    """The loss scale that float16 has found, after a stop by that before it."""
    what = "loss scale after a resume by that before"
    if "float16" not in SUPPORTED[device.type]:
        return row(what, None, 1.0, why=f"no float16 on {device.type}")
    config = preset("mini", V, context=64, n_layers=1, d_model=64)
    training = TrainConfig(steps=20, warmup=5, device=str(device), dtype="float16")
    scales = []
    with tempfile.TemporaryDirectory() as folder:
        for until in (10, 11):
            more = {"folder": folder, "resume": bool(scales), "until": until}
            train(*start(config, training.device), training, **more)
            state = torch.load(Path(folder) / f"step-{until:06d}.pt")
            scales.append(state["scaler"]["scale"])
    return row(what, scales[1] / scales[0], 1.0)


# training


def nanogpt(device: torch.device, small: bool, clock: Clock, _: list) -> list[dict]:
    """nanoGPT's command for a GPU, restated: one seed."""
    run = trained("gpu-nanogpt", 1337, device, small, clock)
    what = f"best loss, nanoGPT's setting restated (its README: {PUBLISHED})"
    return [
        row(what, run["best"], None, at_most=True, why=run["why"]),
        row("seconds for it", run["seconds"], None, at_most=True),
        row("its tokens per second", run["speed"], None),
    ]


def ours(device: torch.device, small: bool, clock: Clock, before: list) -> list[dict]:
    """The recipe `gpu`, as many of three seeds as there is time for."""
    runs = []
    for seed in (11, 12, 13):
        if not runs or clock.spent() + runs[-1]["seconds"] < clock.seconds:
            runs.append(trained("gpu", seed, device, small, clock))
    best = statistics.mean(run["best"] for run in runs)
    seconds = statistics.mean(run["seconds"] for run in runs)
    each = ", ".join(f"{run['best']:.4f}" for run in runs)
    stopped = [run["why"] for run in runs if run["why"]]
    theirs = [r["value"] for r in before if r["what"] == "seconds for it"]
    share = seconds / theirs[0] if theirs and theirs[0] else None
    return [
        row(
            f"best loss, recipe gpu, mean of {len(runs)}",
            best,
            1.445,
            at_most=True,
            why="; ".join([each, *stopped]),
        ),
        row("seconds for it, by those of nanoGPT's setting", share, 0.5, at_most=True),
        row("tokens per second, recipe gpu", runs[0]["speed"], None),
    ]


def trained(
    name: str, seed: int, device: torch.device, small: bool, clock: Clock
) -> dict:
    """Train a recipe until its end or that of the clock; the best loss on the way."""
    changes = TINY_MODEL | TINY_TRAINING if small else {}
    config, training = recipe(name, V, seed=seed, device=str(device), **changes)
    ids, val = text()
    if small:
        ids, val = ids[:5000], val[:500]
    torch.manual_seed(seed)
    model = GPT(config)
    size = training.batch_size, config.context
    batches = Batches(ids, *size, seed=seed, device=device)
    rows: list[dict] = []

    def note(record: dict) -> None:
        rows.append(record)
        clock.check()

    begun, why = time.perf_counter(), ""
    try:
        train(model, batches, training, val=val, on_record=note)
    except OutOfTime as error:
        why = f"{error}, at step {rows[-1]['step']} of {training.steps}"
    seconds = time.perf_counter() - begun
    looks = [line["val_loss"] for line in rows if "val_loss" in line]
    return {
        "best": min(looks, default=math.nan),
        "seconds": seconds,
        "speed": statistics.median(line["tokens_per_s"] for line in rows),
        "why": why,
    }


# speed


def speed(device: torch.device, small: bool, clock: Clock, _: list) -> list[dict]:
    """Steps of GPT-2's 124 million parameters on random tokens, plain and compiled."""
    sizes = TINY_MODEL if small else {}
    config = preset("gpt2", 128 if small else 50_304, **sizes, dropout=0.0)
    ceiling, called = peak(device, small)
    rows = [row(f"operations per second, {called} (10^12)", ceiling / 1e12, None)]
    fast = any(name in machine(device)["device"] for name in ("H100", "H200"))
    for word in ("off", "on"):
        clock.check()
        dtype = choose_dtype(device, "auto", config.d_model)
        if word == "on" and (small or not choose_compile(device, dtype, "auto", 1e30)):
            why = "not compiled: small" if small else "cannot be compiled here"
            rows.append(row("tokens per second, compiled", None, None, why=why))
            continue
        batch, rate = tokens_per_second(device, config, dtype, word == "on", clock)
        share = rate * operations_per_token(config) / ceiling
        how = f"{'compiled' if word == 'on' else 'plain'}, batch {batch}"
        bar = (300_000, 0.26) if word == "on" and fast else (None, None)
        rows.append(row(f"tokens per second, GPT-2 124M, {how}", rate, bar[0]))
        rows.append(row(f"share of peak, {how}", share, bar[1]))
    return rows


def operations_per_token(config: GPTConfig) -> float:
    """6 N + 12 L D T, forward and backward; N without the position table."""
    with torch.device("meta"):
        model = GPT(config)
    n_parameters = sum(p.numel() for p in model.parameters())
    if model.pos_emb is not None:
        n_parameters -= model.pos_emb.weight.numel()
    return 6 * n_parameters + 12 * config.n_layers * config.d_model * config.context


def peak(device: torch.device, small: bool) -> tuple[float, str]:
    """What the maker says, or the fastest product seen, in operations per second."""
    name = machine(device)["device"]
    for known, rate in PEAK.items():
        if known in name:
            return rate, "the maker's number"
    size = 256 if small else 8192
    dtype = choose_dtype(device, "auto")
    a = torch.randn(size, size, device=device, dtype=dtype)
    best = math.inf
    for _ in range(10):
        wait(device)
        begun = time.perf_counter()
        a @ a
        wait(device)
        best = min(best, time.perf_counter() - begun)
    return 2 * size**3 / best, "the fastest product seen"


def wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def tokens_per_second(
    device: torch.device,
    config: GPTConfig,
    dtype: torch.dtype,
    compiled: bool,
    clock: Clock,
) -> tuple[int, float]:
    """With the largest batch that fits: its size, and the median of up to 30 steps."""
    for batch in (2,) if device.type == "cpu" else (32, 16, 8, 4, 2):
        try:
            step = stepper(device, config, dtype, batch, compiled)
            times = timed(step, device, clock)
        except torch.OutOfMemoryError:
            torch.cuda.empty_cache()
            continue
        return batch, batch * config.context / statistics.median(times)
    raise RuntimeError("not even a batch of 2 fits")


def stepper(
    device: torch.device,
    config: GPTConfig,
    dtype: torch.dtype,
    batch: int,
    compiled: bool,
) -> Callable[[], None]:
    """A whole training step, as `train` does it."""
    torch.manual_seed(0)
    model = GPT(config).to(device)
    training = TrainConfig(lr=6e-4, batch_size=batch)
    optimizer = make_optimizer(model, training, dtype)
    loss_of = torch.compile(summed_loss, dynamic=False) if compiled else summed_loss

    def random_tokens() -> Iterator[tuple[Tensor, Tensor]]:
        shape = batch, config.context + 1
        while True:
            tokens = torch.randint(config.vocab_size, shape, device=device)
            yield tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()

    batches = random_tokens()

    def step() -> None:
        accumulate_gradient(model, batches, device=device, dtype=dtype, loss_of=loss_of)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    return step


def timed(
    step: Callable[[], None], device: torch.device, clock: Clock, n_steps: int = 30
) -> list[float]:
    for _ in range(3):  # the first ones allocate, and compile
        step()
    times: list[float] = []
    while len(times) < n_steps and (len(times) < 3 or clock.spent() < clock.seconds):
        wait(device)
        begun = time.perf_counter()
        step()
        wait(device)
        times.append(time.perf_counter() - begun)
    return times


if __name__ == "__main__":
    sys.exit(main())
