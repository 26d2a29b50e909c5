"""Remake what chapter 14 shows of a trained model: minigpt/book/records/speech.json.

    python tools/record_speech.py           trains the recipe `best`, seed 12, first
    python tools/record_speech.py RUN       takes the weights of this run of it

The training takes eight minutes on an idle core, the rest one. Everything runs on one
thread of the CPU in float32. The record holds the model's logits on the first window of
the validation text, samples, and how samples change with each setting.
"""

import argparse
import json
import os
import re
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
os.environ["OMP_NUM_THREADS"] = "1"

import torch  # noqa: E402

from minigpt.generate import Sampling, generate  # noqa: E402
from minigpt.gpt import GPT  # noqa: E402
from minigpt.text import Batches, CharTokenizer, split, tiny_shakespeare  # noqa: E402
from minigpt.train import load_checkpoint, load_model, train  # noqa: E402
from tools.record import configs  # noqa: E402
from tools.recording import replace_text  # noqa: E402

PATH = ROOT / "minigpt" / "book" / "records" / "speech.json"
RECIPE, SEED = "best", 12
PROMPT = "\n"
LENGTH = 300  # characters of a sample
ROWS = 8  # samples of one setting and seed, for the sweep
SEEDS = (1, 2, 3)  # of the samples; no others were looked at
SHOWN = (
    Sampling(),
    Sampling(temperature=0.0),
    Sampling(temperature=0.5),
    Sampling(temperature=1.5),
    Sampling(top_k=5),
    Sampling(top_p=0.9),
)
SWEEP = (
    *(Sampling(temperature=t) for t in (0.0, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5)),
    *(Sampling(top_k=k) for k in (3, 10)),
    *(Sampling(top_p=p) for p in (0.5, 0.9)),
)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", nargs="?", type=Path, help="folder of a run of `best`")
    args = parser.parse_args(argv)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        run = args.run or trained(Path(folder))
        best = run / "best.safetensors"
        told = load_checkpoint(best)
        model = load_model(best)
    text = tiny_shakespeare()
    lines = record(model, CharTokenizer(text), *split(text))
    about = {"recipe": RECIPE, "seed": SEED, "val_loss": round(told["val_loss"], 4)}
    replace_text(PATH, write(about | lines))
    return 0


def trained(folder: Path) -> Path:
    """Train as `tools/record.py` does, and keep the weights."""
    text = tiny_shakespeare()
    ids, val = split(torch.tensor(CharTokenizer(text).encode(text)))
    model_config, config = configs(RECIPE, SEED)
    torch.manual_seed(SEED)
    model = GPT(model_config)
    batches = Batches(ids, config.batch_size, model_config.context, seed=SEED)
    train(model, batches, config, val=val, folder=folder)
    return folder


def record(model: GPT, tokenizer: CharTokenizer, text: str, val: str) -> dict:
    """All that the chapter shows: numbers and texts of one trained model."""
    window = val[: model.config.context]
    with torch.no_grad():
        logits = model(torch.tensor([tokenizer.encode(window)]))[0]
    words = set(split_words(text))

    def samples(sampling: Sampling, seed: int, rows: int) -> list[str]:
        prompt = torch.tensor([tokenizer.encode(PROMPT)] * rows)
        ids = generate(
            model,
            prompt,
            LENGTH,
            temperature=sampling.temperature,
            top_k=sampling.top_k,
            top_p=sampling.top_p,
            generator=torch.Generator().manual_seed(seed),
        )
        return [tokenizer.decode(row[len(PROMPT) :].tolist()) for row in ids]

    return {
        "characters": tokenizer.characters,
        "text": window,
        "logits": [[round(value, 3) for value in row] for row in logits.tolist()],
        "prompt": PROMPT,
        "samples": [
            settings(sampling) | {"seed": seed, "text": samples(sampling, seed, 1)[0]}
            for sampling in SHOWN
            for seed in (SEEDS[:1] if sampling.greedy else SEEDS)
        ],
        "sweep": [
            settings(sampling)
            | {"seed": seed}
            | judge(samples(sampling, seed, ROWS), words)
            for sampling in SWEEP
            for seed in (SEEDS[:1] if sampling.greedy else SEEDS)
        ],
    }


def settings(sampling: Sampling) -> dict:
    kept = asdict(sampling)
    del kept["n_ids"]
    return kept


def split_words(text: str) -> list[str]:
    return re.findall(r"[a-z]+", text.lower())


def judge(samples: list[str], words: set[str], length: int = 20) -> dict:
    """Two shares over all samples.

    `known`: words that occur in the training text. The last word, which may be cut, is
    left out. `repeated`: pieces of `length` characters that occurred before in the same
    sample.
    """
    spoken = [word for sample in samples for word in split_words(sample)[:-1]]
    known = sum(word in words for word in spoken) / len(spoken)
    pieces = [
        [sample[i : i + length] for i in range(len(sample) - length + 1)]
        for sample in samples
    ]
    different = sum(len(set(each)) for each in pieces)
    repeated = 1 - different / sum(map(len, pieces))
    return {"known": round(known, 4), "repeated": round(repeated, 4)}


def write(record: dict) -> str:
    """JSON with one line for each entry of a list."""
    parts = []
    for key, value in record.items():
        if isinstance(value, list):
            rows = ",\n    ".join(json.dumps(row) for row in value)
            parts.append(f"{json.dumps(key)}: [\n    {rows}\n  ]")
        else:
            parts.append(f"{json.dumps(key)}: {json.dumps(value)}")
    return "{\n  " + ",\n  ".join(parts) + "\n}\n"


if __name__ == "__main__":
    sys.exit(main())
