"""The commands that build the site: what they refuse, and what they say."""

import importlib.util
import json
import os
import shutil
import subprocess
import sys

import pytest
from conftest import ROOT


def load(name):
    spec = importlib.util.spec_from_file_location(
        f"tool_{name}", ROOT / "tools" / f"{name}.py"
    )
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


vendor, builder = load("vendor"), load("site")


@pytest.fixture
def lock(tmp_path):
    """A lock file with one small package whose files are here already."""
    entry = {"integrity": "sha512-x", "folder": "lib", "site": True, "files": ["*.js"]}
    path = tmp_path / "lock.json"
    path.write_text(json.dumps({"small@1.0.0": entry}), "utf-8")
    return path


def test_second_run_fetches_nothing(tmp_path, lock, monkeypatch):
    entry = json.loads(lock.read_text("utf-8"))["small@1.0.0"]
    (tmp_path / "lib").mkdir()
    stamp = json.dumps(["small@1.0.0", entry], sort_keys=True)
    (tmp_path / "lib" / ".vendored").write_text(stamp, "utf-8")
    monkeypatch.setattr(vendor, "pack", lambda *args: pytest.fail("fetched again"))
    assert vendor.vendor(root=tmp_path, lock=lock) == []


def test_another_archive_is_refused(tmp_path, lock, monkeypatch):
    archive = tmp_path / "small.tgz"
    archive.write_bytes(b"not what was locked")
    monkeypatch.setattr(vendor, "pack", lambda *args: archive)
    with pytest.raises(vendor.VendorError, match=r"small@1.0.0 is not the archive"):
        vendor.vendor(root=tmp_path, lock=lock)
    assert not (tmp_path / "lib").exists()


def test_missing_npm_is_named(tmp_path, lock, monkeypatch):
    monkeypatch.setattr(vendor.shutil, "which", lambda name: None)
    with pytest.raises(vendor.VendorError, match=r"npm is missing.*Install Node"):
        vendor.vendor(root=tmp_path, lock=lock)


@pytest.mark.parametrize("found", ["2.1.7", None])
def test_jupyter_book_2_is_refused(monkeypatch, found):
    """H06: the message says what to install."""

    def version(name):
        if found is None:
            raise builder.PackageNotFoundError(name)
        return found

    monkeypatch.setattr(builder, "version", version)
    with pytest.raises(
        builder.SiteError, match=r"needs jupyter-book 1.*requirements\.txt"
    ):
        builder.build()


def small_book(folder, text: str):
    """A book of one page with our configuration."""
    folder.mkdir()
    for name in ("_assets", "_ext", "_static", "_templates", "minigpt", "tools"):
        shutil.copytree(ROOT / name, folder / name)
    config = (ROOT / "_config.yml").read_text("utf-8")
    (folder / "_config.yml").write_text(config, "utf-8")
    (folder / "_toc.yml").write_text("format: jb-book\nroot: index\n", "utf-8")
    (folder / "index.md").write_text(text, "utf-8")
    return folder


def run_book(folder, **environment):
    code = "from jupyter_book.cli.main import main; main()"
    command = [
        sys.executable,
        "-c",
        code,
        "build",
        str(folder),
        "-W",
        "-n",
        "--keep-going",
    ]
    return subprocess.run(
        command,
        env=os.environ | {"PYTHONUTF8": "1"} | environment,
        capture_output=True,
        text=True,
        encoding="utf-8",
        errors="replace",
    )


def test_repository_comes_from_the_environment(site, tmp_path):
    """A fork publishes its own addresses; the book names none a second time."""
    book = small_book(tmp_path / "book", "# One\n\n```{clone}\n```\n")
    done = run_book(
        book,
        BOOK_REPOSITORY_URL="https://github.com/someone/fork/",
        BOOK_REPOSITORY_BRANCH="draft",
    )
    assert done.returncode == 0, done.stdout + done.stderr
    text = (book / "_build" / "html" / "index.html").read_text("utf-8")
    assert "https://github.com/someone/fork" in text
    assert "the-quiet-parts/the-quiet-parts" not in text


def test_a_dead_link_fails_the_build(site, tmp_path):
    book = small_book(tmp_path / "book", "# One\n\n[gone](nowhere.md)\n")
    done = run_book(book)
    assert done.returncode != 0
    assert "nowhere.md" in builder.complaints(done.stdout + done.stderr)


def test_missing_libraries_fail_the_build(site, tmp_path):
    book = small_book(tmp_path / "book", "# One\n")
    shutil.rmtree(book / "_assets" / "vendor" / ".build")
    done = run_book(book)
    assert done.returncode != 0
    assert "tools/vendor.py" in done.stdout + done.stderr
