"""Run chapters in place, in order, and store their outputs.

Two runs are byte-identical.

    python tools/execute.py                      every chapter
    python tools/execute.py chapters/02_*.ipynb  some of them

Each chapter runs in an empty folder with one thread, its own kernel, and
`MINIGPT_STATIC=1`, so that progress bars are silent. A cell that raises stops the run
with the notebook's and the cell's name, and that notebook is left as it was.
"""

import argparse
import os
import re
import sys
import tempfile
import time
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
from tools.environment import notebook_environment  # noqa: E402

WIDGET = "application/vnd.jupyter.widget-view+json"
COLOUR = re.compile(r"\x1b\[[0-9;]*m")


class Stopped(Exception):
    """Which notebook and cell stopped, and why."""


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("notebooks", nargs="*", type=Path)
    parser.add_argument("--timeout", type=int, default=300, help="seconds for a cell")
    args = parser.parse_args(argv)
    os.environ.update(notebook_environment())
    for path in args.notebooks or sorted((ROOT / "chapters").glob("*.ipynb")):
        start = time.perf_counter()
        try:
            text = execute(path, args.timeout)
        except Stopped as error:
            print(f"execute: {error}\n{path.name} was left as it was.", flush=True)
            return 1
        temporary = path.with_suffix(".tmp")
        temporary.write_text(text, "utf-8", newline="\n")
        os.replace(temporary, path)
        print(f"execute: {path.name}: {time.perf_counter() - start:.0f} s", flush=True)
    return 0


def execute(path: Path, timeout: int) -> str:
    """Return the notebook's text with fresh outputs."""
    notebook = nbformat.read(path, as_version=4)
    notebook.metadata.pop("widgets", None)
    place = [f"{path.name}, before its first cell"]

    def note(cell, cell_index):
        place.append(f"{path.name}, cell {cell_index} [{cell.get('id')}]")

    with tempfile.TemporaryDirectory() as folder:
        client = NotebookClient(
            notebook,
            timeout=timeout,
            iopub_timeout=60,
            raise_on_iopub_timeout=True,
            kernel_name="python3",
            record_timing=False,
            extra_arguments=["--log-level=ERROR"],  # the kernel's own remarks
            store_widget_state=False,
            resources={"metadata": {"path": folder}},
            on_cell_start=note,
        )
        try:
            client.execute()
        # A kernel that dies as it starts is a bare RuntimeError.
        except (CellExecutionError, CellTimeoutError, RuntimeError) as error:
            raise Stopped(f"{place[-1]}: {COLOUR.sub('', str(error))}") from error
    notebook.metadata = nbformat.from_dict(
        {
            "kernelspec": {
                "display_name": "Python 3",
                "language": "python",
                "name": "python3",
            },
            "language_info": {"name": "python"},
        }
    )
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
        if cell.cell_type == "code":
            cell.outputs = merge_streams(cell.outputs)
            for output in cell.outputs:
                # Dead without a kernel, and its id is another one in each run.
                output.get("data", {}).pop(WIDGET, None)
    nbformat.validate(notebook)
    return nbformat.writes(notebook).rstrip("\n") + "\n"


def merge_streams(outputs: list) -> list:
    """Join neighbouring pieces of one stream; how they were cut depends on timing."""
    merged = []
    for output in outputs:
        last = merged[-1] if merged else None
        if (
            last is not None
            and output.output_type == last.output_type == "stream"
            and output.name == last.name
        ):
            last.text += output.text
        else:
            merged.append(output)
    return merged


if __name__ == "__main__":
    sys.exit(main())
