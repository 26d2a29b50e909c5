"""Remake the recorded runs of chapter 12, one thread, in float32.

    python tools/record.py                      every recipe, three seeds
    python tools/record.py best muon            these
    python tools/record.py best --seeds 11      one run
    python tools/record.py --ablation           the table of single changes

A run takes four minutes or more on an idle core, one of `cpu-long` about an hour. The
record of a run begins with a line that holds both configs; each further line holds ten
losses, and the validation loss where it was measured. The ablation is one line for each
change and seed, in one file; its 48 runs take less than a minute each.
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

from minigpt.book import records  # noqa: E402
from minigpt.gpt import GPT, GPTConfig  # noqa: E402
from minigpt.text import Batches, CharTokenizer, split, tiny_shakespeare  # noqa: E402
from minigpt.train import TrainConfig, recipe, train  # noqa: E402
from tools.recording import replace_text  # noqa: E402

ROW = 10  # steps in one line of a record
FOLDER = ROOT / "minigpt" / "book" / "records"
# so that it is the same everywhere
FIXED = {"device": "cpu", "dtype": "float32", "compile": "off"}


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("recipes", nargs="*", default=list(records.RECORDED))
    parser.add_argument("--seeds", nargs="*", type=int, default=None)
    parser.add_argument("--ablation", action="store_true")
    args = parser.parse_args(argv)
    torch.set_num_threads(1)
    if args.ablation:
        ablation()
        return 0
    for name in args.recipes:
        for seed in args.seeds or records.RECORDED.get(name, records.SEEDS):
            lines = record(*configs(name, seed))
            write(FOLDER / f"{name}_{seed}.jsonl", lines)
            print(f"{name}, seed {seed}: {lines[-1]['val_loss']}", flush=True)
    return 0


def ablation() -> None:
    """Change one thing at a time; a run that is in the file already is not repeated."""
    path = FOLDER / "ablation.jsonl"
    done = records.ablation()
    for label, changes in records.CHANGES.items():
        for seed in records.SEEDS:
            if any((line["label"], line["seed"]) == (label, seed) for line in done):
                continue
            lines = record(*configs("muon", seed, **records.ABLATED | changes))
            line = {"label": label, "changes": changes, "seed": seed}
            line["n_parameters"] = lines[0]["n_parameters"]
            line["val_loss"] = lines[-1]["val_loss"]
            done.append(line)
            write(path, done)
            print(f"{label}, seed {seed}: {line['val_loss']}", flush=True)


def configs(name: str, seed: int, **changes) -> tuple[GPTConfig, TrainConfig]:
    vocab_size = CharTokenizer(tiny_shakespeare()).vocab_size
    return recipe(name, vocab_size, seed=seed, **FIXED | changes)


def record(model_config: GPTConfig, config: TrainConfig) -> list[dict]:
    """Train once and return the lines of the record."""
    text = tiny_shakespeare()
    ids, val = split(torch.tensor(CharTokenizer(text).encode(text)))
    torch.manual_seed(config.seed)
    model = GPT(model_config)
    batches = Batches(ids, config.batch_size, model_config.context, seed=config.seed)
    rows = train(model, batches, config, val=val)
    lines = [
        {
            "model_config": model_config.to_dict(),
            "train_config": config.to_dict(),
            "n_parameters": sum(p.numel() for p in model.parameters()),
        }
    ]
    for start in range(0, len(rows), ROW):
        part = rows[start : start + ROW]
        line = {"step": part[-1]["step"], "losses": [round(r["loss"], 4) for r in part]}
        if "val_loss" in part[-1]:
            line["val_loss"] = round(part[-1]["val_loss"], 4)
        lines.append(line)
    return lines


def write(path: Path, lines: list[dict]) -> None:
    path.parent.mkdir(exist_ok=True)
    replace_text(path, "".join(json.dumps(line) + "\n" for line in lines))


if __name__ == "__main__":
    sys.exit(main())
