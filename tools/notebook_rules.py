"""The rules that every chapter notebook keeps. `problems(path)` lists what breaks them.

They exist because each of them once cost a reader of some book an evening: outputs that
were never compared, figures without words, headings that skip, an author's own path.
"""

import html
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import nbformat

MAX_LINE = 88
MAX_OUTPUT_LINES = 60
MAX_BYTES = 1_000_000
MAX_IGNORED = 0.1  # share of code cells whose output is not compared

ABSOLUTE = re.compile(
    r"(?<![\w./:])/(?:home|Users|root|tmp|work|mnt|opt|var)/\w|\b[A-Z]:\\\w"
)
VOLATILE = {
    "a memory address": re.compile(r"\b0x[0-9a-f]{6,}"),
    "a progress bar": re.compile(r"\d(?:it|s)/(?:s|it)\b|\d+%\|"),
    "a carriage return": re.compile(r"\r"),
}
MYST_ONLY = re.compile(
    r"^:::|^```\{|\{(?:cite|ref|numref|eq|doc|term)(?::\w+)?\}`", re.M
)
FENCE = re.compile(r"^(```|~~~).*?^\1\s*$", re.M | re.S)


def problems(path: Path) -> list[str]:
    """Everything in the notebook that breaks a rule, naming notebook and cell."""
    try:
        text = path.read_text("utf-8")
        notebook = nbformat.reads(text, as_version=nbformat.NO_CONVERT)
        nbformat.validate(notebook)
    except (ValueError, nbformat.ValidationError) as error:
        return [f"{path.name}: not a valid notebook: {str(error).splitlines()[0]}"]
    found = []
    for rule in (whole, metadata, executed, headings, prose, sources, outputs, figures):
        found += [f"{path.name}{where}: {what}" for where, what in rule(notebook)]
    if len(text.encode()) > MAX_BYTES:
        found.append(f"{path.name}: {len(text.encode())} bytes; at most {MAX_BYTES}")
    return found


def at(number: int, cell) -> str:
    return f", cell {number} [{cell.get('id', 'no id')}]"


def code_cells(notebook) -> Iterator[tuple[str, dict]]:
    for number, cell in enumerate(notebook.cells):
        if cell.cell_type == "code":
            yield at(number, cell), cell


def tags(cell) -> list[str]:
    return cell.metadata.get("tags", [])


def texts(cell) -> Iterator[tuple[str, str]]:
    """(kind, text) of the textual outputs of a cell that a reader sees."""
    for output in cell.outputs:
        if output.output_type == "stream":
            yield output.name, output.text
        data = output.get("data", {})
        for kind, text in data.items():
            unseen = kind == "text/plain" and "text/html" in data
            if isinstance(text, str) and not kind.startswith("image/p") and not unseen:
                yield kind, text


def whole(notebook):
    if (notebook.nbformat, notebook.nbformat_minor) != (4, 5):
        yield "", f"format {notebook.nbformat}.{notebook.nbformat_minor}, not 4.5"
    ids = [cell.get("id") for cell in notebook.cells]
    for double in {i for i in ids if ids.count(i) > 1}:
        yield "", f"id {double!r} is used twice or missing"
    for number, cell in enumerate(notebook.cells):
        if re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f-]+)?", cell.get("id", "")):
            yield (
                at(number, cell),
                "a random id; give the cell a name, other pages link to it",
            )
    if not any(cell.get("id") == "setup-colab" for cell in notebook.cells):
        yield "", "no cell 'setup-colab', so it cannot run on Colab"


def metadata(notebook):
    name = notebook.metadata.get("kernelspec", {}).get("name")
    if name != "python3":
        yield "", f"kernelspec {name!r}, not 'python3'"
    for key in set(notebook.metadata) - {"kernelspec", "language_info"}:
        yield "", f"metadata {key!r} does not belong in a committed notebook"


def executed(notebook):
    counts = [cell.execution_count for _, cell in code_cells(notebook)]
    if counts != list(range(1, len(counts) + 1)):
        yield "", f"execution counts are not 1..{len(counts)}: run `make execute`"
    cells = list(code_cells(notebook))
    if not any(cell.outputs for _, cell in cells):
        yield "", "no output is stored, so nothing would be compared"
    ignored = [
        w for w, c in cells if "nbval-ignore-output" in tags(c) or "NBVAL_" in c.source
    ]
    if len(ignored) > MAX_IGNORED * len(cells):
        yield "", f"{len(ignored)} of {len(cells)} code cells are not compared"
    for where, cell in cells:
        kinds = {output.output_type for output in cell.outputs}
        if "error" in kinds and "raises-exception" not in tags(cell):
            yield where, "a stored error"
        if "raises-exception" in tags(cell) and "error" not in kinds:
            yield where, "tagged raises-exception, but no error is stored"
        if "nbval-skip" in tags(cell):
            yield where, "nbval-skip: every cell runs"


