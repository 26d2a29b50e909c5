"""The exercises of each chapter: their form, and that each solution has been judged.

A write exercise is a cell for the reader that raises NotImplementedError, a cell that
checks it, hints and solution as folds, and a folded cell in which the solution passes
the same check.
"""

import json
import re
from pathlib import Path

import pytest

from minigpt.book import check

ROOT = Path(__file__).resolve().parents[1]
CHAPTERS = sorted(ROOT.glob("chapters/[0-9]*.ipynb"))
HARD = {"residual", "layernorm", "rmsnorm", "block", "swiglu", "generate"}
HEADING = re.compile(
    r"^### (\d+)\. (.+?) \((write|measure|think), (\d+) min, (easy|medium|hard)\)$",
    re.MULTILINE,
)
CHECK = re.compile(r"\bcheck\.(\w+)\(")


def cells(path: Path) -> list[dict]:
    """The cells from the heading Exercises to the one that ends them."""
    found, inside = [], False
    for cell in json.loads(path.read_text("utf-8"))["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            if "## Exercises" in source.splitlines():
                inside, source = True, source.split("## Exercises", 1)[1]
            head, end, _ = source.partition("## What we know now")
            found += [cell | {"source": head}] if inside else []
            if end:
                break
        elif inside:
            found.append(cell | {"source": source})
    return found


def exercises(path: Path) -> list[dict]:
    """Number, title, kind and everything that belongs to each exercise."""
    found: list[dict] = []
    for cell in cells(path):
        if cell["cell_type"] == "code":
            found[-1]["code"].append(cell)
            continue
        parts = re.split(r"(?m)^(?=### )", cell["source"])
        for part in parts:
            match = HEADING.match(part)
            if match:
                number, title, kind, minutes, _ = match.groups()
                new = {"number": int(number), "title": title, "kind": kind}
                found.append(new | {"minutes": int(minutes), "text": part, "code": []})
            elif part.strip():
                assert not part.startswith("### "), (
                    f"{path.stem}: {part.split(chr(10))[0]}"
                )
                if found:
                    found[-1]["text"] += part
    return found


def printed(cell: dict) -> str:
    """The plain text of a cell's outputs."""
    texts = []
    for out in cell["outputs"]:
        texts.append("".join(out.get("text", "")))
        texts.append("".join(out.get("data", {}).get("text/plain", "")))
    return "\n".join(texts)


def folded(cell: dict) -> bool:
    return "hide-cell" in cell["metadata"].get("tags", [])


EVERY = pytest.mark.parametrize("path", CHAPTERS, ids=lambda path: path.stem)


@EVERY
def test_a_chapter_ends_with_exercises_of_each_kind(path):
    found = exercises(path)
    assert [e["number"] for e in found] == list(range(1, len(found) + 1))
    kinds = [e["kind"] for e in found]
    assert set(kinds) == {"write", "measure", "think"}
    least = 2 if path.stem[3:] in HARD else 1
    assert kinds.count("write") >= least, f"{least} to write, at least"
    assert all(3 <= e["minutes"] <= 45 for e in found)


@EVERY
def test_every_exercise_has_a_folded_solution(path):
    for exercise in exercises(path):
        summaries = re.findall(r"<summary>(.+?)</summary>", exercise["text"])
        assert summaries.count("Solution") == 1, f"exercise {exercise['number']}"
        assert summaries[-1] == "Solution", "hints come before the solution"
        if exercise["kind"] == "write":
            hints = [s for s in summaries if s.startswith("Hint")]
            assert hints, f"exercise {exercise['number']} has no hint"
            steps = [f"Hint {n}" for n in range(1, len(hints) + 1)]
            assert hints in (["Hint"], steps), "hints are numbered steps"


@EVERY
def test_what_the_reader_writes_is_checked(path):
    """As delivered: a signature, a docstring, and a calm "not written yet"."""
    for exercise in exercises(path):
        if exercise["kind"] != "write":
            continue
        where = f"exercise {exercise['number']}"
        code = exercise["code"]
        empty = [c for c in code if "raise NotImplementedError" in c["source"]]
        assert len(empty) == 1 and not folded(empty[0]), f"{where}: the reader's cell"
        assert '"""' in empty[0]["source"], f"{where}: say shapes in a docstring"
        after = code[code.index(empty[0]) + 1]
        assert CHECK.search(after["source"]), f"{where}: a check follows it"
        assert "not written yet" in printed(after), f"{where}: {printed(after)}"


@EVERY
def test_the_solution_passes_the_same_check(path):
    for exercise in exercises(path):
        if exercise["kind"] != "write":
            continue
        where = f"exercise {exercise['number']}"
        visible = [c for c in exercise["code"] if not folded(c)]
        asked = {name for c in visible for name in CHECK.findall(c["source"])}
        hidden = [c for c in exercise["code"] if folded(c)]
        judged = [c for c in hidden if CHECK.search(c["source"])]
        names = {name for c in judged for name in CHECK.findall(c["source"])}
        assert asked and asked <= names, f"{where}: asked {asked}, judged {names}"
        assert any("right." in printed(c) for c in judged), f"{where}: is it right?"


@EVERY
def test_checks_exist(path):
    for exercise in exercises(path):
        for cell in exercise["code"]:
            for name in CHECK.findall(cell["source"]):
                assert name in check.__all__, f"check.{name}"


def test_every_check_is_used():
    """A check without an exercise would be of no use to anybody."""
    used = {
        name
        for path in CHAPTERS
        for cell in cells(path)
        if cell["cell_type"] == "code"
        for name in CHECK.findall(cell["source"])
    }
    assert set(check.__all__) - {"Result"} <= used
