"""Time LayerNorm and RMSNorm: by hand, built in, compiled, and inside a block.

    python benchmarks/norms.py              print the tables for this device
    python benchmarks/norms.py --write      keep them for chapter 7, as
                                            minigpt/book/records/norm_speed_<device>.json
    python benchmarks/norms.py --no-compile where there is no compiler

Every candidate runs once in each round, in an order that changes. A number is a
candidate's shortest time divided by the shortest time of torch's fused LayerNorm. The
shortest, because whatever else the machine does can only add to a time, and on a busy
machine medians are mostly that. On one CPU thread the time is that of the process.
"""

import argparse
import ctypes
import json
import os
import platform
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
from minigpt.attention import CausalSelfAttention  # noqa: E402
from minigpt.layernorm import LayerNorm, layer_norm  # noqa: E402
from minigpt.mlp import MLP  # noqa: E402
from minigpt.residual import Residual  # noqa: E402
from minigpt.rmsnorm import RMSNorm, rms_norm  # noqa: E402

EPS = 1e-6
RECORDS = ROOT / "minigpt" / "book" / "records"
Job = Callable[[], object]


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help="keep the result")
    parser.add_argument("--no-compile", action="store_true")
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--threads", type=int, default=1, help="of a CPU")
    parser.add_argument("--widths", type=int, nargs="+", default=[64, 256, 1024, 4096])
    parser.add_argument("--block-widths", type=int, nargs="+", default=[64, 256, 768])
    parser.add_argument("--folder", type=Path, default=RECORDS, help="for --write")
    args = parser.parse_args(argv)
    torch.set_num_threads(args.threads)
    keep_memory()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    elements = 2**26 if device.type == "cuda" else 2**20
    record = {
        "device": name(device),
        "type": device.type,
        "threads": args.threads if device.type == "cpu" else None,
        "torch": torch.__version__.split("+")[0],
        "dtype": "float32",
        "rounds": args.rounds,
        "elements": elements,
        "norms": {},
        "block": {},
    }
    for width in args.widths:
        record["norms"][str(width)] = norms(
            width, elements // width, device, args.rounds, not args.no_compile
        )
    tokens = (64, 512) if device.type == "cuda" else (4, 128)
    record["tokens"] = list(tokens)
    for width in args.block_widths:
        record["block"][str(width)] = block(
            width, tokens, device, max(1, args.rounds // 2)
        )
    show(record)
    if args.write:
        path = args.folder / f"norm_speed_{device.type}.json"
        path.write_text(json.dumps(record, indent=1) + "\n", "utf-8", newline="\n")
        print(f"written: {path.name}")
    return 0


def norms(width: int, rows: int, device, rounds: int, compiled: bool) -> dict:
    """Each implementation against the fused LayerNorm, on (rows, width) numbers."""
    x = torch.randn(rows, width, device=device, requires_grad=True)
    direction = torch.randn(rows, width, device=device)
    weight = torch.randn(width, device=device, requires_grad=True)
    bias = torch.randn(width, device=device, requires_grad=True)
    ours = RMSNorm(width, eps=EPS).to(device)
    candidates = {
        "LayerNorm fused": lambda: F.layer_norm(x, (width,), weight, bias, EPS),
        "LayerNorm by hand": lambda: layer_norm(x, weight, bias, EPS),
        "RMSNorm by hand": lambda: rms_norm(x, weight, EPS),
        "RMSNorm built in": lambda: F.rms_norm(x, (width,), weight, EPS),
        "RMSNorm of the book": lambda: ours(x),
    }
    if compiled:
        torch._dynamo.reset()
        fast_layer = torch.compile(layer_norm, dynamic=False)
        fast_rms = torch.compile(rms_norm, dynamic=False)
        candidates |= {
            "LayerNorm compiled": lambda: fast_layer(x, weight, bias, EPS),
            "RMSNorm compiled": lambda: fast_rms(x, weight, EPS),
        }

    def forward(norm: Job) -> Job:
        def job():
            with torch.no_grad():
                norm()

        return job

    def training(norm: Job, needed: list[Tensor]) -> Job:
        return lambda: torch.autograd.grad(norm(), needed, direction)

    result = {}
    for kind in ("forward", "training"):
        jobs = {}
        for label, norm in candidates.items():
            if "book" in label:
                needed = [x, ours.weight]
            else:
                needed = [x, weight] + ([bias] if "Layer" in label else [])
            train = kind == "training"
            jobs[label] = training(norm, needed) if train else forward(norm)
        result[kind] = compare(jobs, "LayerNorm fused", device, rounds)
    return result


def block(width: int, tokens: tuple[int, int], device, rounds: int) -> dict:
    """A transformer block's forward and backward pass with one norm or another."""
    kinds = {
        "LayerNorm fused": lambda: LayerNorm(width, eps=EPS),
        "RMSNorm built in": lambda: nn.RMSNorm(width, eps=EPS),
        "RMSNorm of the book": lambda: RMSNorm(width, eps=EPS),
        "no norm": nn.Identity,
    }
    x = torch.randn(*tokens, width, device=device, requires_grad=True)
    direction = torch.randn_like(x)
    jobs = {}
    for label, norm in kinds.items():
        sublayers = CausalSelfAttention(width, width // 32), MLP(width, 4 * width)
        parts = [Residual(nn.Sequential(norm(), part)) for part in sublayers]
        model = nn.Sequential(*parts).to(device)
        needed = [x, *model.parameters()]

        def job(model=model, needed=needed):
            torch.autograd.grad(model(x), needed, direction)

        jobs[label] = job
    return {"training": compare(jobs, "LayerNorm fused", device, rounds)}


def compare(jobs: dict[str, Job], base: str, device, rounds: int) -> dict:
    """Shortest time of `base` in ms, and each job's ratio to it."""
    for job in jobs.values():
        for _ in range(3):  # compiles, and warms the caches
            job()
    times: dict[str, list[float]] = {label: [] for label in jobs}
    order = list(jobs)
    shuffle = random.Random(0).shuffle
    for _ in range(rounds):
        shuffle(order)
        for label in order:
            times[label].append(seconds(jobs[label], device))
    best = {label: min(seen) for label, seen in times.items()}
    ratios = {label: round(best[label] / best[base], 3) for label in jobs}
    return {"ms": round(1e3 * best[base], 4), "ratio": ratios}


def seconds(job: Job, device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize()
    alone = device.type == "cpu" and torch.get_num_threads() == 1
    clock = time.process_time if alone else time.perf_counter
    start = clock()
    job()
    if device.type == "cuda":
        torch.cuda.synchronize()
    return clock() - start


def keep_memory() -> None:
    """Let glibc keep freed memory, as torch itself does on a GPU.

    Or a large tensor's memory comes from the system anew, page by page, at some calls
    and not at others, and that is then what is timed.
    """
    mallopt = (
        getattr(ctypes.CDLL(None), "mallopt", None) if os.name == "posix" else None
    )
    if mallopt is not None:
        mmap_threshold, trim_threshold = -3, -1  # of malloc.h
        mallopt(mmap_threshold, 2**30)
        mallopt(trim_threshold, 2**31 - 1)


def name(device) -> str:
    """The device's model, never the machine's name."""
    if device.type == "cuda":
        return torch.cuda.get_device_name()
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text("utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def show(record: dict) -> None:
    threads = f", {record['threads']} thread(s)" if record["threads"] else ""
    print(f"{record['device']}{threads}, torch {record['torch']}, {record['dtype']}")
    for part in ("norms", "block"):
        for kind in ("forward", "training"):
            widths = {w: v[kind] for w, v in record[part].items() if kind in v}
            if not widths:
                continue
            print(f"\n{part}, {kind}: time / time with the fused LayerNorm")
            print(f"{'width':22}" + "".join(f"{w:>9}" for w in widths))
            for label in next(iter(widths.values()))["ratio"]:
                cells = "".join(f"{v['ratio'][label]:9.2f}" for v in widths.values())
                print(f"{label:22}{cells}")
            print(f"{'LayerNorm fused, ms':22}", end="")
            print("".join(f"{v['ms']:9.3f}" for v in widths.values()))


if __name__ == "__main__":
    sys.exit(main())
