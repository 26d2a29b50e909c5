"""The wheel: what it needs, what it holds, what it says when something is missing."""

import ast
import json
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from email import message_from_string
from pathlib import Path

import pytest

from tools import install_plan

ROOT = Path(__file__).resolve().parent.parent
CHAPTERS = sorted((ROOT / "chapters").glob("*.ipynb"))
# What a requirement is called in an import, where that is not its own name.
IMPORTED_AS = {"ipykernel": {"ipykernel", "IPython"}}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    """Built from a copy, so that no build folder of an earlier day gets in."""
    folder = tmp_path_factory.mktemp("wheel")
    clean = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "minigpt", folder / "minigpt", ignore=clean)
    for name in ("pyproject.toml", "README.md", "LICENSE", "LICENSE-text"):
        shutil.copy(ROOT / name, folder)
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps"]
    pip += ["--disable-pip-version-check", "--no-build-isolation", "-w", "dist", "."]
    done = subprocess.run(pip, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    (built,) = (folder / "dist").glob("*.whl")
    return built


@pytest.fixture(scope="module")
def metadata(wheel):
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (n for n in archive.namelist() if n.endswith("/METADATA"))
        return message_from_string(archive.read(name).decode())


@pytest.fixture(scope="module")
def unpacked(wheel, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("unpacked")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder


def requirement(text: str) -> str:
    return re.match(r"[\w.-]+", text)[0]


def declared(*groups: list[str]) -> set[str]:
    names = {requirement(text) for group in groups for text in group}
    return set().union(*(IMPORTED_AS.get(name, {name}) for name in names))


def project(key: str) -> list[str]:
    config = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    return (
        config["dependencies"]
        if key == "core"
        else config["optional-dependencies"][key]
    )


CORE, BOOK = declared(project("core")), declared(project("book"))


def test_no_exact_pin_is_asked_of_a_reader(metadata):
    """I02: pins rot with each change of a hosted runtime."""
    required = metadata.get_all("Requires-Dist")
    assert {requirement(text) for text in required} >= {"torch", "matplotlib"}
    ranges = [text.split(";")[0] for text in required]
    assert [text for text in ranges if re.search(r"==|~=|<", text)] == []
    assert metadata["Requires-Python"] == ">=3.11"


def test_the_wheel_holds_code_data_and_licences(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    here = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "minigpt").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert here - names == set(), "files of minigpt that a reader would not get"
    others = {name.split("/")[0] for name in names} - {"minigpt"}
    assert len(others) == 1, f"only its own metadata beside it: {others}"
    assert {"minigpt/data/", "minigpt/book/records/"} <= {
        name[: name.rindex("/") + 1] for name in names
    }
    for licence in ("LICENSE", "LICENSE-text"):
        assert any(name.endswith(f"dist-info/licenses/{licence}") for name in names)


def test_installing_it_replaces_nothing(wheel, tmp_path):
    """I01, I05: with what it needs there, pip would write minigpt and nothing else."""
    report = tmp_path / "plan.json"
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run"]
    command += ["--no-index", "--disable-pip-version-check", "--report", str(report)]
    done = subprocess.run([*command, f"{wheel}[book]"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    plan = json.loads(report.read_text("utf-8"))
    assert install_plan.changed(plan) == []
    assert {item["metadata"]["name"] for item in plan["install"]} <= {"minigpt"}


def imports(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module.split(".")[0]


def foreign(source: str) -> set[str]:
    return set(imports(ast.parse(source))) - sys.stdlib_module_names - {"minigpt"}


def test_every_import_is_declared(unpacked):
    """I03: nothing is used because it happens to be installed."""
    for path in sorted((unpacked / "minigpt").rglob("*.py")):
        used = foreign(path.read_text("utf-8"))
        assert used <= CORE | BOOK, f"{path.name}: {used - CORE - BOOK}"
        if path.parent.name != "book" and not path.name.startswith("_"):
            assert used <= CORE | {"tqdm"}, f"{path.name}: {used - CORE}"


@pytest.mark.parametrize("path", CHAPTERS, ids=lambda path: path.stem)
def test_every_import_of_a_chapter_is_declared(path):
    """I03, I04: and no chapter installs anything but in its first cell."""
    for cell in json.loads(path.read_text("utf-8"))["cells"]:
        if cell["cell_type"] != "code":
            continue
        source = "".join(cell["source"])
        installs = re.findall(r"^\s*[%!].*\b(?:install|pip|uv)\b.*$", source, re.M)
        if cell["id"] == "setup-colab":
            assert len(installs) == 1 and not re.search(r"\s-e\b", installs[0])
        else:
            assert installs == [], cell["id"]
        plain = re.sub(r"^(\s*)[%!].*$", r"\1pass", source, flags=re.M)
        used = foreign(plain) - CORE - BOOK
        assert used == set(), f"cell [{cell['id']}] imports {used}"


def python(unpacked: Path, code: str, *missing: str) -> subprocess.CompletedProcess:
    """Run code with the unpacked wheel, as if some packages were not installed."""
    block = f"import sys; sys.path.insert(0, {str(unpacked)!r})\n"
    block += f"sys.modules.update(dict.fromkeys({list(missing)!r}))\n"
    command = [sys.executable, "-P", "-c", block + code]
    return subprocess.run(command, cwd=unpacked.parent, capture_output=True, text=True)


def test_the_core_needs_no_extra(unpacked):
    """I03: every module outside minigpt.book imports without the extra's packages."""
    modules = [
        f"minigpt.{path.stem}"
        for path in sorted((unpacked / "minigpt").glob("*.py"))
        if path.stem != "__init__"
    ]
    code = f"import importlib\nfor name in {modules!r}: importlib.import_module(name)\n"
    code += "import minigpt; print(minigpt.__file__)"
    done = python(unpacked, code, *sorted(BOOK - CORE))
    assert done.returncode == 0, done.stderr
    assert Path(done.stdout.strip()).is_relative_to(unpacked)


@pytest.mark.parametrize("missing", ["matplotlib", "IPython"])
def test_a_missing_extra_is_named(unpacked, missing):
    done = python(unpacked, "import minigpt.book", missing)
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert "ModuleNotFoundError" in last and repr(missing) in last
    assert 'pip install "minigpt[book]"' in last
    assert "During handling" not in done.stderr, "one message, not two"


def test_a_missing_widget_package_is_named(unpacked):
    code = "import os; os.environ.pop('MINIGPT_STATIC', None)\n"
    code += "from minigpt import book; book.panel(lambda depth: None, depth=(1, 2))"
    assert python(unpacked, code).returncode == 0
    done = python(unpacked, code, "ipywidgets")
    assert done.returncode == 1
    assert 'pip install "minigpt[book]"' in done.stderr.strip().splitlines()[-1]


def test_importing_minigpt_is_light(unpacked):
    """It loads neither torch nor anything else that takes time."""
    code = "import minigpt, sys; print(sorted({'torch', 'numpy'} & set(sys.modules)))"
    assert python(unpacked, code).stdout.strip() == "[]"
