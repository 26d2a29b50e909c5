"""Remake the record of the clinic: how each patient and its repair fared.

    python tools/record_clinic.py             what is missing; ten minutes on a core
    python tools/record_clinic.py half wide   these plans anew

The plans are those of `minigpt.book.clinic_runs`. A run is added to the record as soon
as it ends: the command can be stopped and started again. One thread, CPU.
"""

import argparse
import json
import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
os.environ["OMP_NUM_THREADS"] = "1"
from tools.recording import write_runs  # noqa: E402

RECORD = ROOT / "minigpt" / "book" / "records" / "clinic.json"
SEEDS = (0, 1)


def main(argv: list[str] | None = None) -> int:
    import torch

    from minigpt.book import clinic_runs

    torch.set_num_threads(1)
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("plans", nargs="*", help="names of plans to run again")
    again = parser.parse_args(argv).plans
    for name in again:
        if name not in clinic_runs.PLANS:
            parser.error(f"{name!r} is no plan; one of {', '.join(clinic_runs.PLANS)}")
    runs = json.loads(RECORD.read_text("utf-8"))["runs"] if RECORD.exists() else []
    runs = [run for run in runs if run["plan"] not in again]
    setting = {"text": "Tiny Shakespeare", "seeds": SEEDS, "device": "one CPU core"}
    for seed in SEEDS:
        for name, plan in clinic_runs.PLANS.items():
            if any((run["plan"], run["seed"]) == (name, seed) for run in runs):
                continue
            found = clinic_runs.run(plan, seed)
            runs.append({"plan": name, "seed": seed} | found)
            write_runs({"setting": setting, "runs": runs}, RECORD)
            print(name, seed, found["train"][-1], found["val"][-1], flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
