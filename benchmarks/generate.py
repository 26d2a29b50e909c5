"""The bars of chapter 14: tokens a second with the cache, against recomputation.

    python benchmarks/generate.py

Recomputation is the loop that everybody writes first: a forward pass of the model over
the last `context` tokens for each new one. So past the context it slides by one token,
where `generate` cuts its window to the last half. Both choose greedily, in one process
on one thread, in turns; a speed is the CPU time of recomputation by that of the cache,
for as many tokens: the median over the rounds. The default model has 4 layers of width
128, `best` is the one of the recipe. The table takes two minutes on an idle core.
"""

import argparse
import json
import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch  # noqa: E402
from torch import Tensor  # noqa: E402

from benchmarks.gpt import RESULTS, V, interleaved, machine, ratio, row, show  # noqa: E402
from minigpt.generate import CachedGPT, generate  # noqa: E402
from minigpt.gpt import GPT, GPTConfig  # noqa: E402
from minigpt.train import recipe  # noqa: E402

PROMPT = 4  # tokens
CASES = [  # context, new tokens, batch, bar
    (64, 60, 1, 2.5),
    (64, 300, 1, 3.5),
    (256, 250, 1, 7.0),
    (64, 60, 16, 7.0),
]


class Cached:
    """Text by `generate`."""

    def __init__(self, model: GPT, prompt: Tensor, n_new: int):
        self.model, self.prompt, self.n_new = model, prompt, n_new
        self.tokens = n_new * len(prompt)

    def step(self) -> Tensor:
        return generate(self.model, self.prompt, self.n_new, temperature=0)


class Recomputed(Cached):
    """Text by a forward pass over the last `context` tokens for each new one."""

    @torch.inference_mode()
    def step(self) -> Tensor:
        tokens = self.prompt
        for _ in range(self.n_new):
            logits = self.model(tokens[:, -self.model.config.context :])[:, -1]
            tokens = torch.cat((tokens, logits.argmax(-1, keepdim=True)), dim=1)
        return tokens


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--folder", type=Path, default=RESULTS)
    args = parser.parse_args(argv)
    torch.set_num_threads(1)
    configs = {"default": GPTConfig(V), "best": recipe("best", V)[0]}
    rows = [gap(name, config) for name, config in configs.items()]
    for name, config in configs.items():
        rows += speeds(name, config, args.rounds)
    about = machine()
    show(rows, about)
    result = {"machine": about, "rounds": args.rounds, "rows": rows}
    args.folder.mkdir(parents=True, exist_ok=True)
    path = args.folder / "generate_cpu.json"
    path.write_text(json.dumps(result, indent=1) + "\n", "utf-8", newline="\n")
    print(f"\nwritten: {path.name}")
    return 0


def new_model(config: GPTConfig, **changes) -> GPT:
    """A model with random weights, none of them 0, in evaluation mode."""
    torch.manual_seed(0)
    settings = config.to_dict() | {"zero_init": False} | changes
    return GPT(GPTConfig.from_dict(settings)).eval()


def prompt(batch: int, length: int) -> Tensor:
    return torch.randint(V, (batch, length), generator=torch.Generator().manual_seed(0))


def gap(name: str, config: GPTConfig) -> dict:
    """The largest difference of logits, one by one through a window, and at once."""
    model = new_model(config)
    tokens, cached = prompt(2, config.context), CachedGPT(model, batch_size=2)
    one_by_one = [cached(tokens[:, t : t + 1]) for t in range(config.context)]
    with torch.no_grad():
        largest = (torch.stack(one_by_one, dim=1) - model(tokens)).abs().max().item()
    return row(f"cached against full logits, {name}", largest, 1e-5, at_most=True)


def speeds(name: str, config: GPTConfig, rounds: int) -> list[dict]:
    """One row for each case; the bars are those of the default model."""
    rows = []
    for context, n_new, batch, bar in CASES:
        model = new_model(config, context=context)
        work = model, prompt(batch, PROMPT), n_new
        times = interleaved([Recomputed(*work), Cached(*work)], rounds, steps=1)
        where = f"context {context}, {n_new} new, batch {batch}"
        held_to = bar if name == "default" else None
        rows.append(row(f"speed, {name}, {where}", ratio(*times), held_to))
    return rows


if __name__ == "__main__":
    sys.exit(main())
