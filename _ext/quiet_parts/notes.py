"""Notes that open in place: what a citation cites, and what a term means.

A chapter cites by a plain link, and a term's first use links to the glossary; so they
stay where scripts are off, and in Colab. On the site each such link gets `data-note`,
the name of a `<template>` at the end of the page: the work's entry in `references.bib`,
or the glossary's sentence. `_assets/quiet-parts/notes.js` shows it beside the line or
below it. A page holds the notes of its own links only.
"""

import re
from html import escape, unescape
from pathlib import Path

from docutils import nodes

from quiet_parts import glossary
from quiet_parts.outline import chapter_numbers
from quiet_parts.sources import authors, entries, plain, same

LINK = re.compile(r'<a class="(?P<class>[^"]*)" href="(?P<href>[^"]*)"')
REFERENCES = "references"
SCRIPT = "quiet-parts/notes.js"


def setup(app):
    app.connect("doctree-read", depend)
    app.connect("html-page-context", add_notes, priority=600)


def depend(app, doctree):
    """A page that cites is written anew when an entry changes."""
    app.env.note_dependency(str(Path(app.srcdir) / "references.bib"))


def add_notes(app, pagename, templatename, context, doctree):
    """Name the links of a page that have a note, and put the notes at its end."""
    apart = (REFERENCES, glossary.PAGE)
    if doctree is None or app.builder.name != "html" or pagename in apart:
        return
    works, terms, notes = read_works(app), read_terms(app), {}

    def name(found):
        kinds, href = found["class"].split(), unescape(found["href"])
        key = works.get(same(href))
        if "qp-term" in kinds:
            term = href.partition("#")[2]
            notes[term] = note_of_term(app, pagename, term, *terms[term])
        elif "external" in kinds and key:
            term = f"cite-{nodes.make_id(key[0])}"
            notes[term] = note_of_work(app, pagename, *key)
        else:
            return found[0]
        return f'{found[0]} data-note="{term}"'

    body = LINK.sub(name, context["body"])
    if notes:
        context["body"] = body + "".join(
            f'<template id="note-{key}">{note}</template>\n'
            for key, note in sorted(notes.items())
        )
        app.add_js_file(SCRIPT, loading_method="defer")


def line(kind: str, html: str) -> str:
    """A line of a note; a note stands inside a paragraph, where only spans may."""
    return f'<span class="qp-note-{kind}">{html}</span>'


def link(app, here: str, page: str, anchor: str, words: str) -> str:
    href = app.builder.get_relative_uri(here, page) + (f"#{anchor}" if anchor else "")
    return f'<a href="{escape(href, quote=True)}">{words}</a>'


# Works ------------------------------------------------------------------------------


def read_works(app) -> dict[str, tuple]:
    """What an address names -> key and entry of the bibliography, read once a build."""
    if not hasattr(app, "qp_works"):
        listed = REFERENCES in app.env.found_docs
        found = entries(Path(app.srcdir) / "references.bib") if listed else {}
        app.qp_works = {
            same(address(entry)): (key, entry) for key, entry in found.items()
        }
    return app.qp_works


def address(entry) -> str:
    return entry.fields.get("url") or f"https://doi.org/{entry.fields['doi']}"


def note_of_work(app, here: str, key: str, entry) -> str:
    fields = {name: plain(value) for name, value in entry.fields.items()}
    venue = next((fields[f] for f in ("booktitle", "journal") if f in fields), "")
    venue = venue or fields.get("howpublished", "")
    paper = f'<a href="{escape(address(entry), quote=True)}">Read the source</a>'
    listed = link(app, here, REFERENCES, nodes.make_id(key), "In the references")
    return (
        line("head", f"<cite>{escape(fields['title'].rstrip('.'))}</cite>")
        + line("text", f"{escape(authors(entry))}, {fields['year']}")
        + (line("text", escape(venue)) if venue else "")
        + line("foot", f"{paper} {listed}")
    )


# Terms ------------------------------------------------------------------------------


def read_terms(app) -> dict[str, tuple[dict, str]]:
    """The id of a term -> its entry, and its sentence as HTML; read once a build."""
    if glossary.PAGE not in app.env.found_docs:
        return {}
    if not hasattr(app, "qp_terms"):
        page = Path(app.srcdir) / f"{glossary.PAGE}.md"
        known = {glossary.anchor(e): e for e in glossary.read_terms(page)}
        app.qp_terms = {}
        tree = app.env.get_doctree(glossary.PAGE)
        for item in tree.findall(nodes.definition_list_item):
            term, sentence = item[0], item[-1][0]
            html = app.builder.render_partial(sentence)["fragment"]
            html = re.sub(r"^\s*<p>|</p>\s*$", "", html)
            app.qp_terms[term["ids"][0]] = (known[term["ids"][0]], html)
    return app.qp_terms


def note_of_term(app, here: str, anchor: str, entry: dict, sentence: str) -> str:
    head, korean = escape(entry["term"]), entry.get("korean", entry["term"])
    head = f"<strong>{head}</strong>"
    if korean != entry["term"]:
        head += f' <span class="qp-korean" lang="ko">{escape(korean)}</span>'
    foot = link(app, here, glossary.PAGE, anchor, "In the glossary")
    page = chapter(entry)
    if page and page[1] != here and page[1] in app.env.found_docs:
        foot += f" {link(app, here, page[1], '', f'chapter {page[0]}')}"
    return line("head", head) + line("text", sentence) + line("foot", foot)


def chapter(entry: dict) -> tuple[int, str] | None:
    """Number and page of the chapter that builds what the term means."""
    name = entry.get("chapter")
    number = chapter_numbers().get(name)
    return None if number is None else (number, f"chapters/{number:02}_{name}")
