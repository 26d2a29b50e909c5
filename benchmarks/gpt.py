"""The bars of chapter 12: losses of the recipes, speed of a step, memory.

    python benchmarks/gpt.py             speeds, batches, memory, recorded losses
    python benchmarks/gpt.py --compile   torch.compile too (needs a C++ compiler)
    python benchmarks/gpt.py --train     also trains `best` with three seeds, each in
                                         the CPU time that the restated nanoGPT recipe
                                         takes here (2 minutes each and more)
    python benchmarks/gpt.py --losses    only looks at the recorded losses again

The yardstick is nanoGPT's block and recipe, restated here with torch's own modules and
checked against the book's `nanogpt` recipe: same logits from the same weights. What
nanoGPT's own code reaches stands in minigpt/book/records/nanogpt.json.

Every candidate runs in each round, one after the other, on one thread; its time is the
CPU time of the process. A speed is the yardstick's time by the candidate's, for the
same number of tokens: the median over the rounds. More is faster. The table takes two
minutes on an idle core. It is kept as benchmarks/results/gpt_cpu.json, and once more as
minigpt/book/records/bench_cpu.json, where the chapter finds it.
"""

import argparse
import json
import os
import platform
import random
import statistics
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch  # noqa: E402
from torch import Tensor, nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from minigpt.book import records  # noqa: E402
from minigpt.gpt import GPT, GPTConfig  # noqa: E402
from minigpt.text import Batches, CharTokenizer, split, tiny_shakespeare  # noqa: E402
from minigpt.train import (  # noqa: E402
    TrainConfig,
    accumulate_gradient,
    bfloat16_pays,
    choose_dtype,
    make_optimizer,
    recipe,
    summed_loss,
    train,
)
from tools.recording import replace_text  # noqa: E402

