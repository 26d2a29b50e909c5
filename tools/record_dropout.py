"""Remake the record of chapter 9: more blocks, and how often a text is read.

    python tools/record_dropout.py            seeds 0, 1, 2; about ten minutes on a core
    python tools/record_dropout.py 101 102    others, two or more

It runs the chapter's own cells, so the two cannot drift apart. One thread, CPU.
"""

import argparse
import json
import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

RECORD = ROOT / "minigpt" / "book" / "records" / "dropout.json"
CHAPTER = ROOT / "chapters" / "09_dropout.ipynb"
CELLS = ("exported-imports", "setup", "dropout-function", "dropout-module")
CELLS += ("build", "run")
LARGER = dict(n_layers=4, n_heads=4, d_model=64, context=32, steps=600)
LENGTHS = (2_500, 5_000, 10_000, 20_000, 40_000, 80_000, None)  # None: all of it


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("seeds", nargs="*", type=int, default=[0, 1, 2])
    seeds = parser.parse_args(argv).seeds
    os.environ |= {"MINIGPT_SIZE": "small", "CUDA_VISIBLE_DEVICES": ""}
    os.environ["OMP_NUM_THREADS"] = "1"
    chapter = cells(CHAPTER)
    record = {"seeds": seeds, "larger": larger(chapter, seeds)}
    record["reads"] = reads(chapter, seeds)
    RECORD.write_text(json.dumps(record, indent=1) + "\n", "utf-8", newline="\n")
    return 0


def cells(path: Path) -> dict:
    """The names that the chapter's cells define, without its experiments."""
    sources = {
        cell["id"]: "".join(cell["source"])
        for cell in json.loads(path.read_text("utf-8"))["cells"]
    }
    names: dict = {}
    for name in CELLS:
        exec(compile(sources[name], f"{path.name} [{name}]", "exec"), names)
    names["torch"].set_num_threads(1)
    return names


def larger(chapter: dict, seeds: list[int]) -> dict:
    """Four probabilities on 8,000 characters, with four blocks."""
    small = dict(chapter["SIZE"])
    chapter["SIZE"] |= LARGER
    runs: dict = {}
    for p in (0.0, 0.1, 0.2, 0.5):
        for seed in seeds:
            result = chapter["run"](p, seed, chapter["page"](seed, 8_000), looks=12)
            fields = {
                name: rounded(getattr(result, name)) for name in ("seen", "unseen")
            }
            runs.setdefault(str(p), []).append(fields)
            print(f"larger, p = {p}, seed {seed}: {fields['unseen'][-1]}", flush=True)
    chapter["SIZE"] |= small
    what = (
        f"Recorded: 4 blocks of width 64, 8,000 characters, 600 steps; "
        f"{len(seeds)} seeds on one CPU core"
    )
    return {"what": what, "setting": LARGER, "runs": runs}


def reads(chapter: dict, seeds: list[int]) -> dict:
    """The chapter's small model on texts of several lengths, as many steps for each."""
    size, text = chapter["SIZE"], chapter["train_ids"]
    points = []
    for length in LENGTHS:
        length = length or len(text)
        point: dict = {"characters": length}
        point["reads"] = round(size["steps"] * 16 * size["context"] / length, 3)
        for p in (0.0, 0.2):
            runs = (
                chapter["run"](p, seed, chapter["page"](seed, length), looks=1)
                for seed in seeds
            )
            point[f"p={p:g}"] = rounded([result.unseen[-1] for result in runs])
        print(f"reads: {point}", flush=True)
        points.append(point)
    return {"setting": dict(size), "points": points}


def rounded(values: list[float]) -> list[float]:
    return [round(value, 4) for value in values]


if __name__ == "__main__":
    sys.exit(main())
