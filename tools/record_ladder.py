"""Remake the ladder of chapter 13: every rung over seeds, each at its own best place.

    python tools/record_ladder.py               what is missing; half an hour on a core
    python tools/record_ladder.py --minutes 5   as much of it as five minutes allow

First a grid: each rung at each depth, start and learning rate, on a seed that the
ladder does not use; where the lowest learning rate is the best, or nothing learns, a
lower one is tried. At 12 blocks the three rungs above "pre" take the start that suited
"pre", and no lower rate. The place with the lowest loss is the rung's own. There it is
trained over the seeds of the ladder. Last, two rungs read a page of the text again and
again. A run is added to `minigpt/book/records/ladder.json` as soon as it ends: the
command can be stopped and started again. Delete the file to begin anew. One thread. On
a machine with CUDA the file is `ladder_cuda.json`.
"""

import argparse
import dataclasses
import json
import math
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
os.environ["OMP_NUM_THREADS"] = "1"

import torch  # noqa: E402

from minigpt.ladder import (  # noqa: E402
    RUNGS,
    Run,
    Setting,
    Text,
    by_rung,
    choose,
    train_rung,
)
from minigpt.text import CharTokenizer, split, tiny_shakespeare  # noqa: E402
from tools.recording import write_runs  # noqa: E402

FOLDER = ROOT / "minigpt" / "book" / "records"
SEEDS = (0, 1, 2, 3, 4)
GRID_SEED = 1000  # chooses the place of each rung and is shown for that only
PARTS = {  # number of blocks -> what is trained over the seeds
    2: {"ladder": tuple(RUNGS), "page": ("rmsnorm", "dropout")},
    12: {"ladder": tuple(RUNGS)},
}
STARTS = ("default", "xavier")
LRS = (1e-3, 3e-3, 1e-2, 3e-2)
LOWER = 3e-4
PAGE = 2000  # characters
EVERY = 10  # steps whose mean loss is kept as one number
PLACE = ("part", "rung", "n_layers", "start", "lr", "seed")  # what tells runs apart


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=math.inf)
    end = time.monotonic() + 60 * parser.parse_args(argv).minutes
    torch.set_num_threads(1)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    path = FOLDER / ("ladder_cuda.json" if device == "cuda" else "ladder.json")
    text = read_text(device)
    head = {"device": "one CPU core"} if device == "cpu" else {}
    head = head or {"device": torch.cuda.get_device_name()}
    head |= dataclasses.asdict(Setting()) | {"page": PAGE}
    head |= {"frequencies_only": round(text.frequencies_only, 4)}
    head.pop("n_layers")  # each run has its own
    record = {"setting": head, "runs": []}
    if path.exists():
        record = json.loads(path.read_text("utf-8"))
    for place in missing(record["runs"], text.frequencies_only):
        if time.monotonic() > end:
            print("there is more to do: run the command again")
            break
        record["runs"].append(run(place, text))
        write_runs(record, path)
        print(place, record["runs"][-1]["val_loss"], flush=True)
    return 0


def read_text(device: str) -> Text:
    """Tiny Shakespeare, with every eighth window of its validation part."""
    text = tiny_shakespeare()
    tokenizer = CharTokenizer(text)
    train, val = split(torch.tensor(tokenizer.encode(text)).to(device))
    return Text.of(train, val, tokenizer.vocab_size, Setting().context)


def missing(runs: list[dict], line: float) -> Iterator[dict]:
    """What has yet to run, one place at a time; `runs` grows meanwhile.

    Args:
        runs: of the record.
        line: the loss of knowing frequencies only.
    """
    for n_layers in PARTS:
        own = {}
        for rung in RUNGS:
            starts = starts_of(runs, rung, n_layers)
            yield from new(runs, grid(rung, n_layers, starts, LRS))
            if len(starts) > 1 and lower_might_help(runs, rung, n_layers, line):
                yield from new(runs, grid(rung, n_layers, starts, (LOWER,)))
            own[rung] = own_place(runs, rung, n_layers)
        places = [
            place(part, rung, n_layers, *own[rung], seed)
            for part, rungs in PARTS[n_layers].items()
            for seed in SEEDS
            for rung in rungs
        ]
        yield from new(runs, places)


def new(runs: list[dict], places: list[dict]) -> Iterator[dict]:
    done = [{key: run[key] for key in PLACE} for run in runs]
    yield from (place for place in places if place not in done)


def place(*values) -> dict:
    return dict(zip(PLACE, values))


def starts_of(runs: list[dict], rung: str, n_layers: int) -> tuple[str, ...]:
    """Both; but deep runs are dear, so there the last rungs begin as "pre" did best."""
    if n_layers == 12 and rung in ("rmsnorm", "dropout", "swiglu"):
        return (own_place(runs, "pre", n_layers)[0],)
    return STARTS


def grid(
    rung: str, n_layers: int, starts: tuple[str, ...], lrs: tuple[float, ...]
) -> list[dict]:
    return [
        place("grid", rung, n_layers, start, lr, GRID_SEED)
        for start in starts
        for lr in lrs
    ]


def of_grid(runs: list[dict], rung: str, n_layers: int) -> list[Run]:
    return by_rung(runs, part="grid", n_layers=n_layers)[rung]


def own_place(runs: list[dict], rung: str, n_layers: int) -> tuple[str, float]:
    """Where this rung did best on the seed of the grid."""
    return choose(of_grid(runs, rung, n_layers))


def lower_might_help(runs: list[dict], rung: str, n_layers: int, line: float) -> bool:
    """Whether the best learning rate stands at the lower edge, or nothing learned."""
    learned = any(run.val_loss < line - 0.1 for run in of_grid(runs, rung, n_layers))
    return not learned or own_place(runs, rung, n_layers)[1] <= min(LRS)


def run(place: dict, text: Text) -> dict:
    """Train once: means of ten steps, and the loss on the validation text.

    A loss that is no number is None.
    """
    if place["part"] == "page":
        text = dataclasses.replace(text, train=page(text.train, place["seed"]))
    found = train_rung(
        place["rung"],
        place["seed"],
        text,
        Setting(n_layers=place["n_layers"]),
        lr=place["lr"],
        start=place["start"],
    )
    parts = [found.losses[i : i + EVERY] for i in range(0, len(found.losses), EVERY)]
    return place | {
        "n_parameters": found.n_parameters,
        "val_loss": rounded(found.val_loss),
        "losses": [rounded(sum(part) / len(part)) for part in parts],
    }


def page(ids: torch.Tensor, seed: int, length: int = PAGE) -> torch.Tensor:
    """A stretch of the text, another one for each seed."""
    generator = torch.Generator().manual_seed(seed)
    start = torch.randint(len(ids) - length + 1, (), generator=generator)
    return ids[start : start + length]


def rounded(value: float) -> float | None:
    return round(value, 4) if math.isfinite(value) else None


if __name__ == "__main__":
    sys.exit(main())
