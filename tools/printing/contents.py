"""What goes into the printed book: its pages in order, and what stands before them."""

import re
import subprocess
import tomllib
from dataclasses import asdict, dataclass
from html import escape
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]
SUBJECT = "What lets a deep transformer train"
LEFT_OUT = {"status"}  # tells of the site at one moment
WITHOUT_SECTIONS = {"index", "claims", "glossary", "references"}


@dataclass(frozen=True)
class Page:
    """One page of the site, as a chapter of the book."""

    name: str  # its address without .html
    part: str
    number: int | None
    title: str = ""  # another than the page's own
    sections: bool = True  # whether the contents name its sections


def pages() -> list[Page]:
    toc = yaml.safe_load((ROOT / "_toc.yml").read_text("utf-8"))
    found = [Page(toc["root"], "", None, "What this book does", sections=False)]
    for part in toc["parts"]:
        for chapter in part["chapters"]:
            name = chapter["file"]
            number = re.match(r"chapters/(\d+)_", name)
            if name not in LEFT_OUT:
                page = Page(
                    name,
                    part["caption"],
                    int(number[1]) if number else None,
                    sections=name not in WITHOUT_SECTIONS,
                )
                found.append(page)
    return found


def settings(all_code: bool) -> dict:
    """What the script that puts the book together needs to know of it."""
    config = yaml.safe_load((ROOT / "_config.yml").read_text("utf-8"))
    bibliography = (ROOT / "references.bib").read_text("utf-8")
    return {
        "title": config["title"],
        "pages": [asdict(page) for page in pages()],
        "names": [page.name for page in pages()],
        "address": address(),
        "repository": config["repository"]["url"],
        "works": re.findall(r"\burl\s*=\s*\{([^}]+)\}", bibliography),
        "allCode": all_code,
    }


def project() -> dict:
    return tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]


def address() -> str:
    """Where the site stands, with a slash at the end."""
    return project()["urls"]["Homepage"].rstrip("/") + "/"


def edition() -> str:
    """Version, and the commit with its date where git knows them."""
    words = f"Version {project()['version']}"
    command = ["git", "log", "-1", "--format=%cs, commit %h"]
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    except OSError:
        return words
    return f"{words}, {done.stdout.strip()}" if done.stdout.strip() else words


def author() -> str:
    return yaml.safe_load((ROOT / "_config.yml").read_text("utf-8"))["author"]


def front(all_code: bool) -> str:
    """Title page, what the reader needs to know, and the frame of the contents."""
    left_out = "" if all_code else DRAWING
    where = f'<a href="{escape(address())}">{escape(address())}</a>'
    return f"""
<section class="book-cover">
  <img src="/_static/logo.svg" alt="">
  <p class="book-title">The Quiet Parts</p>
  <p class="book-tagline">{SUBJECT}</p>
  <p class="book-imprint">{escape(author())}<br>{escape(edition())}<br>{where}</p>
</section>
<section class="book-about bd-article">
  <h1>About this edition</h1>
  <p>These are the pages of {where}, set for paper. There the figures move, every
  chapter opens as a notebook, and each answer is folded until it is wanted.</p>
  <ul>
    <li>An arrow with a number, <span class="book-page">→ 41</span>, is the page that a
    link leads to.</li>
    <li>Behind a sentence that the book claims stands ✓ where a cell measured it, §
    where a source says it. The chapter <a href="#claims">Claims</a> lists the
    evidence.</li>
    <li>Quizzes and exercises are answered at the end, <a href="#hints">hints</a> apart
    from <a href="#solutions">solutions</a>. The answer to a prediction stands below the
    experiment: cover it.</li>
    <li>A figure that moves on the site is shown at one setting, named above it.</li>
    <li>Where a line of code is too long for the page, ↩ marks the place; it is one
    line all the same.{left_out}</li>
    <li>The works that a chapter cites stand in the
    <a href="#references">references</a>; other addresses, at the end of the
    chapter.</li>
  </ul>
  <p>Text and figures may be shared and changed under the licence
  <a href="https://creativecommons.org/licenses/by/4.0/">CC BY 4.0</a>, code under the
  MIT licence.</p>
</section>
<section class="book-contents bd-article"><h1>Contents</h1>
<nav id="contents-list" aria-label="Contents"></nav></section>
"""


DRAWING = """ Code that only draws a figure is left out; it is in the
    chapter's notebook."""
