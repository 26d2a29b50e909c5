"""Time to read: what a chapter states, and what its length says.

A chapter's first cell states its time in the line below the summary: "*Reading 35 min ·
running 75 s ...*". The chapter list, the side of the page and the foot of a chapter
take it from there. `estimate` counts what there is to read; a test compares both.
"""

import json
import re
from functools import lru_cache
from pathlib import Path

STATED = re.compile(r"^\*Reading (\d+) min\b", re.MULTILINE)
FOLD = re.compile(r"<details.*?</details>", re.DOTALL)
DISPLAY = re.compile(r"\$\$.*?\$\$", re.DOTALL)
INLINE = re.compile(r"\$[^$\n]+\$")
FENCE = re.compile(r"```.*?```", re.DOTALL)
MARKUP = re.compile(r"<[^>]+>|\]\([^)]*\)")
UNSEEN = {"remove-cell", "remove-input"}
FOLDED = {"hide-input", "hide-cell"}
# What a reader needs. A line of code has some six words, so two seconds are 200 words a
# minute, too; a displayed formula is read more than once; a figure is looked at.
PROSE = 1 / 200  # minutes for a word
SECONDS = {"formulas": 20, "code": 2, "printed": 2, "figures": 30}


def stated(path: Path) -> int | None:
    """Minutes to read, as a notebook's first cell states them; None if it does not."""
    return _stated(path, path.stat().st_mtime_ns)


@lru_cache(maxsize=64)
def _stated(path: Path, changed: int) -> int | None:
    cells = json.loads(path.read_text("utf-8"))["cells"]
    found = STATED.search("".join(cells[0]["source"]))
    return int(found[1]) if found else None


def minutes(app, page: str) -> int | None:
    """The stated time of a page of the book; None for pages that are no chapter."""
    if not re.fullmatch(r"chapters/\d\d_\w+", page):
        return None
    return stated(Path(app.srcdir) / f"{page}.ipynb")


def spoken(total: int) -> str:
    """Minutes as a reader says them: "35 min", "4 h 10 min", "2 h"."""
    hours, rest = divmod(total, 60)
    parts = [f"{hours} h"] if hours else []
    return " ".join([*parts, f"{rest} min"] if rest or not hours else parts)


def count(path: Path) -> dict[str, int]:
    """What there is to read in a chapter.

    Folded answers and folded code are left out, and so are the exercises: each of them
    states a time of its own.

    Returns:
        "words" of prose, where a formula in a line counts as two; displayed "formulas";
        lines of "code" and lines "printed"; "figures" and tables.
    """
    cells = json.loads(path.read_text("utf-8"))["cells"]
    found = {"words": 0, "formulas": 0, "code": 0, "printed": 0, "figures": 0}
    exercises = False
    for cell in cells:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            heading = re.search(r"^## (.*)", source, re.MULTILINE)
            exercises = heading[1] == "Exercises" if heading else exercises
        if exercises:
            continue
        new = prose(source) if cell["cell_type"] == "markdown" else shown(cell, source)
        for kind, number in new.items():
            found[kind] += number
    return found


def prose(text: str) -> dict[str, int]:
    text = FOLD.sub(lambda fold: re.search("<summary>(.*?)<", fold[0])[1], text)
    formulas = len(DISPLAY.findall(text))
    text = INLINE.sub(" x x ", DISPLAY.sub("", text))
    return {
        "words": len(MARKUP.sub("", FENCE.sub("", text)).split()),
        "formulas": formulas,
    }


def shown(cell: dict, source: str) -> dict[str, int]:
    """Of a code cell what the page shows unfolded."""
    tags = set(cell["metadata"].get("tags", ()))
    if tags & UNSEEN:
        return {}
    found = {"code": 0, "printed": 0, "figures": 0}
    if not tags & FOLDED:
        found["code"] = sum(bool(line.strip()) for line in source.splitlines())
    if "hide-cell" in tags:
        return found
    for output in cell["outputs"]:
        if output["output_type"] == "stream":
            found["printed"] += len("".join(output["text"]).splitlines())
        else:
            html = "".join(output.get("data", {}).get("text/html", ""))
            found["figures"] += "qp-figure" in html or "<table" in html
    return found


def estimate(path: Path) -> float:
    """Minutes that a chapter takes at 200 words a minute, without the exercises."""
    found = count(path)
    seconds = sum(found[kind] * each for kind, each in SECONDS.items())
    return found["words"] * PROSE + seconds / 60
