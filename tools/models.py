"""Write the tables of models.md from `_data/models.yml`: who uses which parts.

    python tools/models.py           write the tables between the markers of models.md
    python tools/models.py --check   write nothing; fail if a table differs

A cell says a word and where it was read: a file of released code at one commit, or a
paper with its section. What was not checked says so, and is counted.
"""

import argparse
import re
import sys
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parent.parent
DATA = ROOT / "_data" / "models.yml"
PAGE = ROOT / "models.md"
NOT_CHECKED = "not checked"
CODE = re.compile(r"(?P<file>[\w-]+) (?P<lines>L\d+(-L\d+)?)")
PAPER = re.compile(r"(?P<key>[a-z]+\d{4}[a-z0-9]*) (?P<where>(§|App\.|Table) ?.+)")
FILE = re.compile(r"(?P<repo>[\w.-]+/[\w.-]+)@(?P<commit>[\w.]+):(?P<path>[\w./-]+)")

# A word of the data -> how a reader sees it. The words are minigpt's own where it has
# one: NORMS, BLOCKS, MLPS, GATES, POSITIONS.
SHOWN = {
    "norm": {"layernorm": "LayerNorm", "rmsnorm": "RMSNorm"},
    "place": {word: f"`{word}`" for word in ("post", "pre", "sandwich", "reordered")}
    | {"parallel": "parallel"},
    "mlp": {
        "relu": "ReLU",
        "gelu": "GELU",
        "gelu_tanh": "GELU, tanh form",
        "swiglu": "SwiGLU",
        "geglu": "GeGLU",
    },
    "positions": {
        "sinusoidal": "sinusoidal",
        "learned": "learned",
        "rotary": "rotary",
    },
    "qk_norm": {"yes": "yes", "no": "no"},
    "biases": {"yes": "yes", "none": "none", "partly": "partly"},
    "tied": {"yes": "yes", "no": "no"},
    "dropout": {"0.1": "0.1", "none": "none", "not stated": "not stated"},
}
TABLES = {  # name: what the caption says, {topic: head}
    "norm": (
        "which norm, and where in the block",
        {"norm": "Norm", "place": "Place"},
    ),
    "mlp": (
        "which MLP, and its inner width in widths of the stream",
        {"mlp": "MLP", "width": "d_ff / d_model"},
    ),
    "positions": (
        "how a token's place enters, and whether queries and keys are normalised",
        {"positions": "Positions", "qk_norm": "QK-norm"},
    ),
    "dropout": (
        "dropout in pretraining, and which linear maps have a bias",
        {"dropout": "Dropout", "biases": "Biases"},
    ),
    "tied": (
        "whether the head is the token embedding's matrix",
        {"tied": "One matrix"},
    ),
}
TOPICS = [topic for _, heads in TABLES.values() for topic in heads]


class ModelsError(Exception):
    """What is wrong in the data, and in which cell."""


@dataclass(frozen=True)
class Source:
    """One place where a cell was read."""

    text: str
    url: str


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing")
    args = parser.parse_args(argv)
    try:
        before = PAGE.read_text("utf-8")
        after = fill(before, read())
    except ModelsError as error:
        print(f"models: {error}", file=sys.stderr)
        return 1
    if before == after:
        return 0
    if args.check:
        print(
            "models: models.md differs from its data: run python tools/models.py",
            file=sys.stderr,
        )
        return 1
    PAGE.write_text(after, "utf-8", newline="\n")
    print("models: wrote models.md")
    return 0


def read() -> dict:
    return yaml.safe_load(DATA.read_text("utf-8"))


def fill(page: str, data: dict) -> str:
    """The page with every table between its two markers written anew."""
    parts = {name: table(data, name) for name in TABLES}
    parts |= {"norms": norms(data), "mlps": mlps(data)}
    parts |= {"ours": ours(data), "open": unchecked(data)}
    for name, text in parts.items():
        begin, end = f"<!-- {name}: written by tools/models.py -->", f"<!-- /{name} -->"
        if page.count(begin) != 1 or page.count(end) != 1:
            raise ModelsError(f"models.md needs the markers {begin} and {end} once")
        head, rest = page.split(begin)
        page = f"{head}{begin}\n\n{text}\n\n{end}{rest.split(end)[1]}"
    return page


