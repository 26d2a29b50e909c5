"""The chapters keep the notebook rules, and each rule notices a planted fault."""

import copy
import re
from pathlib import Path

import nbformat
import pytest
import yaml

from tools.notebook_rules import problems

ROOT = Path(__file__).resolve().parent.parent
CHAPTERS = sorted((ROOT / "chapters").glob("[0-9]*.ipynb"))
NOTEBOOKS = sorted((ROOT / "chapters").glob("*.ipynb"))  # an appendix has no number
QUIET = [path for path in CHAPTERS if path.stem[:2] >= "04"]  # Parts II and III
# 12 checks devices with fixed numbers, 14 shows stored texts by their seeds.
EXPERIMENTS = [path for path in QUIET if path.stem[3:] not in ("train", "generate")]


def names(paths):
    return [path.stem for path in paths]


def toc_files() -> list[str]:
    toc = yaml.safe_load((ROOT / "_toc.yml").read_text("utf-8"))
    parts = toc.get("parts", [toc])
    return [chapter["file"] for part in parts for chapter in part["chapters"]]


def test_there_are_chapters():
    assert CHAPTERS


@pytest.mark.parametrize("path", NOTEBOOKS, ids=names(NOTEBOOKS))
def test_notebook_keeps_the_rules(path):
    assert problems(path) == []


@pytest.mark.parametrize("path", CHAPTERS, ids=names(CHAPTERS))
def test_chapter_module_and_test_bear_one_name(path):
    assert re.fullmatch(r"\d\d_[a-z]+", path.stem)
    name = path.stem[3:]
    assert (ROOT / "minigpt" / f"{name}.py").exists()
    assert (ROOT / "tests" / f"test_{name}.py").exists()


def test_table_of_contents_has_every_chapter_in_order():
    listed = [f for f in toc_files() if f.startswith("chapters/")]
    stems = [f.removeprefix("chapters/").removesuffix(".ipynb") for f in listed]
    assert [stem for stem in stems if stem[0].isdigit()] == names(CHAPTERS)


def formulas(path) -> list[str]:
    """Ids of the cells that show a formula on its own lines."""
    cells = nbformat.read(path, as_version=4).cells
    return [c.id for c in cells if c.cell_type == "markdown" and "$$" in c.source]


# Chapters 1 to 3 have these tests, too, under other names.
@pytest.mark.parametrize("path", QUIET, ids=names(QUIET))
def test_each_formula_is_evaluated_by_a_test(path):
    tests = (ROOT / "tests" / f"test_{path.stem[3:]}.py").read_text("utf-8")
    named = set(re.findall(r"formula: ([\w-]+)", tests))
    assert formulas(path), "a chapter of this part shows its formulas"
    assert [i for i in formulas(path) if i not in named] == [], (
        "no test evaluates these"
    )
    assert named <= set(formulas(path)), "tests of formulas that are not shown"


@pytest.mark.parametrize("path", EXPERIMENTS, ids=names(EXPERIMENTS))
def test_experiments_take_their_seeds_from_outside(path):
    """Or nobody could ask whether a message depends on them."""
    code = [c.source for c in nbformat.read(path, 4).cells if c.cell_type == "code"]
    assert any("book.seeds(" in source for source in code)
    fixed = re.compile(r"manual_seed\(\d+\)|\bseed=\d+")
    assert [found[0] for c in code for found in fixed.finditer(c)] == []


def good():
    """A notebook that keeps every rule."""
    new = nbformat.v4
    cells = [
        new.new_markdown_cell("# Title: a question?\n\n> What it builds.", id="title"),
        new.new_code_cell(
            "import sys",
            id="setup-colab",
            execution_count=1,
            metadata={"tags": ["remove-cell"]},
        ),
        new.new_markdown_cell("## Section\n\nText.", id="text"),
        new.new_code_cell(
            "print(1)",
            id="one",
            execution_count=2,
            outputs=[new.new_output("stream", name="stdout", text="1\n")],
        ),
        new.new_markdown_cell("## Exercises\n\n## What we know now", id="end"),
    ]
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    notebook = new.new_notebook(cells=cells, metadata={"kernelspec": kernel})
    notebook.nbformat_minor = 5
    return notebook


def check(tmp_path, notebook) -> str:
    path = tmp_path / "01_text.ipynb"
    nbformat.write(notebook, path)
    return "\n".join(problems(path))


def test_a_good_notebook_has_no_problems(tmp_path):
    assert check(tmp_path, good()) == ""


