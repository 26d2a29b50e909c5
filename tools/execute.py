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
import sys
import tempfile
import time
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
from tools.environment import notebook_environment  # noqa: E402


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
        except (CellExecutionError, CellTimeoutError, DeadKernelError) as error:
            print(f"execute: {path.name} stopped and was left as it was:\n{error}")
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
    with tempfile.TemporaryDirectory() as folder:
        NotebookClient(
            notebook,
            timeout=timeout,
            kernel_name="python3",
            record_timing=False,
            store_widget_state=False,
            resources={"metadata": {"path": folder}},
        ).execute()
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