def table(data: dict, name: str) -> str:
    """One narrow table: a row for each model, its words and their sources."""
    caption, heads = TABLES[name]
    rows = [
        [label(model), *(cell(data, model, topic) for topic in heads)]
        for model in data["models"]
    ]
    caption = f"{len(rows)} models: {caption}"
    return markdown(caption, ["Model", *heads.values()], rows)


def ours(data: dict) -> str:
    """How minigpt builds each model, and what then differs."""
    rows = [
        [model["name"], recipe(model), difference(model)] for model in data["models"]
    ]
    return markdown(
        "What minigpt builds of them", ["Model", "In minigpt", "Theirs has"], rows
    )


def norms(data: dict) -> str:
    """LayerNorm and RMSNorm side by side."""
    rows = [
        ["mean", "subtracted", "left alone"],
        ["divides by", "standard deviation", "root mean square"],
        ["learned", "gain and shift; in PaLM gain; in OLMo nothing", "gain"],
        ["models", users(data, "norm", "layernorm"), users(data, "norm", "rmsnorm")],
    ]
    return markdown("Two norms", ["What", "LayerNorm", "RMSNorm"], rows)


def mlps(data: dict) -> str:
    """The plain and the gated MLP side by side."""
    kinds = {"plain": ("relu", "gelu", "gelu_tanh"), "gated": ("swiglu", "geglu")}
    widths, models = [], []
    for words in kinds.values():
        ratios = [ratio(m) for m in data["models"] if m["mlp"]["is"] in words]
        ends = sorted({f"{r:.2f}".rstrip("0").rstrip(".") for r in ratios}, key=float)
        widths.append(" to ".join(dict.fromkeys((ends[0], ends[-1]))))
        named = ((SHOWN["mlp"][word], users(data, "mlp", word)) for word in words)
        models.append("; ".join(f"{shown}: {names}" for shown, names in named))
    rows = [
        ["matrices", "up, down", "gate, up, down"],
        ["d_ff / d_model", *widths],
        [
            "factor",
            "none",
            "[not held between 0 and 1](chapters/10_swiglu.ipynb)",
        ],
        ["models", *models],
    ]
    return markdown("Two MLPs", ["What", "Plain", "Gated"], rows)


def users(data: dict, topic: str, word: str) -> str:
    """The models of the tables that have this word."""
    return ", ".join(m["name"] for m in data["models"] if m[topic]["is"] == word)


