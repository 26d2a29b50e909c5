"""The tables of models.md: every cell has a source, the page is as the data say, and
what is said to be buildable is built."""

import re
import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from minigpt.attention import CausalSelfAttention  # noqa: E402
from minigpt.block import BLOCKS  # noqa: E402
from minigpt.gpt import (  # noqa: E402
    GPT,
    MLPS,
    NORMS,
    POSITIONS,
    PRESETS,
    preset,
)
from minigpt.swiglu import GATES, GatedMLP, swiglu_width  # noqa: E402
from tools import models  # noqa: E402

DATA = models.read()
ROWS = {model["name"]: model for model in DATA["models"]}
CELLS = [(name, topic) for name in ROWS for topic in models.TOPICS]
BUILDABLE = [name for name, row in ROWS.items() if row.get("ours")]
ASKED = {  # the models that the page promises
    *("Transformer", "BERT", "GPT-2", "GPT-3", "PaLM", "LLaMA", "Llama 2", "Llama 3"),
    *("Mistral", "Qwen", "Gemma", "Gemma 2", "Gemma 3", "OLMo 2", "SmolLM2"),
}


def test_the_page_is_up_to_date():
    page = models.PAGE.read_text("utf-8")
    assert models.fill(page, DATA) == page, "run: python tools/models.py"


def test_a_changed_cell_and_a_changed_page_are_seen(tmp_path, monkeypatch, capsys):
    page = tmp_path / "models.md"
    monkeypatch.setattr(models, "PAGE", page)
    page.write_text((ROOT / "models.md").read_text("utf-8"), "utf-8")
    assert models.main(["--check"]) == 0
    page.write_text(page.read_text("utf-8").replace("RMSNorm", "LayerNorm"), "utf-8")
    assert models.main(["--check"]) == 1
    assert "models.md" in capsys.readouterr().err
    assert models.main([]) == 0  # writes it anew
    assert "RMSNorm" in page.read_text("utf-8")


def test_every_model_that_was_promised_is_there():
    assert set(ROWS) >= ASKED


@pytest.mark.parametrize("name", ROWS)
def test_every_cell_has_a_source_or_says_that_it_was_not_checked(name):
    row = ROWS[name]
    assert set(row) <= {"name", "size", "paper", "ours", *models.TOPICS}
    for topic in models.TOPICS:
        cell = row[topic]
        found = models.sources(DATA, row, topic)  # raises for a source that is unknown
        if cell.get("is") == models.NOT_CHECKED:
            assert not found
        else:
            assert found
            assert models.word(row, topic)
        for source in found:
            permalink = (
                r"https://github\.com/[\w.-]+/[\w.-]+/blob/"
                r"([0-9a-f]{40}|v\d+\.\d+\.\d+)/[\w./-]+#L\d+(-L\d+)?"
            )
            in_bibliography = source.url in (ROOT / "references.bib").read_text("utf-8")
            assert in_bibliography or re.fullmatch(permalink, source.url), source


def test_lines_run_forwards():
    for name, topic in CELLS:
        for place in ROWS[name][topic].get("from", []):
            lines = [int(n) for n in re.findall(r"L(\d+)", place)]
            assert lines == sorted(lines), f"{name}, {topic}: {place}"


def test_every_file_is_used():
    used = {
        place.split(" ")[0]
        for name, topic in CELLS
        for place in ROWS[name][topic].get("from", [])
    }
    assert set(DATA["files"]) <= used | {"t2t-transformer"}


@pytest.mark.parametrize(
    "cell",
    [
        {"is": "rmsnorm"},  # no source
        {"is": "not checked", "from": ["gpt2 L1"]},  # a source, and yet not checked
        {"is": "rmsnorm", "from": ["nobody L1"]},
        {"is": "rmsnorm", "from": ["nobody2020nothing §1"]},
        {"is": "rmsnorm", "from": ["somewhere"]},
        {"is": "batchnorm", "from": ["gpt2 L28-L38"]},
    ],
)
def test_a_cell_that_is_wrong_is_refused(cell):
    row = ROWS["GPT-2"] | {"norm": cell}
    with pytest.raises(models.ModelsError, match="GPT-2, norm"):
        models.cell(DATA, row, "norm")


def test_words_are_the_books_own():
    """What minigpt has a word for is called by it; the rest is listed here."""
    ours = {
        "norm": set(NORMS),
        "place": set(BLOCKS),
        "mlp": set(MLPS) | set(GATES),
        "positions": set(POSITIONS),
    }
    foreign = {"place": {"parallel"}, "mlp": {"relu"}, "positions": {"sinusoidal"}}
    for topic, words in ours.items():
        assert set(models.SHOWN[topic]) <= words | foreign.get(topic, set()), topic
        used = {row[topic]["is"] for row in ROWS.values()}
        assert used <= set(models.SHOWN[topic])
    page = models.PAGE.read_text("utf-8")
    assert set(re.findall(r"`(post|pre|sandwich|reordered)`", page)) <= set(BLOCKS)