RESULTS = ROOT / "benchmarks" / "results"
RECORDS = ROOT / "minigpt" / "book" / "records"
CPU = torch.device("cpu")
V = 65
AVX2 = {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2"}
BARS = {  # of the mean of three seeds
    "plain": None,
    "adamw": 1.74,
    "muon": 1.59,
    "best": 1.545,
    "best-short": 1.67,
    "cpu-long": 1.455,
}
RECORDED_LOSS = "loss, recipe"
NO_BFLOAT16 = "this CPU has no bfloat16"


class Yardstick(nn.Module):
    """nanoGPT's model, restated: Pre-LN, GELU, learned positions, a tied head."""

    def __init__(self, c: GPTConfig):
        super().__init__()
        self.n_heads = c.n_heads
        self.tok_emb = nn.Embedding(c.vocab_size, c.d_model)
        self.pos_emb = nn.Embedding(c.context, c.d_model)

        def block() -> nn.ModuleDict:
            return nn.ModuleDict(
                {
                    "attn_norm": nn.LayerNorm(c.d_model, bias=False),
                    "qkv": nn.Linear(c.d_model, 3 * c.d_model, bias=False),
                    "out": nn.Linear(c.d_model, c.d_model, bias=False),
                    "mlp_norm": nn.LayerNorm(c.d_model, bias=False),
                    "up": nn.Linear(c.d_model, c.d_ff, bias=False),
                    "down": nn.Linear(c.d_ff, c.d_model, bias=False),
                }
            )

        self.blocks = nn.ModuleList(block() for _ in range(c.n_layers))
        self.final_norm = nn.LayerNorm(c.d_model, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        B, T = tokens.shape
        x = self.tok_emb(tokens) + self.pos_emb(torch.arange(T))
        for b in self.blocks:
            q, k, v = b["qkv"](b["attn_norm"](x)).split(x.shape[-1], dim=2)
            q, k, v = (
                z.view(B, T, self.n_heads, -1).transpose(1, 2) for z in (q, k, v)
            )
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + b["out"](y.transpose(1, 2).contiguous().view(B, T, -1))
            x = x + b["down"](F.gelu(b["up"](b["mlp_norm"](x))))
        return self.final_norm(x) @ self.tok_emb.weight.T

    def load(self, model: GPT) -> "Yardstick":
        """Take over the weights of a minigpt model of the same config."""
        names = {name: name for name in self.state_dict()}
        for part in ("qkv", "out"):
            names |= {
                n: n.replace(f".{part}.", f".attn.{part}.")
                for n in names
                if f".{part}." in n
            }
        for part in ("up", "down"):
            names |= {
                n: n.replace(f".{part}.", f".mlp.{part}.")
                for n in names
                if f".{part}." in n
            }
        theirs = model.state_dict()
        self.load_state_dict({mine: theirs[name] for mine, name in names.items()})
        return self


class Candidate:
    """A model with its optimizer, and what it costs to train it on one batch."""

    def __init__(self, config: GPTConfig, training: TrainConfig, ids: Tensor):
        torch.manual_seed(0)
        self.training = training
        self.dtype = choose_dtype(CPU, training.dtype, config.d_model)
        self.model: nn.Module = GPT(config)
        self.optimizer = make_optimizer(self.model, training, self.dtype)
        self.batches = Batches(ids, training.batch_size, config.context, seed=0)
        self.tokens = training.batch_size * config.context
        self.loss_of = summed_loss

    def compiled(self) -> "Candidate":
        self.loss_of = torch.compile(summed_loss, dynamic=False)
        return self

    def step(self) -> None:
        accumulate_gradient(
            self.model, self.batches, dtype=self.dtype, loss_of=self.loss_of
        )
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad()


class Peer(Candidate):
    """The yardstick's step: nanoGPT's, with torch's AdamW as it is on a CPU there."""

    def __init__(self, config: GPTConfig, training: TrainConfig, ids: Tensor):
        super().__init__(config, training, ids)
        self.model = Yardstick(config).load(self.model)
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(), lr=training.lr, betas=training.betas
        )

    def step(self) -> None:
        x, y = next(self.batches)
        F.cross_entropy(self.model(x).view(-1, V), y.reshape(-1)).backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--train", action="store_true")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--losses", action="store_true")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--steps", type=int, default=3, help="of a candidate a round")
    parser.add_argument("--folder", type=Path, default=RESULTS)
    parser.add_argument("--avx2", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    torch.set_num_threads(1)
    if args.losses:
        result = json.loads((args.folder / "gpt_cpu.json").read_text("utf-8"))
        other = [r for r in result["rows"] if not r["what"].startswith(RECORDED_LOSS)]
        result["rows"] = [*losses(), *other]
        show(result["rows"], result["machine"])
        keep(result, args.folder)
        return 0
    ids, val = text()
    if args.avx2:  # this process runs under a simulated older CPU
        print(json.dumps(auto_against_float32(ids, args.rounds, args.steps)))
        return 0
    rows = [*losses(), equal_logits(ids)]
    speeds, seconds = step_speeds(ids, args.rounds, args.steps, args.compile)
    rows += speeds
    rows.append(row("auto against float32, here", *auto_here(ids, args)))
    rows.append(row("auto against float32, as on AVX2", *auto_as_on_avx2(args)))
    rows.append(row("fetching a batch (ms)", fetch(ids), 0.05, at_most=True))
    rows.append(row("peak memory of best (MiB)", peak_memory(), 500, at_most=True))
    rows += same_time(ids, val, seconds, args.train)
    show(rows, machine())
    keep({"machine": machine(), "rounds": args.rounds, "rows": rows}, args.folder)
    return 0


def keep(result: dict, folder: Path) -> None:
    """Write the result, and beside the book's records what the chapter shows of it."""
    text = json.dumps(result, indent=1) + "\n"
    folder.mkdir(parents=True, exist_ok=True)
    replace_text(folder / "gpt_cpu.json", text)
    if folder == RESULTS:
        replace_text(RECORDS / "bench_cpu.json", text)
    print("\nwritten: gpt_cpu.json")


def text() -> tuple[Tensor, Tensor]:
    characters = tiny_shakespeare()
    return split(torch.tensor(CharTokenizer(characters).encode(characters)))


def row(
    what: str, value: float | None, bar: float | None, at_most=False, why: str = ""
) -> dict:
    """A line of the table; without a value, `why` says what it was not measured for."""
    held = None
    if value is not None and bar is not None:
        held = value <= bar if at_most else value >= bar
    rounded = None if value is None else round(value, 6)
    return {
        "what": what,
        "value": rounded,
        "bar": bar,
        "at_most": at_most,
        "held": held,
        "why": why,
    }


def equal_logits(ids: Tensor) -> dict:
    """How far the yardstick's logits are from ours, with the same weights."""
    config, _ = recipe("nanogpt", V)
    torch.manual_seed(0)
    model = GPT(config).eval()
    tokens = ids[: 4 * config.context].view(4, -1)
    with torch.no_grad():
        gap = (model(tokens) - Yardstick(config).load(model)(tokens)).abs().max()
    return row("yardstick against our logits", gap.item(), 1e-5, at_most=True)


def losses() -> list[dict]:
    """The recorded runs: mean of the seeds, over the whole validation split."""
    rows = []
    for name, bar in BARS.items():
        seeds = records.RECORDED.get(name, ())
        what = f"{RECORDED_LOSS} {name}, recorded seeds: {len(seeds)}"
        if not seeds:
            rows.append(row(what, None, bar, at_most=True, why="not recorded yet"))
            continue
        mean = statistics.mean(records.read(name, seed).final for seed in seeds)
        line = row(what, mean, bar, at_most=True)
        if len(seeds) < 3:  # the bar is one for the mean of three
            line |= {"held": None, "why": "the bar is for three seeds"}
        rows.append(line)
    return rows


def step_speeds(
    ids: Tensor, rounds: int, steps: int, with_compile: bool
) -> tuple[list[dict], dict[str, float]]:
    """Speeds of all candidates, and CPU seconds for a token of two of them."""
    wanted = [
        ("equal block, float32", "nanogpt", "float32", 0.97, False),
        ("default block, AdamW, float32", "adamw", "float32", 0.80, False),
        ("recipe muon, float32", "muon", "float32", None, False),
        ("recipe best, float32", "best", "float32", None, False),
    ]
    bf16 = bfloat16_pays()
    if bf16:
        wanted.append(("default block, bfloat16", "adamw", "bfloat16", 1.7, False))
    if bf16 and with_compile:
        wanted.append(("the same, compiled", "adamw", "bfloat16", 2.5, True))
    config, training = recipe("nanogpt", V, dtype="float32", device="cpu")
    peer = Peer(config, training, ids)
    candidates = []
    for _, name, dtype, _, compiled in wanted:
        candidate = Candidate(*recipe(name, V, dtype=dtype, device="cpu"), ids)
        candidates.append(candidate.compiled() if compiled else candidate)
    times = interleaved([peer, *candidates], rounds, steps)
    rows = [
        row(f"speed, {what}", ratio(times[0], mine), bar)
        for (what, *_, bar, _), mine in zip(wanted, times[1:])
    ]
    if not bf16:
        rows.append(row("speed, default block, bfloat16", None, 1.7, why=NO_BFLOAT16))
    if not (bf16 and with_compile):
        why = "asked for by --compile" if bf16 else NO_BFLOAT16
        rows.append(row("speed, the same, compiled", None, 2.5, why=why))
    at = [what for what, *_ in wanted].index("recipe best, float32")
    medians = [statistics.median(times[0]), statistics.median(times[1 + at])]
    return rows, dict(zip(("nanogpt", "best"), medians))


def interleaved(
    candidates: list[Candidate], rounds: int, steps: int
) -> list[list[float]]:
    """For each candidate, the CPU seconds for a token in each round."""
    for candidate in candidates:
        candidate.step()  # the first step allocates, and compiles
    times: list[list[float]] = [[] for _ in candidates]
    order = list(range(len(candidates)))
    for _ in range(rounds):
        random.Random(len(times[0])).shuffle(order)
        for index in order:
            start = time.process_time()
            for _ in range(steps):
                candidates[index].step()
            spent = time.process_time() - start
            times[index].append(spent / (steps * candidates[index].tokens))
    return times


def ratio(theirs: list[float], mine: list[float]) -> float:
    return statistics.median(a / b for a, b in zip(theirs, mine))


def auto_against_float32(ids: Tensor, rounds: int, steps: int) -> float:
    """Speed of the recipe `muon` with dtype "auto" against itself in float32."""
    config, training = recipe("muon", V, device="cpu")
    pair = [
        Candidate(config, replace(training, dtype=word), ids)
        for word in ("float32", "auto")
    ]
    return ratio(*interleaved(pair, rounds, steps))


def auto_here(ids: Tensor, args: argparse.Namespace) -> tuple[float, float]:
    return auto_against_float32(ids, args.rounds, args.steps), 0.95


def auto_as_on_avx2(args: argparse.Namespace) -> tuple[float, float]:
    """In a new process that believes to be on an older CPU."""
    sizes = ["--rounds", str(args.rounds), "--steps", str(args.steps)]
    done = subprocess.run(
        [sys.executable, __file__, "--avx2", *sizes],
        env=os.environ | AVX2,
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout), 0.95


def fetch(ids: Tensor) -> float:
    """Milliseconds of CPU time for one batch of 12 windows of 64."""
    batches, times = Batches(ids, 12, 64, seed=0), []
    for _ in range(300):
        start = time.process_time()
        next(batches)
        times.append(time.process_time() - start)
    return 1000 * statistics.median(times)


def peak_memory() -> float | None:
    """MiB of a process that trains and evaluates `best`; None where it is not told."""
    code = """
import resource, torch
from pathlib import Path
from minigpt.gpt import GPT
from minigpt.text import Batches, CharTokenizer, split, tiny_shakespeare
from minigpt.train import recipe, train
torch.set_num_threads(1)
text = tiny_shakespeare()
ids, val = split(torch.tensor(CharTokenizer(text).encode(text)))
config, training = recipe("best", 65, steps=4, warmup=1, eval_every=2, device="cpu")
batches = Batches(ids, training.batch_size, config.context)
train(GPT(config), batches, training, val=val[:9000])
status = Path("/proc/self/status")
if status.exists():  # Linux, where ru_maxrss begins with that of the parent
    line = next(x for x in status.read_text().splitlines() if x.startswith("VmHWM"))
    print(int(line.split()[1]) / 2**10)
else:
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20)  # bytes on macOS
"""
    if sys.platform == "win32":
        return None
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    return float(done.stdout)


def same_time(
    ids: Tensor,
    val: Tensor,
    seconds: dict[str, float],
    measure: bool,
    seeds: tuple[int, ...] = (11, 12, 13),
    budget: int = 1_536_000,
) -> list[dict]:
    """Train `best` for the CPU time of the restated recipe; a row for each dtype."""
    bars = {"float32": 1.65, "bfloat16": 1.52}
    here = str(choose_dtype(CPU, "auto")).removeprefix("torch.")
    rows = []
    for dtype, bar in bars.items():
        what = f"loss in the yardstick's time, {dtype}"
        if dtype != here:
            why = NO_BFLOAT16 if dtype == "bfloat16" else "bfloat16 is faster here"
            rows.append(row(what, None, bar, at_most=True, why=why))
        elif not measure:
            why = "asked for by --train"
            rows.append(row(what, None, bar, at_most=True, why=why))
        else:
            tokens = budget * seconds["nanogpt"] / seconds["best"]
            losses = [timed(ids, val, tokens, dtype, seed) for seed in seeds]
            line = row(what, statistics.mean(losses), bar, at_most=True)
            each = ", ".join(f"{loss:.4f}" for loss in losses)
            rows.append(line | {"why": f"{int(tokens):,} characters; seeds: {each}"})
    return rows


def timed(ids: Tensor, val: Tensor, tokens: float, dtype: str, seed: int) -> float:
    """The loss of `best` after so many tokens, its schedule fitted to them."""
    config, training = recipe("best", V, dtype=dtype, device="cpu", seed=seed)
    n_steps = max(2, int(tokens / (training.batch_size * config.context)))
    warmup = min(training.warmup, n_steps // 7)
    training = replace(training, steps=n_steps, warmup=warmup, eval_every=n_steps)
    torch.manual_seed(seed)
    batches = Batches(ids, training.batch_size, config.context, seed=seed)
    return train(GPT(config), batches, training, val=val)[-1]["val_loss"]


def machine() -> dict:
    """What the numbers were measured on."""
    name = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        lines = info.read_text("utf-8").splitlines()
        named = [line.split(":")[1].strip() for line in lines if "model name" in line]
        name = named[0] if named else name
    return {
        "cpu": name,
        "capability": torch.backends.cpu.get_cpu_capability(),
        "bfloat16_pays": bfloat16_pays(),
        "threads": 1,
        "torch": torch.__version__.split("+")[0],
        "python": platform.python_version(),
    }


def show(rows: list[dict], about: dict) -> None:
    print(", ".join(f"{key}: {value}" for key, value in about.items()), "\n")
    words = {True: "held", False: "MISSED", None: ""}
    for r in rows:
        value = "not measured" if r["value"] is None else f"{r['value']:.4g}"
        sign = "<=" if r["at_most"] else ">="
        bar = "" if r["bar"] is None else f"{sign} {r['bar']:g}"
        verdict = " ".join(part for part in (words[r["held"]], r["why"]) if part)
        print(f"{r['what']:44} {value:>12}  {bar:9} {verdict}".rstrip())


if __name__ == "__main__":
    sys.exit(main())
