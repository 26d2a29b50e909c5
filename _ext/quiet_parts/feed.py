"""The page of changes and its feed, both from CHANGELOG.md.

`changes.md` holds a title; what stands below it is put there when the page is read.
Each version is an entry of feed.xml (Atom), which leads to its heading on the page.
What is not released yet is dated by the file's last commit.
"""

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from urllib.parse import urljoin
from xml.etree import ElementTree as xml

from markdown_it import MarkdownIt
from sphinx.errors import ConfigError

from quiet_parts.addresses import address, changed
from quiet_parts.settings import ROOT

LOG = ROOT / "CHANGELOG.md"
PAGE = "changes"
FEED = "feed.xml"
ATOM = "http://www.w3.org/2005/Atom"
HEADING = re.compile(r"^## \[?([^\]\s]+)\]?(?: - (\d{4}-\d\d-\d\d))?[ \t]*$", re.M)


def setup(app):
    app.connect("source-read", fill_page)
    app.connect("html-page-context", link_feed, priority=400)
    app.connect("build-finished", write_feed)


@dataclass(frozen=True)
class Release:
    """One version: what it is called, when it came, what it brought (Markdown)."""

    version: str
    date: date | None
    text: str

    @property
    def title(self) -> str:
        return f"Version {self.version}" if self.date else "Next version"

    @property
    def anchor(self) -> str:
        return "version-" + re.sub(r"\W+", "-", self.version.lower())


def read_log(text: str) -> tuple[str, list[Release]]:
    """What stands above the first version, and the versions, the newest first."""
    _, *rest = HEADING.split(text)
    opening = text[: HEADING.search(text).start()].partition("\n")[2].strip()
    releases = []
    for version, day, body in zip(rest[::3], rest[1::3], rest[2::3]):
        if not day and version != "Unreleased":
            raise ConfigError(f"{LOG.name}: version {version} has no date")
        when = date.fromisoformat(day) if day else None
        releases.append(Release(version, when, body.strip()))
    return opening, releases


def fill_page(app, docname, source):
    if docname != PAGE:
        return
    app.env.note_dependency(str(LOG))
    opening, releases = read_log(LOG.read_text("utf-8"))
    parts = [source[0].rstrip(), opening]
    for release in releases:
        day = f" · {release.date.isoformat()}" if release.date else ""
        heading = f"({release.anchor})=\n## {release.title}{day}"
        parts += [heading, release.text or "Nothing yet."]
    source[0] = "\n\n".join(parts) + "\n"


def link_feed(app, pagename, templatename, context, doctree):
    has_feed = app.config.html_baseurl and PAGE in app.env.found_docs
    context["feed"] = context["pathto"](FEED, 1) if has_feed else None


def write_feed(app, error):
    base = app.config.html_baseurl
    if error is not None or app.builder.name != "html" or not base:
        return
    if PAGE in app.env.found_docs:
        _, releases = read_log(LOG.read_text("utf-8"))
        (Path(app.outdir) / FEED).write_bytes(feed(app, releases))


def feed(app, releases: list[Release]) -> bytes:
    base, page = app.config.html_baseurl, address(app, PAGE)
    xml.register_namespace("", ATOM)
    root = xml.Element(
        f"{{{ATOM}}}feed", {"{http://www.w3.org/XML/1998/namespace}lang": "en"}
    )

    def add(parent, tag, text=None, **attributes):
        element = xml.SubElement(parent, f"{{{ATOM}}}{tag}", attributes)
        element.text = text
        return element

    times = [updated(release) for release in releases]
    add(root, "id", base + FEED)
    add(root, "title", f"{app.config.html_title}: changes")
    add(root, "updated", max(times))
    add(add(root, "author"), "name", app.config.author)
    add(root, "link", rel="self", type="application/atom+xml", href=base + FEED)
    add(root, "link", rel="alternate", type="text/html", href=page)
    add(root, "icon", f"{base}_static/favicon.svg")
    for release, time in zip(releases, times):
        entry = add(root, "entry")
        link = f"{page}#{release.anchor}"
        add(entry, "id", link)
        add(entry, "title", release.title)
        add(entry, "updated", time)
        add(entry, "link", rel="alternate", type="text/html", href=link)
        add(entry, "content", as_html(release.text, base), type="html")
    xml.indent(root)
    return xml.tostring(root, "utf-8", xml_declaration=True) + b"\n"


def updated(release: Release) -> str:
    """The day of the release in UTC, or the last change of what is to be released."""
    if release.date:
        return f"{release.date.isoformat()}T00:00:00Z"
    known = changed().get(LOG.name)
    when = datetime.fromisoformat(known) if known else None
    when = when or datetime.fromtimestamp(LOG.stat().st_mtime, UTC)
    return when.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def as_html(text: str, base: str) -> str:
    """A feed is read elsewhere: its links are absolute."""
    html = MarkdownIt().render(text)
    return re.sub(r'(?<=href=")[^"]+', lambda m: urljoin(base, m[0]), html)