def stream(text, name="stdout"):
    return nbformat.v4.new_output("stream", name=name, text=text)


def shown(**data):
    data = {kind.replace("_", "/"): value for kind, value in data.items()}
    return nbformat.v4.new_output("display_data", data=data)


def put(notebook, **changes):
    """Change the printing cell."""
    for key, value in changes.items():
        setattr(notebook.cells[3], key, value)
    return notebook


ERROR = nbformat.v4.new_output("error", ename="ValueError", evalue="x", traceback=[])
DEEP = "## Section\n\n#### Too deep"

FAULTS = {
    "never executed": (lambda n: put(n, execution_count=None), "execution counts"),
    "G10 outputs stripped": (lambda n: put(n, outputs=[]), "nothing would be compared"),
    "stored error": (lambda n: put(n, outputs=[ERROR]), "a stored error"),
    "G04 stderr": (lambda n: put(n, outputs=[stream("x", "stderr")]), "stored stderr"),
    "H08 long": (lambda n: put(n, outputs=[stream("x\n" * 61)]), "output of 61 lines"),
    "wide": (lambda n: put(n, outputs=[stream("x" * 89)]), "output line of 89 columns"),
    "G05 address": (
        lambda n: put(n, outputs=[stream("at 0x7f3a2c10")]),
        "memory address",
    ),
    "G04 bar": (lambda n: put(n, outputs=[stream("50%|## 3.1it/s")]), "a progress bar"),
    "path printed": (lambda n: put(n, outputs=[stream("/home/me/x")]), "absolute path"),
    "path in code": (lambda n: put(n, source='open("/Users/me/x")'), "absolute path"),
    "long line": (lambda n: put(n, source="x = " + "1" * 85), "line of 89 columns"),
    "figure without alt": (
        lambda n: put(n, outputs=[shown(image_png="aaaa")]),
        "alt text",
    ),
    "svg without label": (
        lambda n: put(n, outputs=[shown(text_html="<svg></svg>")]),
        "aria-",
    ),
    "skipped": (lambda n: put(n, metadata={"tags": ["nbval-skip"]}), "every cell runs"),
    "ignored": (
        lambda n: put(n, metadata={"tags": ["nbval-ignore-output"]}),
        "are not compared",
    ),
    "raises not": (
        lambda n: put(n, metadata={"tags": ["raises-exception"]}),
        "no error is stored",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_rule_notices_a_fault_in_a_code_cell(tmp_path, fault):
    plant, message = FAULTS[fault]
    assert message in check(tmp_path, plant(copy.deepcopy(good())))


def test_rule_notices_a_skipped_heading_level(tmp_path):
    """H09"""
    notebook = good()
    notebook.cells[2].source = DEEP
    assert "jumps from 2 to 4" in check(tmp_path, notebook)


def test_rule_notices_a_second_title(tmp_path):
    notebook = good()
    notebook.cells[2].source = "# Another title"
    assert "a second '# ' heading" in check(tmp_path, notebook)


def test_rule_notices_an_odd_kernel(tmp_path):
    """G07"""
    notebook = good()
    notebook.metadata.kernelspec.name = "python385jvsc74a57bd0"
    assert "not 'python3'" in check(tmp_path, notebook)


def test_rule_notices_widget_metadata(tmp_path):
    """H01"""
    notebook = good()
    notebook.metadata.widgets = {}
    assert "'widgets' does not belong" in check(tmp_path, notebook)


def test_rule_notices_three_code_cells_in_a_row(tmp_path):
    notebook = good()
    for number in (3, 4):
        extra = nbformat.v4.new_code_cell(
            "x = 1", id=f"x{number}", execution_count=number
        )
        notebook.cells.insert(number + 1, extra)
    assert "third code cell in a row" in check(tmp_path, notebook)


def test_rule_notices_site_only_syntax(tmp_path):
    notebook = good()
    notebook.cells[2].source = "As {cite}`someone` says."
    assert "MyST syntax" in check(tmp_path, notebook)


def test_rule_notices_an_old_format(tmp_path):
    notebook = good()
    for cell in notebook.cells:
        del cell["id"]
    notebook.nbformat_minor = 4
    path = tmp_path / "01_text.ipynb"
    path.write_text(nbformat.writes(notebook, version=nbformat.NO_CONVERT), "utf-8")
    assert "format 4.4, not 4.5" in "\n".join(problems(path))