def headings(notebook):
    levels = []
    for number, cell in enumerate(notebook.cells):
        if cell.cell_type != "markdown":
            continue
        for mark, title in re.findall(
            r"^(#{1,6}) +(.+)$", FENCE.sub("", cell.source), re.M
        ):
            levels.append((len(mark), at(number, cell), title))
    first = notebook.cells[0]
    if first.cell_type != "markdown" or not first.source.startswith("# "):
        yield "", "the first cell must begin with the only '# ' heading"
    for (before, _, _), (level, where, title) in pairwise(levels):
        if level == 1:
            yield where, f"a second '# ' heading: {title!r}"
        elif level > before + 1:
            yield where, f"heading level jumps from {before} to {level}: {title!r}"


def prose(notebook):
    run = 0
    for number, cell in enumerate(notebook.cells):
        if cell.cell_type == "markdown":
            run = 0
            text = FENCE.sub("", cell.source)
            if MYST_ONLY.search(cell.source):
                yield (
                    at(number, cell),
                    "MyST syntax that Colab and JupyterLab do not render",
                )
            if text.count("<details") != text.count("</details>"):
                yield at(number, cell), "a <details> that is not closed in its cell"
            for alt, target in re.findall(r"!\[([^\]]*)\]\(([^)]*)\)", text):
                if len(alt.split()) < 3:
                    yield at(number, cell), f"image {target!r} without alt text"
            if ABSOLUTE.search(text):
                yield at(number, cell), f"absolute path {ABSOLUTE.search(text)[0]!r}"
        elif not {"remove-cell", "hide-cell"} & set(tags(cell)):
            run += 1
            if run > 2:
                yield at(number, cell), "a third code cell in a row without prose"
    required = ["## Exercises", "## What we know now"]
    everything = "\n".join(
        c.source for c in notebook.cells if c.cell_type == "markdown"
    )
    for title in required:
        if not re.search(rf"^{title}", everything, re.M):
            yield "", f"no section {title!r}"


def sources(notebook):
    for where, cell in code_cells(notebook):
        for line in cell.source.splitlines():
            # The install command of the first cell carries the repository's address.
            if len(line) > MAX_LINE and cell.get("id") != "setup-colab":
                yield where, f"line of {len(line)} columns: {line[:40]!r}..."
        if ABSOLUTE.search(cell.source):
            yield where, f"absolute path {ABSOLUTE.search(cell.source)[0]!r}"
        if "pyplot" in cell.source:
            yield where, "draw with book.Figure, which brings alt text and dark mode"


def outputs(notebook):
    for where, cell in code_cells(notebook):
        for kind, text in texts(cell):
            if kind == "stderr":
                yield where, f"stored stderr: {text.splitlines()[0][:60]!r}"
            plain = kind in ("stdout", "text/plain")
            lines = text.splitlines()
            if plain and len(lines) > MAX_OUTPUT_LINES:
                yield where, f"output of {len(lines)} lines; at most {MAX_OUTPUT_LINES}"
            if plain and any(len(line) > MAX_LINE for line in lines):
                widest = max(len(line) for line in lines)
                yield where, f"output line of {widest} columns; at most {MAX_LINE}"
            if ABSOLUTE.search(text):
                yield (
                    where,
                    f"output with an absolute path {ABSOLUTE.search(text)[0]!r}",
                )
            for what, pattern in VOLATILE.items():
                if plain and pattern.search(text):
                    yield where, f"output with {what}: {pattern.search(text)[0]!r}"


def figures(notebook):
    for where, cell in code_cells(notebook):
        alt = cell.metadata.get("mystnb", {}).get("image", {}).get("alt", "")
        for output in cell.outputs:
            data = output.get("data", {})
            bare = [k for k in data if k.startswith("image/")]
            if bare and len(alt.split()) < 4:
                yield (
                    where,
                    f"{bare[0]} without alt text (cell metadata mystnb.image.alt)",
                )
            markup = data.get("text/html", "")
            for svg in re.findall(r"<svg\b[^>]*>", markup):
                if not enough_words(svg, "aria-label"):
                    yield where, "an <svg> without a telling aria-label"
            for img in re.findall(r"<img\b[^>]*>", markup):
                if not enough_words(img, "alt"):
                    yield where, "an <img> without a telling alt"


def enough_words(tag: str, attribute: str) -> bool:
    found = re.search(rf'{attribute}="([^"]*)"', tag)
    return bool(found) and len(html.unescape(found[1]).split()) >= 4


def main() -> int:
    chapters = Path(__file__).resolve().parent.parent / "chapters"
    found = [
        line for path in sorted(chapters.glob("*.ipynb")) for line in problems(path)
    ]
    print(
        "\n".join(found)
        or f"notebook rules: {len(list(chapters.glob('*.ipynb')))} kept"
    )
    return bool(found)


if __name__ == "__main__":
    raise SystemExit(main())
