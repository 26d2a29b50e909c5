"""Run chapters with seeds that no page shows: every verdict must be the same.

    python tools/reseed.py                        every chapter that takes seeds
    python tools/reseed.py chapters/08_block.ipynb
    python tools/reseed.py --seeds 7,8,9

A verdict is a printed line that ends in True or False. A chapter takes its seeds from
`book.seeds()`. A verdict that holds for the shown seeds only is luck, and fails here.
"""

import argparse
import os
import re
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import nbformat

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
from tools import results  # noqa: E402
from tools.environment import notebook_environment  # noqa: E402
from tools.execute import Stopped, execute  # noqa: E402

VERDICT = re.compile(r"^.*\b(?:True|False)$", re.M)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("notebooks", nargs="*", type=Path)
    parser.add_argument("--seeds", default="101,102", help="two or more, with commas")
    parser.add_argument("--timeout", type=int, default=300, help="seconds for a cell")
    args = parser.parse_args(argv)
    environ = notebook_environment() | {"MINIGPT_SEEDS": args.seeds}
    os.environ.update(environ)
    paths = args.notebooks or sorted((ROOT / "chapters").glob("*.ipynb"))
    paths = [path for path in paths if "book.seeds(" in path.read_text("utf-8")]
    if not paths:
        print("reseed: no chapter takes its seeds from book.seeds()")
        return 1
    with ProcessPoolExecutor(min(2, os.cpu_count() or 1)) as pool:
        found = list(pool.map(changed, paths, [args.timeout] * len(paths)))
    print("\n".join(line for lines in found for line in lines))
    return int(any("FAILED" in line for lines in found for line in lines))


def changed(path: Path, timeout: int) -> list[str]:
    """Report of one chapter: the verdicts that other seeds turn, or that all held."""
    shown = nbformat.read(path, as_version=4)
    start = time.perf_counter()
    results.forget("reseed", [path.stem])
    try:
        other = nbformat.reads(execute(path, timeout), as_version=4)
    except Stopped as error:
        keep(path, [f"FAILED {error}"], 0, start)
        return [f"FAILED {error}"]
    failed, held = [], 0
    for before, after in zip(shown.cells, other.cells):
        old, new = verdicts(before), verdicts(after)
        held += sum(a == b for a, b in zip(old, new))
        if old != new:
            turned = [b for a, b in zip(old, new) if a != b] or new[len(old) :] or old
            failed.append(f"FAILED {path.name} [{before.id}]: {turned[0]}")
    if not held:
        failed.append(f"FAILED {path.name}: it prints no verdict")
    keep(path, failed, held, start)
    seconds = time.perf_counter() - start
    return failed or [f"reseed: {path.name}: {held} verdicts hold, {seconds:.0f} s"]


def keep(path: Path, failed: list[str], held: int, start: float) -> None:
    """What the status page says of it."""
    results.keep(
        "reseed",
        path.stem,
        "failed" if failed else "passed",
        verdicts=held,
        seeds=os.environ["MINIGPT_SEEDS"],
        seconds=round(time.perf_counter() - start, 1),
        failed=[where_and_what(line, path) for line in failed[:5]],
    )


def where_and_what(line: str, path: Path) -> dict[str, str]:
    cell = re.search(r"\[([\w-]+)\]", line)
    said = line.removeprefix("FAILED ").removeprefix(path.name)
    said = re.sub(r"^[^\]]*\]:|^[,:]", "", said)
    return {"where": cell[1] if cell else "", "message": results.plain(said)}


def verdicts(cell) -> list[str]:
    """The lines of a cell's printed output that end in True or False."""
    if cell.cell_type != "code":
        return []
    printed = "".join(o.text for o in cell.outputs if o.output_type == "stream")
    return [" ".join(line.split()) for line in VERDICT.findall(printed)]


if __name__ == "__main__":
    sys.exit(main())
