"""The pages for contributors: the worked example is applied to a copy and runs."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
EXAMPLE = (ROOT / "docs" / "adding-a-norm.md").read_text("utf-8")
COPIED = (
    "chapters",
    "minigpt",
    "tests",
    "tools",
    "docs",
    "_data",
    "_ext",
    "benchmarks",
)
STEP = re.compile(r"^`([^`\n]+)`, ([^\n]+):\n\n```\w+\n(.*?)^```", re.M | re.S)


def steps() -> list[tuple[str, str, str]]:
    """Of each step of the example: file, what is done to it, and the text."""
    return STEP.findall(EXAMPLE)


def apply(root: Path, path: str, what: str, text: str) -> None:
    """Do what one step says, in the repository at `root`."""
    file = root / path
    cell = re.search(r"cell `([^`]+)`", what)
    if what == "new":
        file.write_text(text, "utf-8")
    elif what == "at the end":
        file.write_text(file.read_text("utf-8").rstrip("\n") + "\n\n\n" + text, "utf-8")
    elif what == "changed":
        file.write_text(changed(file.read_text("utf-8"), text), "utf-8")
    elif cell:
        notebook = json.loads(file.read_text("utf-8"))
        if what.startswith("new"):
            insert(notebook["cells"], cell[1], what, text.rstrip("\n"))
        else:
            (found,) = (c for c in notebook["cells"] if c["id"] == cell[1])
            found["source"] = changed("".join(found["source"]), text)
        file.write_text(json.dumps(notebook, indent=1), "utf-8")
    else:
        raise AssertionError(f"the example says {what!r}, which is no step")


def insert(cells: list[dict], name: str, what: str, text: str) -> None:
    kind, after = re.fullmatch(r"new (\w+) cell `[^`]+` after `([^`]+)`", what).groups()
    cell = {"cell_type": kind, "id": name, "metadata": {}, "source": text}
    if kind == "code":
        cell |= {"outputs": [], "execution_count": None}
    places = [n for n, c in enumerate(cells) if c["id"] == after]
    assert len(places) == 1, f"{after} is no cell"
    cells.insert(places[0] + 1, cell)


def changed(text: str, diff: str) -> str:
    """The text after a diff: lines with -, and in their place those with +."""
    hunks = re.findall(r"((?:^-[^\n]*\n)+)((?:^\+[^\n]*\n)*)", diff, re.M)
    assert hunks
    for old, new in hunks:
        old, new = (re.sub(r"^[-+]", "", part, flags=re.M) for part in (old, new))
        found = len(re.findall(rf"^{re.escape(old)}", text + "\n", re.M))
        assert found == 1, f"{found} places in the text are\n{old}"
        text = (text + "\n").replace(old, new, 1)[:-1]
    return text


@pytest.fixture(scope="module")
def copy(tmp_path_factory) -> Path:
    """A copy of the repository in which every step of the example has been done."""
    root = tmp_path_factory.mktemp("copy")
    for name in COPIED:
        shutil.copytree(
            ROOT / name, root / name, ignore=shutil.ignore_patterns("__pycache__")
        )
    for path in ROOT.glob("*.*"):
        if path.is_file():
            shutil.copy(path, root)
    for step in steps():
        apply(root, *step)
    run(root, "tools/export.py")
    return root


def run(root: Path, *arguments: str) -> str:
    environ = os.environ | {"PYTHONPATH": str(root), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=root,
        env=environ,
        capture_output=True,
        text=True,
        encoding="utf-8",
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    return done.stdout


def test_example_has_all_that_it_promises():
    paths = [path for path, _, _ in steps()]
    for part in (
        "07_rmsnorm.ipynb",
        "test_rmsnorm.py",
        "11_gpt.ipynb",
        "check/norms.py",
    ):
        assert any(path.endswith(part) for path in paths), part
    assert sum("```" in line for line in EXAMPLE.splitlines()) == 2 * len(steps())
    assert "book.Explorable(" in EXAMPLE and "Rung(" in EXAMPLE


def test_example_is_in_the_book_style(copy):
    run(copy, "-m", "ruff", "check", "minigpt", "tests", "chapters")
    run(copy, "-m", "ruff", "format", "--check", "minigpt", "tests")
    assert "class ScaleNorm(nn.Module)" in (copy / "minigpt/rmsnorm.py").read_text(
        "utf-8"
    )


@pytest.mark.parametrize(
    "arguments",
    [
        ("tests/test_rmsnorm.py", "-k", "scale_norm"),
        ("tests/test_gpt.py", "-k", "scalenorm and pre"),
        ("tests/test_gpt_config.py",),
        ("tests/test_diagram.py", "-k", "norm"),
        ("tests/check/test_check_scalenorm.py",),
    ],
    ids=lambda arguments: arguments[0],
)
def test_example_passes_its_tests(copy, arguments):
    said = run(copy, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments)
    assert re.search(r"[1-9]\d* passed", said), said


def test_example_fails_where_it_says(copy, tmp_path):
    """Without the line in the formula the parameter count is wrong, as step 3 says."""
    broken = tmp_path / "broken"
    shutil.copytree(copy, broken)
    path = broken / "minigpt" / "gpt.py"
    text = path.read_text("utf-8")
    assert text.count("(gains + shift)") == 1
    path.write_text(text.replace("(gains + shift)", "(D + shift)"), "utf-8")
    count = ("-m", "pytest", "-q", "tests/test_gpt.py", "-k", "count and scalenorm")
    with pytest.raises(AssertionError, match="failed"):
        run(broken, *count)


LADDER = """
import torch
from minigpt.ladder import Setting, Text, change, train_rung

ids = torch.arange(400) % 7
setting = Setting(2, 16, 2, 8, 4, steps=3, warmup=1)
text = Text.of(ids, ids[:100], 7, 8, every=1)
run = train_rung("scalenorm", 0, text, setting, lr=1e-3, start="gpt2")
less = train_rung("rmsnorm", 0, text, setting, lr=1e-3, start="gpt2")
print(less.n_parameters - run.n_parameters == 5 * 15, len(change("scalenorm")) > 2)
"""
MOVED = """
import json, re, sys
import torch
from minigpt import book
from minigpt.rmsnorm import ScaleNorm

cells = json.load(open("chapters/07_rmsnorm.ipynb", encoding="utf-8"))["cells"]
(source,) = (c["source"] for c in cells if c["id"] == "draw-scale")
head, tail = source.split("book.Explorable(")
exec(head)
print(len(eval("book.Explorable(" + tail)._repr_html_()) > 1000)
"""


def test_example_stands_on_the_ladder_and_moves(copy):
    assert run(copy, "-c", LADDER).split() == ["True", "True"]
    assert run(copy, "-c", MOVED).split() == ["True"]


def test_links_of_the_pages_for_contributors_lead_somewhere():
    pages = [ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
    assert len(pages) > 3
    for page in pages:
        for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text("utf-8")):
            if not target.startswith(("http", "#")):
                path = (page.parent / target.partition("#")[0]).resolve()
                assert path.exists(), f"{page.name} links {target}"