def test_what_is_often_told_wrongly_is_right_here():
    """The corrections: each is one cell of a table."""
    place = {name: row["place"]["is"] for name, row in ROWS.items()}
    assert place["Gemma"] == "pre"
    assert place["Gemma 2"] == place["Gemma 3"] == "sandwich"
    assert place["OLMo 2"] == "reordered"
    assert place["Transformer"] == place["BERT"] == "post"
    assert ROWS["Transformer"]["mlp"]["is"] == "relu"
    assert {ROWS[f"Gemma{n}"]["mlp"]["is"] for n in ("", " 2", " 3")} == {"geglu"}
    assert ROWS["GPT-3"]["dropout"]["is"] == "not stated"
    width = {name: models.ratio(row) for name, row in ROWS.items()}
    assert width["Llama 3"] == width["Mistral"] == 3.5
    assert width["PaLM"] == 4 and width["Gemma"] == 8
    near = {name for name, value in width.items() if abs(value - 8 / 3) < 0.03}
    assert near == {"LLaMA", "Llama 2", "Qwen", "OLMo", "OLMo 2", "SmolLM2"}


def test_widths_follow_from_the_rules_that_are_quoted():
    """Llama's rule gives the widths of its files; 8/3 is exact for 576."""
    assert swiglu_width(4096, 256) == ROWS["LLaMA"]["width"]["sizes"]["d_ff"]
    assert swiglu_width(4096, 1024, 1.3) == ROWS["Llama 3"]["width"]["sizes"]["d_ff"]
    assert swiglu_width(576) == ROWS["SmolLM2"]["width"]["sizes"]["d_ff"]
    assert swiglu_width(4096, 128) == ROWS["OLMo 2"]["width"]["sizes"]["d_ff"]


def small(name: str):
    """The row's config with its words and its width ratio, in small."""
    row = ROWS[name]
    fields = {k: v for k, v in row["ours"]["change"].items() if k not in models.SIZES}
    sizes = {"context": 12, "n_layers": 2, "n_heads": 2, "d_model": 24}
    return preset(
        row["ours"]["preset"],
        vocab_size=40,
        **fields,
        **sizes,
        d_ff=round(24 * models.ratio(row)),
    )


@pytest.mark.parametrize("name", BUILDABLE)
def test_what_is_said_to_be_buildable_is_built(name):
    """The model or its block runs, and is of the kinds that the row names."""
    row, tokens = ROWS[name], torch.arange(12)[None]
    torch.manual_seed(0)
    if "block" in row["ours"]:
        words = row["ours"]["block"]
        assert words["order"] == row["place"]["is"]
        assert words["norm"] == row["norm"]["is"]
        assert words["gate"] == row["mlp"]["is"]
        norms = [NORMS[words["norm"]](16, 1e-6, False) for _ in range(2)]
        mlp = GatedMLP(16, round(16 * models.ratio(row)), kind=words["gate"])
        block = BLOCKS[words["order"]](CausalSelfAttention(16, 2), mlp, *norms)
        assert block(torch.randn(1, 5, 16)).isfinite().all()
        return
    model = GPT(small(name)).eval()
    assert isinstance(model.blocks[0], BLOCKS[row["place"]["is"]])
    assert model(tokens).isfinite().all()


@pytest.mark.parametrize("name", [n for n in BUILDABLE if "preset" in ROWS[n]["ours"]])
def test_a_config_says_what_its_row_says(name):
    """Where a row and its config differ, `but` must say so."""
    row, mine = ROWS[name], ROWS[name]["ours"]
    assert mine["preset"] in PRESETS
    config = small(name)
    says = {
        "norm": config.norm == row["norm"]["is"],
        "place": config.order == row["place"]["is"],
        "mlp": config.mlp == row["mlp"]["is"],
        "positions": config.positions == row["positions"]["is"],
        "qk_norm": config.qk_norm == (row["qk_norm"]["is"] == "yes"),
        "biases": config.bias == (row["biases"]["is"] == "yes"),
        "tied": config.tie_weights == (row["tied"]["is"] == "yes"),
        "dropout": (str(config.dropout), row["dropout"]["is"])
        in {("0.1", "0.1"), ("0.0", "none")},
    }
    silent = {topic for topic, same in says.items() if not same} - set(mine["but"])
    assert not silent, f"{name}: `but` must mention {silent}"
    if "sizes" in row["width"] and "d_ff" in mine["change"]:
        assert mine["change"]["d_ff"] == row["width"]["sizes"]["d_ff"]


def test_no_cell_is_too_long_for_a_phone():
    """A word and its note, without the sources: three short lines at most."""
    for name, topic in CELLS:
        if ROWS[name][topic].get("is") != models.NOT_CHECKED:
            text = models.cell(DATA, ROWS[name], topic).split(" <small>")[0]
            assert len(text) <= 75, f"{name}, {topic}: {text}"
