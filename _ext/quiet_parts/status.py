"""The status page: what the last run of the tests found, from `_build/status`.

`tools/status.py` gathers the results; this file shows them.
"""

import json
import sys
from html import escape
from pathlib import Path

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.util.docutils import SphinxDirective

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from tools import status

PAGE = "status"
NOT_YET = (
    "Not yet run here. `make test` runs the chapters and keeps what it finds; then "
    "`make book` shows it."
)
COLUMNS = {
    "seconds": "Time (s)",
    "peak_mib": "Peak memory (MiB)",
    "cells": "Cells run",
    "outputs": "Outputs compared",
    "verdicts": "Verdicts under other seeds",
    "measured": "Claims measured",
    "cited": "Claims cited",
}


def setup(app):
    app.add_directive("status", StatusDirective)
    app.connect("build-finished", publish)


def publish(app, error):
    """The same as data, beside the page."""
    if error is None and app.builder.name == "html" and PAGE in app.env.found_docs:
        text = json.dumps(status.gather(Path(app.srcdir)), indent=1, ensure_ascii=False)
        path = Path(app.outdir) / "status.json"
        path.write_text(text + "\n", "utf-8", newline="\n")


class StatusDirective(SphinxDirective):
    """A table of the chapters, one of the checks, and what failed."""

    def run(self):
        self.env.note_reread()  # the results are no source that Sphinx would watch
        found = status.gather(Path(self.env.srcdir))
        if not found["ran"]:
            place = nodes.container()
            lines = StringList([NOT_YET], self.env.docname)
            self.state.nested_parse(lines, 0, place)
            return list(place.children)
        html = [summary(found), failures(found), chapters(found), checks(found)]
        return [nodes.raw("", "\n".join(filter(None, html)), format="html")]


def summary(found: dict) -> str:
    """When, what and where, in words."""
    rows = found["chapters"]
    passed = sum(row["result"] == "passed" for row in rows)
    versions = [f"{escape(k)} {escape(str(v))}" for k, v in found["versions"].items()]
    lines = [
        f"<strong>{passed} of {len(rows)} chapters passed.</strong> {last(found)}",
        f"With {', '.join(versions)}, on {escape(found['machine'])}."
        if versions
        else "",
        'The same as data: <a href="status.json">status.json</a>.',
    ]
    return "".join(f'<p class="qp-status-line">{line}</p>' for line in lines if line)


def last(row: dict) -> str:
    """The date and the commit of a result, and its run if it has one."""
    if not row.get("date"):
        return ""
    words = f"{escape(row['date'])}"
    if row.get("commit"):
        words += f", commit <code>{escape(row['commit'][:7])}</code>"
        words += " with changes" if row["commit"].endswith("+") else ""
    if row.get("workflow"):
        words += f', <a href="{escape(row["workflow"], quote=True)}">log</a>'
    return words


def failures(found: dict) -> str:
    """What failed, first, each with the cell, the words and the log."""
    said = []
    for row in [*found["chapters"], *found["checks"]]:
        if row["result"] in ("passed", "left out"):
            continue
        log = row.get("workflow")
        link = f' <a href="{escape(log, quote=True)}">Its log</a>.' if log else ""
        details = "; ".join(
            f"<code>{escape(one['where'])}</code> {escape(one['message'])}"
            if one["where"]
            else escape(one["message"])
            for one in row["failed"]
        )
        words = f": {details}" if details else ""
        name = f"{escape(row['name'])} <strong>{row['result']}</strong>"
        said.append(f"<li>{name}{words}.{link}</li>")
    said += [f"<li>Damaged, and left out: {escape(d)}.</li>" for d in found["damaged"]]
    if not said:
        return ""
    listing = f"<ul>{''.join(said)}</ul>"
    return f'<section id="what-failed"><h2>What failed</h2>{listing}</section>'


def chapters(found: dict) -> str:
    header = ["Chapter", "Result", *COLUMNS.values(), "As on Colab", "Last run"]
    rows = []
    for row in found["chapters"]:
        name = escape(row["name"])
        link = f'<a href="chapters/{name}.html">{name}</a>'
        numbers = [number(row.get(key)) for key in COLUMNS]
        colab = escape(row["colab"] or "–")
        rows.append([link, result(row), *numbers, cell(colab), cell(last(row) or "–")])
    return section("The chapters", header, rows)


def checks(found: dict) -> str:
    if not found["checks"]:
        return ""
    rows = []
    for row in found["checks"]:
        values = ", ".join(f"{k} {v}" for k, v in row.get("values", {}).items())
        found_cell = cell(escape(values) or "–")
        seconds = number(row.get("seconds"))
        rows.append([escape(row["name"]), result(row), seconds, found_cell])
    return section("The other checks", ["Check", "Result", "Time (s)", "Found"], rows)


def section(title: str, header: list[str], rows: list[list[str]]) -> str:
    """A heading, and a table that scrolls in itself; a row's first cell names it."""
    head = "".join(f'<th scope="col">{h}</th>' for h in header)
    body = "".join(
        f'<tr><th scope="row">{first}</th>{"".join(rest)}</tr>' for first, *rest in rows
    )
    name = title.lower().replace(" ", "-")
    return (
        f'<section id="{name}"><h2>{title}</h2><div class="qp-table qp-status" '
        f'role="region" aria-label="{title}" tabindex="0"><table><thead><tr>{head}</tr>'
        f"</thead><tbody>{body}</tbody></table></div></section>"
    )


def cell(html: str) -> str:
    return f"<td>{html}</td>"


def number(value) -> str:
    """Right-aligned; a dash where nothing is known."""
    text = "–" if value is None else f"{value:.0f}"
    return f'<td class="text-right">{text}</td>'


def result(row: dict) -> str:
    kind = row["result"].replace(" ", "-")
    return f'<td class="qp-{kind}">{escape(row["result"])}</td>'
