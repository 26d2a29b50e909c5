"""Remake the map of chapter 8: which order of the norm learns, and where.

    python tools/record_stability.py               what is missing; 15 minutes on a core
    python tools/record_stability.py --minutes 2   as much of it as two minutes allow

Orders x depths x learning rates x warm-ups x seeds, each a short training run of the
chapter's own `train_once`, so chapter and record cannot drift apart. A run is added to
`minigpt/book/records/stability.json` as soon as it ends: the command can be stopped and
started again. Delete the file to begin anew. One thread. On a machine with CUDA the
chapter's larger setting is taken and the file is `stability_cuda.json`.
"""

import argparse
import itertools
import json
import math
import os
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
os.environ["OMP_NUM_THREADS"] = "1"

FOLDER = ROOT / "minigpt" / "book" / "records"
CHAPTER = ROOT / "chapters" / "08_block.ipynb"
CELLS = ("exported-imports", "setup", "block-class", "post-norm-block-class")
CELLS += ("blocks-dict", "deepnorm-class", "build", "model", "train-once")
GRID = {
    "seed": [0, 1, 2],
    "lr": [3e-3, 1e-3],
    "warmup": [0, 100],
    "depth": [3, 6, 12],
    "order": ["residual", "post", "deepnorm", "pre", "sandwich", "reordered"],
}


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=math.inf)
    end = time.monotonic() + 60 * parser.parse_args(argv).minutes
    chapter = cells()
    device = chapter["DEVICE"].type
    path = FOLDER / ("stability_cuda.json" if device == "cuda" else "stability.json")
    record = {"setting": {"device": device_name(device)} | chapter["SIZE"], "runs": []}
    if path.exists():
        record = json.loads(path.read_text("utf-8"))
    done = [{key: run[key] for key in GRID} for run in record["runs"]]
    for setting in plan():
        if setting in done:
            continue
        if time.monotonic() > end:
            print("there is more to do: run the command again")
            break
        found = run(chapter, setting)
        record["runs"].append(setting | found)
        write(record, path)
        print(setting, found["val_loss"], flush=True)
    return 0


def cells() -> dict:
    """The names that the chapter's cells define, without its experiments."""
    os.environ.pop("MINIGPT_SEEDS", None)
    sources = {
        cell["id"]: "".join(cell["source"])
        for cell in json.loads(CHAPTER.read_text("utf-8"))["cells"]
    }
    names: dict = {}
    for name in CELLS:
        exec(compile(sources[name], f"{CHAPTER.name} [{name}]", "exec"), names)
    names["torch"].set_num_threads(1)
    return names


def device_name(device: str) -> str:
    if device != "cuda":
        return "one CPU core"
    import torch

    return torch.cuda.get_device_name()


def plan() -> list[dict]:
    """Every setting of the grid; all of the first seed first."""
    return [dict(zip(GRID, values)) for values in itertools.product(*GRID.values())]


def run(chapter: dict, setting: dict) -> dict:
    """Train once; means of ten steps, and the loss on the validation text.

    A loss that is no number is None.
    """
    losses, val_loss = chapter["train_once"](**setting)
    means = [sum(losses[i : i + 10]) / 10 for i in range(0, len(losses), 10)]
    return {"val_loss": rounded(val_loss), "losses": [rounded(m) for m in means]}


def rounded(value: float) -> float | None:
    return round(value, 3) if math.isfinite(value) else None


def write(record: dict, path: Path) -> None:
    """Replace the file as a whole, so that a stop leaves the old or the new one."""
    setting = json.dumps(record["setting"])
    runs = ",\n    ".join(json.dumps(run) for run in record["runs"])
    part = path.with_suffix(".part")
    text = f'{{\n  "setting": {setting},\n  "runs": [\n    {runs}\n  ]\n}}\n'
    part.write_text(text, "utf-8", newline="\n")
    os.replace(part, path)


if __name__ == "__main__":
    sys.exit(main())
