"""The chapter list and the navigation, drawn from `_ext/outline.yml`.

A chapter is written when `_toc.yml` lists it; until then it is shown as to come.
"""

import re
from functools import lru_cache
from html import escape
from pathlib import Path

import yaml
from docutils import nodes
from sphinx.util.docutils import SphinxDirective

from quiet_parts.reading import minutes, spoken

OUTLINE = Path(__file__).resolve().parents[1] / "outline.yml"


def setup(app):
    app.add_node(Placeholder)
    app.add_directive("chapters", ChaptersDirective)
    app.add_directive("clone", CloneDirective)
    app.connect("doctree-resolved", fill)
    app.connect("env-updated", refresh)
    app.connect("html-page-context", add_navigation, priority=400)


def read_outline() -> dict:
    return _outline(OUTLINE.stat().st_mtime_ns)


@lru_cache(maxsize=1)
def _outline(changed: int) -> dict:
    """Read once for each state of the file: every term of every page asks for it."""
    return yaml.safe_load(OUTLINE.read_text("utf-8"))


def chapter_numbers() -> dict[str, int]:
    """A chapter's name -> its number."""
    return {c["name"]: c["number"] for c in read_outline()["chapters"]}


class Placeholder(nodes.General, nodes.Element):
    """Filled by its `draw` when all pages are read and it is known which there are."""


class ChaptersDirective(SphinxDirective):
    def run(self):
        self.env.note_dependency(str(OUTLINE))
        return [Placeholder(draw=draw_chapters)]


class CloneDirective(SphinxDirective):
    """The commands that bring the book to a laptop, with the repository's address."""

    def run(self):
        url = self.config.html_theme_options["repository_url"]
        text = f"git clone {url}\ncd {url.rsplit('/', 1)[-1]}\nmake book"
        return [nodes.literal_block(text, text, language="shell")]


def refresh(app, env):
    """The landing page depends on which chapters there are: always write it anew."""
    return [env.config.root_doc]


def fill(app, doctree, docname):
    for node in list(doctree.findall(Placeholder)):
        html = node["draw"](app, docname)
        node.replace_self(nodes.raw("", html, format="html"))


def written(app) -> dict[str, str]:
    """Chapter name -> its page, for the chapters that the table of contents lists."""
    found = {}
    for page in app.env.found_docs:
        match = re.fullmatch(r"chapters/\d+_(\w+)", page)
        if match:
            found[match[1]] = page
    return found


def link(app, docname: str, page: str) -> str:
    return escape(app.builder.get_relative_uri(docname, page), quote=True)


def code_marks(text: str) -> str:
    """Escape, and turn `code` into <code>."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text))


# The chapter list -------------------------------------------------------------------

KEPT = (
    '<p class="qp-kept qp-none">What you have read is kept in this browser only. '
    '<button type="button">Forget it</button></p>'
)


def draw_chapters(app, docname: str) -> str:
    pages = written(app)
    items, total = [], 0
    for chapter in read_outline()["chapters"]:
        name, question = chapter["name"], code_marks(chapter["question"])
        number = f'<span class="qp-number">{chapter["number"]:02}</span>'
        body = f'<span class="qp-name">{name}</span><span>{question}</span>'
        if name in pages:
            href = link(app, docname, pages[name])
            time = minutes(app, pages[name]) or 0
            total += time
            body += f'<span class="qp-minutes">{time} min</span>'
            entry = f'<a href="{href}">{number}{body}</a>'
            items.append(f'<li data-page="{pages[name]}">{entry}</li>')
        else:
            later = '<span class="qp-later">to come</span>'
            items.append(
                f'<li class="qp-to-come"><div>{number}{body}{later}</div></li>'
            )
    # What was read stands here, too, where the script of the page finds it kept.
    return (
        f'<p class="qp-progress">{len(pages)} chapters, {spoken(total)} of reading. '
        "The exercises come on top.</p>"
        f'<ol class="qp-chapters">{"".join(items)}</ol>{KEPT}'
    )


# Navigation -------------------------------------------------------------------------


def add_navigation(app, pagename, templatename, context, doctree):
    """Give the templates the parts of the book, with short names."""
    site_map = app.config.external_site_map
    parts, here = [], {}
    for tree in site_map.root.subtrees:
        pages = []
        for page in map(str, tree.items):
            if page not in app.env.titles:
                continue
            entry = page_entry(app, page, pagename, context)
            pages.append(entry)
            if page == pagename:
                here = {"part": tree.caption, **entry}
        time = sum(page["minutes"] or 0 for page in pages)
        parts.append(
            {"caption": tree.caption, "pages": pages, "time": time and spoken(time)}
        )
    context["qp_parts"], context["qp_here"] = parts, here
    context["qp_after"] = after(parts)
    for side in ("prev", "next"):
        if context.get(side):
            name, _, question = context[side]["title"].partition(": ")
            context[side] = {**context[side], "name": name, "question": question}


def page_entry(app, page: str, pagename: str, context) -> dict:
    number = re.fullmatch(r"chapters/(\d+)_\w+", page)
    name, _, question = app.env.titles[page].astext().partition(": ")
    return {
        "number": number[1] if number else "",
        "name": name,
        "question": question,
        "link": context["pathto"](page),
        "current": page == pagename,
        "page": page,
        "minutes": minutes(app, page),
    }


def after(parts: list[dict]) -> str:
    """What is left of the book's part when the chapter of this page is read."""
    for part, following in zip(parts, [*parts[1:], None]):
        times = [(p["current"], p["minutes"]) for p in part["pages"] if p["minutes"]]
        here = next((i for i, (current, _) in enumerate(times) if current), None)
        if here is None:
            continue
        name = part["caption"].partition(" · ")[0]
        left = sum(time for _, time in times[here + 1 :])
        if left:
            return f"After this chapter, {spoken(left)} of {name} are left."
        if following and following["time"]:
            then = following["caption"].partition(" · ")[0]
            return f"{name} ends here. {then} takes {following['time']}."
        return "The book's chapters end here."
    return ""