def markdown(caption: str, heads: list[str], rows: list[list[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    body = "\n".join("| " + " | ".join(cells) + " |" for cells in lines)
    return f":::{{table}} {caption}\n:class: qp-models\n\n{body}\n:::"


def label(model: dict) -> str:
    return f"{model['name']} <small>{model['size']}</small>"


def cell(data: dict, model: dict, topic: str) -> str:
    """A cell as Markdown: its word, its note, and links to where they were read."""
    found, places = model[topic], sources(data, model, topic)
    if not places:
        return f"*{NOT_CHECKED}*"
    text = word(model, topic)
    if found.get("note"):
        text += f", {found['note']}"
    links = ", ".join(f"[{source.text}]({source.url})" for source in places)
    return f"{text} <small>{links}</small>"


def word(model: dict, topic: str) -> str:
    """What a cell says, as a reader sees it."""
    found = model[topic]
    if topic != "width":
        shown = SHOWN[topic].get(found["is"])
        if shown is None:
            raise ModelsError(f"{model['name']}, {topic}: unknown word {found['is']!r}")
        return shown
    if "sizes" not in found:
        return found["is"]
    sizes = found["sizes"]
    exact = f"{ratio(model):.2f}".rstrip("0").rstrip(".")
    return f"{exact} ({sizes['d_ff']:,} / {sizes['d_model']:,})"


def ratio(model: dict) -> float:
    """d_ff / d_model of a row."""
    found = model["width"]
    if "sizes" in found:
        return found["sizes"]["d_ff"] / found["sizes"]["d_model"]
    return float(Fraction(found["is"]))


def sources(data: dict, model: dict, topic: str) -> list[Source]:
    """Where a cell was read; none for a cell that was not checked."""
    where = f"{model['name']}, {topic}"
    places = model[topic].get("from", [])
    if bool(places) == (model[topic].get("is") == NOT_CHECKED):
        raise ModelsError(f"{where}: needs a source, or must be {NOT_CHECKED!r}")
    return [source(data, model, place, where) for place in places]


def source(data: dict, model: dict, place: str, where: str) -> Source:
    """The link for `file L1-L9` or `key §1`."""
    code = CODE.fullmatch(place)
    if code:
        if code["file"] not in data["files"]:
            raise ModelsError(f"{where}: {code['file']!r} is not among the files")
        address = FILE.fullmatch(data["files"][code["file"]])
        first = code["lines"].split("-")[0][1:]
        url = (
            f"https://github.com/{address['repo']}/blob/{address['commit']}/"
            f"{address['path']}#{code['lines']}"
        )
        return Source(f"{Path(address['path']).name}:{first}", url)
    paper = PAPER.fullmatch(place)
    if not paper:
        raise ModelsError(f"{where}: {place!r} is neither `file L1-L9` nor `key §1`")
    url = address_of(paper["key"])
    if url is None:
        raise ModelsError(f"{where}: references.bib has no entry {paper['key']!r}")
    whose = "paper" if paper["key"] == model.get("paper") else author(paper["key"])
    return Source(f"{whose} {paper['where']}", url)


def author(key: str) -> str:
    """`touvron2023llama` -> `Touvron 2023`."""
    name, year = re.match(r"([a-z]+)(\d{4})", key).groups()
    return f"{name.capitalize()} {year}"


def address_of(key: str) -> str | None:
    """The `url` of an entry of the bibliography."""
    text = (ROOT / "references.bib").read_text("utf-8")
    entry = re.search(rf"^@\w+\{{{re.escape(key)},$(.*?)^\}}$", text, re.M | re.S)
    return entry and re.search(r"^  url = \{(.+?)\}", entry[1], re.M)[1]


SIZES = {"context", "n_layers", "n_heads", "d_model", "d_ff"}


def recipe(model: dict) -> str:
    """The preset and the words that change it, or the block; sizes are left out."""
    mine = model.get("ours")
    if mine is None:
        return "no"
    if "block" in mine:
        block = mine["block"]
        gate = f'`GatedMLP(kind="{block["gate"]}")`'
        return f"the block: `{block['order']}`, {SHOWN['norm'][block['norm']]}, {gate}"
    changes = [
        f"`{name}={value!r}`".replace("'", '"')
        for name, value in mine["change"].items()
        if name not in SIZES
    ]
    return ", ".join([f"`{mine['preset']}`", *changes])


def difference(model: dict) -> str:
    mine = model.get("ours")
    if mine is None:
        return "one norm for attention and MLP, which are added together"
    return "; ".join(mine["but"].values()) or "no other parts"


def unchecked(data: dict) -> str:
    """A list of the cells that nobody has looked up."""
    heads = {topic: head for _, hs in TABLES.values() for topic, head in hs.items()}
    cells = [
        f"{model['name']}: {heads[topic]}"
        for model in data["models"]
        for topic in TOPICS
        if model[topic].get("is") == NOT_CHECKED
    ]
    total = len(data["models"]) * len(TOPICS)
    return f"Not checked, {len(cells)} of {total} cells: " + "; ".join(cells) + "."


if __name__ == "__main__":
    sys.exit(main())
