"""tools/stamp.py: one address in _config.yml, its copies elsewhere, nothing else."""

import json
import shutil
from pathlib import Path

import pytest

from tools import stamp

ROOT = Path(__file__).resolve().parent.parent
ME = "https://github.com/me-2/my.book"
CONFIG = """\
title: T
html:
  url: untouched # another block's key
# The one place.
repository:
  url: https://github.com/old/book  # here
  branch: main

  path_to_book: ""
launch_buttons:
  branch: untouched
"""
README = """\
[Online][book], [Colab][colab 01_one], [other]

```shell
git clone https://github.com/old/book && cd book
    git clone https://github.com/old/book && cd book
```

[book]: https://old.github.io/book/
[colab 01_one]: https://colab.research.google.com/github/old/book/blob/main/chapters/01_one.ipynb
[other]: https://github.com/old/book/of-someone-else
"""
CITATION = 'title: T\nrepository-code: "x"\nurl: "x"\nreferences-url: "x"\n'
PROJECT = '[project.urls]\nHomepage = "x"\nRepository = "x"\n[tool.x]\nhome = "x"\n'


def install(address: str = "https://github.com/old/book@main") -> str:
    return f'    %pip install -q "minigpt[book] @ git+{address}"'


def notebook(*cells: tuple[str, str]) -> str:
    made = [
        {
            "cell_type": "code",
            "execution_count": 1,
            "id": ident,
            "metadata": {},
            "outputs": [{"name": "stdout", "output_type": "stream", "text": ["é 1\n"]}],
            "source": source.splitlines(keepends=True),
        }
        for ident, source in cells
    ]
    whole = {"cells": made, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(whole, indent=1, ensure_ascii=False, sort_keys=True) + "\n"


@pytest.fixture(autouse=True)
def no_address_in_the_environment(monkeypatch):
    for name in ("BOOK_REPOSITORY_URL", "BOOK_REPOSITORY_BRANCH"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def book(tmp_path: Path) -> Path:
    (tmp_path / "chapters").mkdir()
    setup = f'import sys\n\nif "google.colab" in sys.modules:\n{install()}'
    texts = {
        "_config.yml": CONFIG,
        "README.md": README,
        "index.md": "# T\n\ngit clone https://github.com/old/book && cd book\n",
        "CITATION.cff": CITATION,
        "pyproject.toml": PROJECT,
        "chapters/01_one.ipynb": notebook(("setup-colab", setup), ("a", "'고양이'")),
        "chapters/02_two.ipynb": notebook(("setup-colab", setup)),
    }
    for name, text in texts.items():
        (tmp_path / name).write_bytes(text.encode())
    return tmp_path


def run(root: Path, *arguments: str) -> int:
    return stamp.main([*arguments, "--root", str(root)])


def read(root: Path) -> dict[str, str]:
    files = [path for path in root.rglob("*") if path.is_file()]
    return {p.relative_to(root).as_posix(): p.read_bytes().decode() for p in files}


def test_repository_is_stamped():
    assert stamp.main(["--check"]) == 0


def test_a_fork_is_stamped_everywhere_and_nothing_else_moves(book):
    before = read(book)
    assert run(book, "--repo", ME, "--branch", "dev/x") == 0
    after = read(book)
    expected = {
        "_config.yml": [
            ("url: https://github.com/old/book ", f"url: {ME} "),
            ("branch: main", "branch: dev/x"),
        ],
        "README.md": [
            (
                "git clone https://github.com/old/book && cd book",
                f"git clone {ME} && cd my.book",
            ),
            ("https://old.github.io/book/", "https://me-2.github.io/my.book/"),
            ("/github/old/book/blob/main/", "/github/me-2/my.book/blob/dev/x/"),
        ],
        "index.md": [("https://github.com/old/book && cd book", f"{ME} && cd my.book")],
        "CITATION.cff": [
            ('repository-code: "x"', f'repository-code: "{ME}"'),
            ('\nurl: "x"', '\nurl: "https://me-2.github.io/my.book/"'),
        ],
        "pyproject.toml": [
            ('Homepage = "x"', 'Homepage = "https://me-2.github.io/my.book/"'),
            ('Repository = "x"', f'Repository = "{ME}"'),
        ],
        "chapters/01_one.ipynb": [("https://github.com/old/book@main", f"{ME}@dev/x")],
        "chapters/02_two.ipynb": [("https://github.com/old/book@main", f"{ME}@dev/x")],
    }
    assert set(after) == set(expected)
    for name, changes in expected.items():
        text = before[name]
        for old, new in changes:
            assert old in text
            text = text.replace(old, new)
        assert after[name] == text, name
    assert run(book, "--check") == 0, "and _config.yml now says so"


def test_without_options_the_config_decides(book):
    config = book / "_config.yml"
    config.write_text(CONFIG.replace("https://github.com/old/book", f"'{ME}'"), "utf-8")
    assert run(book) == 0
    assert f"git+{ME}@main" in (book / "chapters" / "02_two.ipynb").read_text("utf-8")
    assert f"url: '{ME}'  # here" in config.read_text("utf-8")


def test_the_environment_stands_for_the_options(book, monkeypatch):
    monkeypatch.setenv("BOOK_REPOSITORY_URL", ME)
    monkeypatch.setenv("BOOK_REPOSITORY_BRANCH", "trunk")
    assert run(book) == 0
    assert f"git+{ME}@trunk" in (book / "chapters" / "01_one.ipynb").read_text("utf-8")


def test_check_names_what_differs_and_writes_nothing(book, capsys):
    run(book, "--repo", ME)
    path = book / "chapters" / "02_two.ipynb"
    path.write_text(
        path.read_text("utf-8").replace(ME, "https://github.com/a/b"), "utf-8"
    )
    (book / "CITATION.cff").write_text(CITATION, "utf-8")
    before = read(book)
    capsys.readouterr()
    assert run(book, "--check") == 1
    said = capsys.readouterr().out
    assert "chapters/02_two.ipynb" in said and "CITATION.cff" in said
    assert "01_one" not in said and "make stamp" in said
    assert read(book) == before


def test_line_ends_of_a_checkout_on_windows_are_kept(book):
    for name, text in read(book).items():
        (book / name).write_bytes(text.replace("\n", "\r\n").encode())
    assert run(book, "--repo", ME) == 0
    for name, text in read(book).items():
        assert "\n" not in text.replace("\r\n", ""), name
        assert "me-2" in text, name
    assert run(book, "--check") == 0


@pytest.mark.parametrize(
    "url",
    [
        "git@github.com:me/my-book.git",
        "http://github.com/me/my-book",
        "https://github.com/me",
        "https://github.com/me/my book",
        "https://github.com/me/my-book/tree/main",
        'https://github.com/me/book"; rm -rf x',
        "https://gitlab.com/me/my-book",
        "me/my-book",
    ],
)
def test_a_wrong_address_is_refused_with_the_right_form(book, capsys, url):
    before = read(book)
    assert run(book, "--repo", url) == 1
    said = capsys.readouterr().err
    assert repr(url) in said and "https://github.com/OWNER/NAME" in said
    assert read(book) == before


@pytest.mark.parametrize("branch", ["", "a b", "-x", 'x"', "a/../b"])
def test_a_wrong_branch_is_refused(branch):
    with pytest.raises(stamp.StampError, match="branch"):
        stamp.Repository.parse(ME, branch)


@pytest.mark.parametrize(
    "url, pages",
    [
        ("https://github.com/me/my-book.git", "https://me.github.io/my-book/"),
        ("https://github.com/Me/My-Book/", "https://me.github.io/My-Book/"),
        ("https://github.com/me/me.github.io", "https://me.github.io/"),
    ],
)
def test_where_the_pages_are(url, pages):
    assert stamp.Repository.parse(url).pages == pages


@pytest.mark.parametrize(
    "cells",
    [
        [("setup", install())],
        [("setup-colab", "import sys")],
        [("setup-colab", install() + "\n" + install())],
    ],
    ids=["no cell", "no line", "two lines"],
)
def test_a_notebook_without_its_install_line_is_named(book, capsys, cells):
    (book / "chapters" / "02_two.ipynb").write_text(notebook(*cells), "utf-8")
    before = read(book)
    assert run(book, "--repo", ME) == 1
    assert "02_two.ipynb" in capsys.readouterr().err
    assert read(book) == before


def test_another_cell_is_never_changed(book, capsys):
    """The same line stands in an earlier cell: refuse rather than change that one."""
    text = notebook(("quoted", install()), ("setup-colab", install()))
    (book / "chapters" / "02_two.ipynb").write_text(text, "utf-8")
    assert run(book, "--repo", ME) == 1
    assert "02_two.ipynb" in capsys.readouterr().err


@pytest.mark.parametrize(
    "config, message",
    [("title: T\n", "`repository:` block"), ("repository:\n  branch: main\n", "url:")],
)
def test_a_config_without_the_address_is_an_error(book, capsys, config, message):
    (book / "_config.yml").write_text(config, "utf-8")
    assert run(book) == 1
    assert message in capsys.readouterr().err


def test_the_real_files_change_in_every_place(tmp_path):
    """No copy of the old address survives a stamp of this repository."""
    (tmp_path / "chapters").mkdir()
    for name in stamp.FILES:
        shutil.copy(ROOT / name, tmp_path / name)
    for path in (ROOT / "chapters").glob("*.ipynb"):
        shutil.copy(path, tmp_path / "chapters")
    old = stamp.decide(ROOT, None, None)
    assert run(tmp_path, "--repo", ME) == 0
    for name, text in read(tmp_path).items():
        assert old.slug not in text and old.pages not in text, name
