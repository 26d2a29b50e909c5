"""tools/execute.py: the same bytes twice; a notebook that stops is left as it was."""

import time
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from tools import execute

NOISY = """\
import random
import sys
import time

for word in ("one", "two", "three"):
    print(word, flush=True)
    time.sleep(0.05)
print("aside", file=sys.stderr, flush=True)
time.sleep(0.05)
print("four", flush=True)
hash("seeded")
"""
ALONE = """\
import os
from pathlib import Path

print(list(Path.cwd().iterdir()), os.environ["MINIGPT_STATIC"])
Path("left-behind.txt").write_text("x")
"""
SLIDER = """\
import ipywidgets

ipywidgets.IntSlider(description="depth")
"""


def write(path: Path, *sources: str) -> Path:
    cells = [new_markdown_cell("# Title", id="title")]
    cells += [new_code_cell(s, id=f"c{i}") for i, s in enumerate(sources)]
    notebook = new_notebook(cells=cells)
    # What an editor leaves behind: its kernel's name, versions, widgets, times.
    notebook.metadata = nbformat.from_dict(
        {
            "kernelspec": {
                "name": "conda-env-me-py",
                "display_name": "me",
                "language": "python",
            },
            "language_info": {"name": "python", "version": "3.8.5"},
            "widgets": {"application/vnd.jupyter.widget-state+json": {}},
            "vscode": {"interpreter": {"hash": "0"}},
        }
    )
    notebook.cells[1].metadata["execution"] = {"iopub.execute_input": "2020-01-01"}
    notebook.cells[1].outputs = [new_output("stream", name="stdout", text="stale\n")]
    path.write_text(nbformat.writes(notebook), "utf-8")
    return path


def run(path: Path, *arguments: str) -> int:
    return execute.main([str(path), *arguments])


@pytest.fixture(scope="module")
def twice(tmp_path_factory) -> tuple[bytes, bytes, list[str]]:
    """A notebook's bytes after each of two runs, and what its folder then holds."""
    folder = tmp_path_factory.mktemp("twice")
    path = write(folder / "01_one.ipynb", NOISY, ALONE, SLIDER)
    texts = []
    for _ in range(2):
        assert run(path) == 0
        texts.append(path.read_bytes())
    return *texts, sorted(p.name for p in folder.iterdir())


def test_two_runs_are_byte_identical(twice):
    assert twice[0] == twice[1]
    assert twice[0].endswith(b"}\n") and b"\r" not in twice[0]


def test_stored_notebook(twice):
    """G07, H01: python3 whatever the editor wrote; no widgets, versions or times."""
    notebook = nbformat.reads(twice[0].decode(), as_version=4)
    nbformat.validate(notebook)
    assert notebook.metadata == {
        "kernelspec": {
            "display_name": "Python 3",
            "language": "python",
            "name": "python3",
        },
        "language_info": {"name": "python"},
    }
    code = notebook.cells[1:]
    assert [c.execution_count for c in code] == [1, 2, 3]
    assert list(code[2].outputs[0].data) == ["text/plain"], "no dead widget"
    assert all("execution" not in c.metadata for c in code)


def test_streams_are_merged_and_kept_in_order(twice):
    """G04: how many pieces a stream arrives in depends on timing."""
    outputs = nbformat.reads(twice[0].decode(), as_version=4).cells[1].outputs
    kinds = [(o.output_type, o.get("name"), o.get("text")) for o in outputs]
    assert kinds[:3] == [
        ("stream", "stdout", "one\ntwo\nthree\n"),
        ("stream", "stderr", "aside\n"),
        ("stream", "stdout", "four\n"),
    ]
    assert kinds[3][0] == "execute_result" and len(kinds) == 4


def test_runs_in_an_empty_folder_of_its_own(twice):
    """G08: no neighbour file is in reach, and nothing is left in the source tree."""
    assert twice[2] == ["01_one.ipynb"]
    outputs = nbformat.reads(twice[0].decode(), as_version=4).cells[2].outputs
    assert outputs[0].text == "[] 1\n"


def test_a_raising_cell_leaves_the_file_untouched(tmp_path, capsys):
    """G01: exit 1, naming notebook and cell."""
    path = write(tmp_path / "02_two.ipynb", "1 + 1", "raise KeyError('lost')", "2")
    before = path.read_bytes()
    assert run(path) == 1
    said = capsys.readouterr().out
    assert "02_two.ipynb, cell 2 [c1]" in said and "KeyError: 'lost'" in said
    assert "\x1b" not in said
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["02_two.ipynb"]


def test_a_cell_over_its_time_is_named(tmp_path, capsys):
    path = write(tmp_path / "03_three.ipynb", "import time; time.sleep(60)")
    assert run(path, "--timeout", "1") == 1
    assert "03_three.ipynb, cell 1 [c0]" in capsys.readouterr().out


def test_a_dead_kernel_fails_within_the_limit(tmp_path, capsys):
    """G06: killed, as for memory; neither waits for ever nor loses the name."""
    kill = "import os, signal; os.kill(os.getpid(), getattr(signal, 'SIGKILL', 15))"
    path = write(tmp_path / "04_four.ipynb", "1", kill)
    before, start = path.read_bytes(), time.monotonic()
    assert run(path, "--timeout", "60") == 1
    assert time.monotonic() - start < 45
    said = capsys.readouterr().out
    assert "04_four.ipynb, cell 2 [c1]" in said and "died" in said.lower()
    assert path.read_bytes() == before


def test_an_expected_error_is_stored(tmp_path):
    path = write(tmp_path / "05_five.ipynb", "1 / 0")
    notebook = nbformat.read(path, as_version=4)
    notebook.cells[1].metadata["tags"] = ["raises-exception"]
    path.write_text(nbformat.writes(notebook), "utf-8")
    assert run(path) == 0
    outputs = nbformat.read(path, as_version=4).cells[1].outputs
    assert [o.ename for o in outputs] == ["ZeroDivisionError"]
