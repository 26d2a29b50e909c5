"""Remake the comparison that chapter 10 shows beside its own, smaller one.

    python tools/record_swiglu.py      what is missing; a quarter of an hour for all

The same small GPT with eight kinds of MLP at an equal number of parameters, five seeds
each, on one thread; then GELU and SwiGLU for fewer steps and at other learning rates,
three seeds each; then both in a GPT of half the width and depth. Each run is added to
`minigpt/book/records/swiglu.json` as soon as it ends, so the command can be stopped and
started again. Delete the file to begin anew.
"""

import argparse
import json
import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
os.environ["OMP_NUM_THREADS"] = "1"

import torch  # noqa: E402
from torch import Tensor, nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from minigpt.attention import CausalSelfAttention  # noqa: E402
from minigpt.block import Block  # noqa: E402
from minigpt.depth import (  # noqa: E402
    Stack,
    TokenEmbedding,
    fit,
    held_out_loss,
    initialise,
)
from minigpt.rmsnorm import RMSNorm  # noqa: E402
from minigpt.swiglu import GATES, GatedMLP, swiglu_width  # noqa: E402
from minigpt.text import (  # noqa: E402
    Batches,
    CharTokenizer,
    split,
    tiny_shakespeare,
    windows,
)

PATH = ROOT / "minigpt" / "book" / "records" / "swiglu.json"
SIZE = {"d_model": 96, "n_layers": 4, "n_heads": 4, "context": 32, "batch_size": 16}
HALF = {"lr": 3e-3, "steps": 250, "d_model": 48, "n_layers": 2}  # the smaller GPT
SEEDS = (0, 1, 2, 3, 4)
PLAIN = {"relu": F.relu, "gelu": F.gelu, "silu": F.silu}
KINDS = [*PLAIN, *GATES]
FOUND = ("val_loss", "n_parameters")  # what a run finds; the rest is its setting


class Plain(nn.Module):
    """down(bend(up(x))) without biases, as the gated ones have none."""

    def __init__(self, d_model: int, kind: str):
        super().__init__()
        self.bend = PLAIN[kind]
        self.up = nn.Linear(d_model, 4 * d_model, bias=False)
        self.down = nn.Linear(4 * d_model, d_model, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(self.bend(self.up(x)))


def plan() -> list[dict]:
    """Every run of the record: kind, learning rate, steps, seed, and another size."""
    usual = {"lr": 3e-3, "steps": 400}
    settings = [{"kind": kind} | usual for kind in KINDS]
    runs = [setting | {"seed": seed} for setting in settings for seed in SEEDS]
    for change in ({"steps": 100}, {"lr": 6e-3}, {"lr": 1e-3}):
        for kind in ("gelu", "swiglu"):
            runs += [{"kind": kind} | usual | change | {"seed": s} for s in SEEDS[:3]]
    for kind in ("gelu", "swiglu"):
        runs += [{"kind": kind} | HALF | {"seed": s} for s in SEEDS]
    return runs


def build(kind: str, vocab_size: int, d: int, n_layers: int) -> nn.Module:
    """A small Pre-LN GPT with RMSNorm and Xavier's initialisation."""
    heads = SIZE["n_heads"]

    def block() -> Block:
        gated = kind in GATES
        mlp = GatedMLP(d, swiglu_width(d), kind=kind) if gated else Plain(d, kind)
        attn = CausalSelfAttention(d, heads, bias=False)
        return Block(attn, mlp, RMSNorm(d), RMSNorm(d))

    blocks = [block() for _ in range(n_layers)]
    embed = TokenEmbedding(vocab_size, SIZE["context"], d)
    head = nn.Linear(d, vocab_size, bias=False)
    return initialise(Stack(embed, blocks, head, RMSNorm(d)), "xavier")


def run(
    kind: str,
    lr: float,
    steps: int,
    seed: int,
    text: tuple,
    d_model: int = SIZE["d_model"],
    n_layers: int = SIZE["n_layers"],
) -> dict:
    """Train once; the loss is over every fourth window of the validation text."""
    train, val, vocab_size = text
    torch.manual_seed(seed)
    model = build(kind, vocab_size, d_model, n_layers)
    batches = Batches(train, SIZE["batch_size"], SIZE["context"], seed=seed)
    fit(model, batches, steps=steps, lr=lr, warmup=40, clip=1.0)
    return {
        "val_loss": round(held_out_loss(model, [val]), 4),
        "n_parameters": sum(p.numel() for p in model.parameters()),
    }


def main(argv: list[str] | None = None) -> int:
    argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    ).parse_args(argv)
    torch.set_num_threads(1)
    text = tiny_shakespeare()
    tokenizer = CharTokenizer(text)
    ids, val = split(torch.tensor(tokenizer.encode(text)))
    val = tuple(part[::4] for part in windows(val, SIZE["context"]))
    record = {"setting": SIZE | {"warmup": 40, "clip": 1.0}, "runs": []}
    if PATH.exists():
        record = json.loads(PATH.read_text("utf-8"))
    done = [
        {key: run[key] for key in run if key not in FOUND} for run in record["runs"]
    ]
    for setting in plan():
        if setting in done:
            continue
        found = run(**setting, text=(ids, val, tokenizer.vocab_size))
        record["runs"].append(setting | found)
        write(record)
        print(setting, found, flush=True)
    return 0


def write(record: dict) -> None:
    """Replace the file as a whole, so that a stop leaves the old or the new one."""
    head = json.dumps(record["setting"])
    runs = ",\n    ".join(json.dumps(run) for run in record["runs"])
    text = f'{{\n  "setting": {head},\n  "runs": [\n    {runs}\n  ]\n}}\n'
    part = PATH.with_suffix(".part")
    part.write_text(text, "utf-8", newline="\n")
    os.replace(part, PATH)


if __name__ == "__main__":
    sys.exit(main())
