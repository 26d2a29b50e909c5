"""What the tools that remake records share: a chapter's own cells, and a safe file."""

import json
import os
from pathlib import Path


def chapter_cells(path: Path, ids: tuple[str, ...]) -> dict:
    """The names that these cells of a chapter define, without its experiments."""
    os.environ.pop("MINIGPT_SEEDS", None)  # a record has seeds of its own
    sources = {
        cell["id"]: "".join(cell["source"])
        for cell in json.loads(path.read_text("utf-8"))["cells"]
    }
    names: dict = {}
    for name in ids:
        exec(compile(sources[name], f"{path.name} [{name}]", "exec"), names)
    names["torch"].set_num_threads(1)
    return names


def replace_text(path: Path, text: str) -> None:
    """Replace the file as a whole, so that a stop leaves the old or the new one."""
    part = path.with_suffix(".part")
    part.write_text(text, "utf-8", newline="\n")
    os.replace(part, path)


def write_runs(record: dict, path: Path) -> None:
    """Write a record of "setting" and "runs", one line for each run."""
    setting = json.dumps(record["setting"])
    runs = ",\n    ".join(json.dumps(run) for run in record["runs"])
    text = f'{{\n  "setting": {setting},\n  "runs": [\n    {runs}\n  ]\n}}\n'
    replace_text(path, text)
