"""Remake the recorded runs of chapter 12: the default recipe, three seeds, one thread.

    python tools/record.py         all seeds, about two minutes each on an idle core
    python tools/record.py 1337    one of them

A record begins with a line that holds both configs; each further line holds ten losses,
and the validation loss where it was measured.
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
from minigpt.train import TrainConfig, train  # noqa: E402

ROW = 10  # steps in one line of a record


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("seeds", nargs="*", type=int, default=list(records.SEEDS))
    for seed in parser.parse_args(argv).seeds:
        path = ROOT / "minigpt" / "book" / "records" / f"shakespeare_{seed}.jsonl"
        path.parent.mkdir(exist_ok=True)
        lines = record(seed)
        text = "".join(json.dumps(line) + "\n" for line in lines)
        path.write_text(text, "utf-8", newline="\n")
        print(f"seed {seed}: validation loss {lines[-1]['val_loss']}", flush=True)
    return 0


def record(seed: int) -> list[dict]:
    """Train once and return the lines of the record."""
    torch.set_num_threads(1)
    text = tiny_shakespeare()
    tokenizer = CharTokenizer(text)
    ids, val = split(torch.tensor(tokenizer.encode(text)))
    config = TrainConfig(seed=seed, device="cpu")
    torch.manual_seed(seed)
    model = GPT(GPTConfig(vocab_size=tokenizer.vocab_size))
    batches = Batches(ids, config.batch_size, model.config.context, seed=seed)
    rows = train(model, batches, config, val=val)
    lines = [
        {
            "model_config": model.config.to_dict(),
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


if __name__ == "__main__":
    sys.exit(main())
