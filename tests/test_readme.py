"""README, CONTRIBUTING and the citation say what is so."""

import re
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text("utf-8")
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
DOCS = [path.read_text("utf-8") for path in sorted((ROOT / "docs").glob("*.md"))]
CHAPTERS = sorted(path.stem for path in (ROOT / "chapters").glob("[0-9]*.ipynb"))


def test_each_chapter_has_its_row_with_its_question():
    pattern = r"^\| (\d+) \| \[(\w+)\]\(chapters/(\w+)\.ipynb\) \| (.+?) \| (.+) \|$"
    rows = re.findall(pattern, README, re.M)
    assert [row[2] for row in rows] == CHAPTERS, "README's table is not the chapters"
    for number, name, stem, asked, colab in rows:
        assert stem == f"{int(number):02}_{name}"
        assert colab == f"[Colab][colab {stem}]" and f"\n[colab {stem}]: " in README
        assert "?" in asked
    assert len(re.findall(r"^\[colab \d", README, re.M)) == len(CHAPTERS)


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"])
def test_links_lead_to_files_or_definitions(name):
    text = (ROOT / name).read_text("utf-8")
    for target in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"`[^`]*`", "", text)):
        if not target.startswith("http"):
            assert (ROOT / target).exists(), target
    defined = set(re.findall(r"^\[([^\]]+)\]: ", text, re.M))
    used = set(re.findall(r"\]\[([^\]]+)\]", text))
    assert used == defined


def test_paths_that_are_named_exist():
    for text in (README, CONTRIBUTING, *DOCS):
        for name in re.findall(
            r"`([\w./-]+/|[\w./-]+\.(?:py|txt|bib|md|yml))`(?!, new)", text
        ):
            if not re.search(r"name|\.venv", name):
                assert (ROOT / name).exists(), name


def test_make_targets_that_are_named_exist():
    targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text("utf-8"), re.M)
    named = re.findall(
        r"(?:^|`)make ([a-z]+)\b", "\n".join((README, CONTRIBUTING, *DOCS)), re.M
    )
    assert {"book", "test", "train"} <= set(named)
    assert set(named) - set(targets) == set()


def test_two_commands_come_first():
    commands = re.findall(r"```(?:shell|bat)\n(.*?)```", README, re.S)
    assert commands[0].splitlines()[1] == "make book"
    assert commands[1].split() == ["make", "test"]


def test_citation_and_package_agree():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert citation["version"] == project["version"]
    assert citation["repository-code"] == project["urls"]["Repository"]
    assert citation["license"] == ["MIT", "CC-BY-4.0"]
    assert "MIT License" in (ROOT / "LICENSE").read_text("utf-8")
    text = (ROOT / "LICENSE-text").read_text("utf-8")
    assert text.startswith("Creative Commons Attribution 4.0 International")
    assert "Section 8 – Interpretation" in text, "the whole legal text"
