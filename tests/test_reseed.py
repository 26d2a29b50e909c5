"""tools/reseed.py: a verdict that hangs on the shown seeds is found out."""

import json

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from tools import execute, reseed

HOLDS = """\
from minigpt import book

SEEDS = book.seeds(3)
print("seeds are whole numbers: ", all(s == int(s) for s in SEEDS))
print("how many:", len(SEEDS))
"""
LUCK = HOLDS + 'print("every seed is below ten:", max(SEEDS) < 10)\n'
RAISES = HOLDS + "if max(SEEDS) > 10:\n    raise ValueError('too large')\n"
SILENT = "from minigpt import book\n\nbook.seeds(3)\n"


def chapter(folder, source):
    path = folder / "04_depth.ipynb"
    cells = [new_markdown_cell("# Depth", id="title"), new_code_cell(source, id="run")]
    path.write_text(nbformat.writes(new_notebook(cells=cells)), "utf-8")
    return path


@pytest.mark.parametrize(
    "source, code, said",
    [
        (HOLDS, 0, "04_depth.ipynb: 1 verdicts hold"),
        (LUCK, 1, "FAILED 04_depth.ipynb [run]: every seed is below ten: False"),
        (RAISES, 1, "ValueError: too large"),
        (SILENT, 1, "it prints no verdict"),
    ],
    ids=["holds", "luck", "raises", "silent"],
)
def test_verdicts_under_other_seeds(tmp_path, capsys, monkeypatch, source, code, said):
    path = chapter(tmp_path, source)
    monkeypatch.delenv("MINIGPT_SEEDS", raising=False)
    assert execute.main([str(path)]) == 0
    stored = path.read_bytes()
    capsys.readouterr()
    assert reseed.main([str(path)]) == code
    assert said in capsys.readouterr().out
    assert path.read_bytes() == stored


def test_a_verdict_is_a_printed_line_that_ends_in_true_or_false(tmp_path):
    text = "loss 2.1\nflat:   True\nTrue is a word\nfalls with depth: False\n"
    cell = nbformat.from_dict(json.loads(json.dumps(new_code_cell("x", id="x"))))
    cell.outputs = [nbformat.v4.new_output("stream", name="stdout", text=text)]
    assert reseed.verdicts(cell) == ["flat: True", "falls with depth: False"]


def test_without_a_chapter_that_takes_seeds_nothing_is_called_passed(tmp_path, capsys):
    assert reseed.main([str(chapter(tmp_path, "print(1)"))]) == 1
    assert "no chapter takes its seeds" in capsys.readouterr().out
