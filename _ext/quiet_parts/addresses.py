"""Where the pages are found: canonical addresses, sitemap.xml, robots.txt, 404.html.

`settings` sets the public address; without one (a repository that is not on GitHub) no
file is written that would need it. sphinx-notfound-page makes 404.html. The sitemap is
made here, because sphinx-sitemap takes its dates from an extension that warns, and so
fails the build, where there is no git: the book is also built from an archive.
"""

import subprocess
from pathlib import Path
from urllib.parse import quote
from xml.etree import ElementTree as xml

from quiet_parts.settings import ROOT

APART = {"404", "search"}  # pages for readers, not for other sites' indexes
NAMESPACE = "http://www.sitemaps.org/schemas/sitemap/0.9"


def setup(app):
    app.connect("html-page-context", set_address, priority=300)
    app.connect("build-finished", write_files)


def address(app, pagename: str) -> str | None:
    """The public address of a page, or None where there is none."""
    base = app.config.html_baseurl
    if not base or pagename in APART:
        return None
    page = "" if pagename == app.config.root_doc else f"{pagename}.html"
    return base + quote(page)


def set_address(app, pagename, templatename, context, doctree):
    context["pageurl"] = address(app, pagename)
    # It lies beside the pages where they are published; at home `make pdf` makes it.
    base = app.config.html_baseurl
    context["book_pdf"] = base and f"{base}the-quiet-parts.pdf"
    context["is_apart"] = pagename in APART


def write_files(app, error):
    if error is not None or app.builder.name != "html" or not app.config.html_baseurl:
        return
    out = Path(app.outdir)
    (out / "sitemap.xml").write_bytes(sitemap(app))
    # A crawler asks for this file at the root of a host only: it counts where the site
    # has a host of its own.
    (out / "robots.txt").write_text(
        f"User-agent: *\nDisallow:\n\nSitemap: {app.config.html_baseurl}sitemap.xml\n",
        "utf-8",
    )


def sitemap(app) -> bytes:
    xml.register_namespace("", NAMESPACE)
    root = xml.Element(f"{{{NAMESPACE}}}urlset")
    dates = changed()
    for page in sorted(app.env.found_docs):
        entry = xml.SubElement(root, f"{{{NAMESPACE}}}url")
        xml.SubElement(entry, f"{{{NAMESPACE}}}loc").text = address(app, page)
        source = Path(app.env.doc2path(page)).resolve().relative_to(ROOT).as_posix()
        if source in dates:
            xml.SubElement(entry, f"{{{NAMESPACE}}}lastmod").text = dates[source]
    xml.indent(root)
    return xml.tostring(root, "utf-8", xml_declaration=True) + b"\n"


def changed() -> dict[str, str]:
    """When each file of the repository was last committed, as far as git knows."""
    if git("rev-parse", "--is-shallow-repository") != "false":
        return {}  # no git; or only the last commit is here, which would date all files
    log = git("log", "--format=/%cI", "--name-only", "--relative", "--no-renames")
    dates, date = {}, ""
    for line in log.splitlines():
        if line.startswith("/"):
            date = line[1:]
        elif line:
            dates.setdefault(line, date)
    return dates


def git(*arguments: str) -> str:
    """What git says, or nothing where there is no git or no repository."""
    command = ["git", "-C", str(ROOT), "-c", "core.quotePath=false", *arguments]
    try:
        done = subprocess.run(command, capture_output=True, encoding="utf-8")
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
