"""Write the repository's address into every place that needs it: `make stamp REPO=...`.

    python tools/stamp.py                        from `repository:` in _config.yml
    python tools/stamp.py --repo URL [--branch B]    into _config.yml, too
    python tools/stamp.py --check                write nothing; fail if a file differs

The address is decided in `_config.yml`. A notebook that Colab opens, the README, the
citation file and the package's metadata cannot read it there, so they carry a copy.
`BOOK_REPOSITORY_URL` and `BOOK_REPOSITORY_BRANCH` in the environment stand for the two
options. Only the standard library is used, and only the address changes in a file: its
formatting, its line ends and a notebook's outputs stay as they are.
"""

import argparse
import json
import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CELL = "setup-colab"
INSTALL = re.compile(r'(%pip install -q "minigpt\[book\] @ git\+)[^"]*(")')


class StampError(Exception):
    """What is wrong, and where."""


@dataclass(frozen=True)
class Repository:
    """A repository on GitHub: where Colab and GitHub Pages find the book."""

    url: str
    branch: str = "main"

    @classmethod
    def parse(cls, url: str, branch: str = "main") -> "Repository":
        found = re.fullmatch(
            r"https://github\.com/([\w-]+)/([\w.-]+?)(?:\.git)?/?", url, re.ASCII
        )
        if not found:
            raise StampError(
                f"repository url {url!r} is not https://github.com/OWNER/NAME, "
                "from where Colab opens notebooks without a password"
            )
        if not re.fullmatch(r"\w[\w./-]*", branch, re.ASCII) or ".." in branch:
            raise StampError(f"branch {branch!r} is not a branch's name")
        return cls(f"https://github.com/{found[1]}/{found[2]}", branch)

    @property
    def slug(self) -> str:
        return self.url.removeprefix("https://github.com/")

    @property
    def pages(self) -> str:
        """Where GitHub Pages shows the built book."""
        owner, name = self.slug.split("/")
        host = f"{owner.lower()}.github.io"
        return f"https://{host}/" if name.lower() == host else f"https://{host}/{name}/"

    def colab(self, chapter: str) -> str:
        host = "https://colab.research.google.com/github"
        return f"{host}/{self.slug}/blob/{self.branch}/chapters/{chapter}.ipynb"


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repo", default=os.environ.get("BOOK_REPOSITORY_URL"))
    parser.add_argument("--branch", default=os.environ.get("BOOK_REPOSITORY_BRANCH"))
    parser.add_argument("--check", action="store_true", help="compare, write nothing")
    parser.add_argument("--root", type=Path, default=ROOT, help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    try:
        repository = decide(args.root, args.repo, args.branch)
        texts = stamped(args.root, repository)
    except StampError as error:
        print(f"stamp: {error}", file=sys.stderr)
        return 1
    stale = [path for path, text in texts.items() if read(path) != text]
    names = ", ".join(path.relative_to(args.root).as_posix() for path in stale)
    if args.check and stale:
        print(
            f"stamp: not {repository.url}@{repository.branch}: {names}. Run: make stamp"
        )
        return 1
    for path in stale:
        path.write_bytes(texts[path].encode())
    print(f"stamp: {repository.url}@{repository.branch}, changed: {names or 'nothing'}")
    return 0


def read(path: Path) -> str:
    """The text with its line ends as they are."""
    return path.read_bytes().decode()


def decide(root: Path, url: str | None, branch: str | None) -> Repository:
    """The repository that is asked for, or else the one that `_config.yml` names."""
    config = read(root / "_config.yml")
    url = url or setting(config, "url")
    if not url:
        raise StampError("_config.yml has no repository: url:")
    return Repository.parse(url, branch or setting(config, "branch") or "main")


def block(config: str) -> re.Match:
    found = re.search(
        r"^repository:[^\n]*\n((?:[ \t]+[^\n]*\n?|#[^\n]*\n|\r?\n)*)", config, re.M
    )
    if not found:
        raise StampError("_config.yml has no `repository:` block")
    return found


def line(key: str) -> re.Pattern:
    return re.compile(rf"""^([ \t]+{key}:[ \t]*)(["']?)([^"'#\s]*)\2""", re.M)


def setting(config: str, key: str) -> str | None:
    found = line(key).search(block(config)[1])
    return found[3] if found else None


def stamped(root: Path, to: Repository) -> dict[Path, str]:
    """Every file that carries the address, as it should be."""
    texts = {root / name: edit(read(root / name), to) for name, edit in FILES.items()}
    notebooks = sorted((root / "chapters").glob("*.ipynb"))
    return texts | {path: stamp_notebook(path, to) for path in notebooks}


def stamp_config(text: str, to: Repository) -> str:
    found = block(text)
    inner = found[1]
    for key, value in (("url", to.url), ("branch", to.branch)):
        inner, count = line(key).subn(
            lambda m, v=value: f"{m[1]}{m[2]}{v}{m[2]}", inner, count=1
        )
        if not count:
            raise StampError(f"_config.yml has no repository: {key}:")
    return text[: found.start(1)] + inner + text[found.end(1) :]


def stamp_readme(text: str, to: Repository) -> str:
    """Link definitions, `[name]: address`, and the clone command."""
    links = {
        "book": to.pages,
        "issues": f"{to.url}/issues",
        "tests": f"{to.url}/actions/workflows/publish.yml",
        "badge": f"{to.url}/actions/workflows/publish.yml/badge.svg?branch={to.branch}",
    }

    def link(found: re.Match) -> str:
        name = found[1]
        if name.startswith("colab "):
            return f"[{name}]: {to.colab(name.removeprefix('colab '))}"
        return f"[{name}]: {links[name]}" if name in links else found[0]

    text = re.sub(r"^\[([^\]]+)\]: \S+", link, text, flags=re.M)
    return stamp_clone(text, to)


def stamp_clone(text: str, to: Repository) -> str:
    """`git clone ADDRESS && cd NAME`."""
    name = to.slug.split("/")[1]
    clone = re.compile(r"^([ \t]*git clone )https?://\S+( && cd )[^\s`]+", re.M)
    return clone.sub(rf"\g<1>{to.url}\g<2>{name}", text)


def stamp_citation(text: str, to: Repository) -> str:
    text = re.sub(
        r"^(repository-code: ).*?(\r?)$", rf'\g<1>"{to.url}"\2', text, flags=re.M
    )
    return re.sub(r"^(url: ).*?(\r?)$", rf'\g<1>"{to.pages}"\2', text, flags=re.M)


def stamp_project(text: str, to: Repository) -> str:
    """`[project.urls]` in pyproject.toml."""
    text = re.sub(r'^(Homepage = )"[^"]*"', rf'\g<1>"{to.pages}"', text, flags=re.M)
    return re.sub(r'^(Repository = )"[^"]*"', rf'\g<1>"{to.url}"', text, flags=re.M)


FILES = {
    "_config.yml": stamp_config,
    "README.md": stamp_readme,
    "index.md": stamp_clone,
    "CITATION.cff": stamp_citation,
    "pyproject.toml": stamp_project,
}


def stamp_notebook(path: Path, to: Repository) -> str:
    """Change one line of one cell in the text, and prove that nothing else moved."""
    text = read(path)
    notebook = json.loads(text)
    cells = [cell for cell in notebook["cells"] if cell.get("id") == CELL]
    lines = cells[0]["source"] if len(cells) == 1 else []
    places = [i for i, source in enumerate(lines) if INSTALL.search(source)]
    if len(places) != 1:
        raise StampError(
            f"{path.name}: needs one cell [{CELL}] with one line '%pip install'"
        )
    old = lines[places[0]]
    new = INSTALL.sub(rf"\g<1>{to.url}@{to.branch}\g<2>", old)
    lines[places[0]] = new
    text = text.replace(*(json.dumps(s, ensure_ascii=False) for s in (old, new)), 1)
    if json.loads(text) != notebook:
        raise StampError(f"{path.name}: the install line also stands in another cell")
    return text


if __name__ == "__main__":
    sys.exit(main())
