"""The built files, read without a browser: links, buttons, headings, outputs."""

import json
import re
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from urllib.parse import unquote, urljoin, urlsplit

import nbformat
import pytest
import yaml
from bs4 import BeautifulSoup
from conftest import PUBLIC, ROOT, chapters, documents, notebooks

VOID = {
    "area",
    "base",
    "br",
    "col",
    "hr",
    "img",
    "input",
    "link",
    "meta",
    "source",
    "wbr",
}


class Page(HTMLParser):
    """What the tests ask of a page."""

    def __init__(self, path: Path):
        super().__init__(convert_charrefs=True)
        self.ids, self.links, self.loads, self.headings = set(), [], [], []
        self.outputs, self.classes = [], set()
        self.stack, self.text = [], {}
        self.feed(path.read_text("utf-8"))

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        classes = (attributes.get("class") or "").split()
        self.classes |= set(classes)
        self.ids |= {attributes[key] for key in ("id", "name") if attributes.get(key)}
        if tag == "a" and "href" in attributes:
            self.links.append((attributes["href"], classes))
        if tag in ("img", "script", "source") and attributes.get("src"):
            self.loads.append(attributes["src"])
        if tag == "link" and attributes.get("rel") in ("stylesheet", "icon", "preload"):
            self.loads.append(attributes["href"])
        if re.fullmatch("h[1-6]", tag):
            self.headings.append((int(tag[1]), ""))
        if tag == "div" and "output" in classes:
            self.outputs.append((classes, ""))
        if tag not in VOID:
            self.stack.append((tag, "output" in classes and tag == "div"))

    def handle_endtag(self, tag):
        while self.stack and self.stack.pop()[0] != tag:
            pass

    def handle_data(self, data):
        if self.headings and any(re.fullmatch("h[1-6]", t) for t, _ in self.stack):
            level, text = self.headings[-1]
            self.headings[-1] = (level, text + data)
        if self.outputs and any(inside for _, inside in self.stack):
            classes, text = self.outputs[-1]
            self.outputs[-1] = (classes, text + data)


@pytest.fixture(scope="module")
def pages(site) -> dict[str, Page]:
    found = (p.relative_to(site).as_posix() for p in site.rglob("*.html"))
    return {name: Page(site / name) for name in found if not name.startswith("_static")}


def test_every_page_of_the_contents_is_built(pages):
    assert {f"{name}.html" for name in documents()} <= pages.keys()


def test_links_and_anchors_live(pages, site):
    """H09: every address inside the site leads to a file, and to a place in it."""
    dead = []
    for name, page in pages.items():
        for href in [link for link, _ in page.links] + page.loads:
            if name == "404.html":  # its addresses begin with the public path
                href = href.removeprefix(urlsplit(PUBLIC).path)
            parts = urlsplit(href)
            if parts.scheme or parts.netloc:
                continue
            target = unquote(urlsplit(urljoin(f"http://x/{name}", href)).path).lstrip(
                "/"
            )
            target = target or name
            anchors = pages[target].ids if target in pages else {parts.fragment}
            if not (site / target).is_file():
                dead.append(f"{name}: {href}: no such file")
            elif parts.fragment and unquote(parts.fragment) not in anchors:
                dead.append(f"{name}: {href}: no such place")
    assert not dead, "\n".join(dead)


def test_addresses_are_relative(pages):
    """H07: the site works below any path of a host."""
    found = [
        f"{name}: {href}"
        for name, page in pages.items()
        if name != "404.html"  # shown at any depth of path: test_reach.py
        for href in [link for link, _ in page.links] + page.loads
        if href.startswith("/")
    ]
    assert not found, "\n".join(found)


def test_nothing_is_loaded_from_elsewhere(pages, site):
    found = [
        f"{name}: {source}"
        for name, page in pages.items()
        for source in page.loads
        if urlsplit(source).netloc
    ]
    for name in pages:
        for url in re.findall(r"url\(\s*['\"]?([^'\")]+)", rules(site / name)):
            if urlsplit(url).netloc:
                found.append(f"{name}: {url}")
    assert not found, "\n".join(found)


def rules(path: Path) -> str:
    """The rules of style of a page, which stand in the page itself."""
    return re.search(
        r'<style id="qp-style">(.*?)</style>', path.read_text("utf-8"), re.S
    )[1]


def test_style_finds_its_fonts(site, pages):
    for name in pages:
        found = re.findall(r"url\(\s*['\"]?(?!data:)([^'\")]+)", rules(site / name))
        assert found, "the book's own font"
        for url in found:
            target = (site / name).parent / url
            if name == "404.html":  # its addresses begin with the public path
                target = site / url.removeprefix(urlsplit(PUBLIC).path)
            assert target.is_file(), f"{name}: {url}"


def test_a_page_brings_the_rules_that_it_uses(site, pages):
    """What the themes bring for other books is left out, and what pages use is not."""
    assert not list(site.rglob("*.css"))
    for name in pages:
        text = rules(site / name)
        assert len(text) < 100_000  # the themes' sheets are 480 kB
        assert ".bd-sidebar-primary" in text, name
        assert ".fa-solid" not in text and ".dropdown-menu" not in text
        html = (site / name).read_text("utf-8").replace(text, "")
        assert (".qp-controls" in text) == ("qp-controls" in html), name
        asked = set(re.findall(r"var\(\s*(--[\w-]+)", text + html))
        own = set(re.findall(r"[{;]\s*(--[\w-]+)\s*:", text))
        assert own <= asked, f"{name}: nothing asks for {sorted(own - asked)}"
    for name in (".qp-controls", ".copybtn"):
        assert name in rules(site / "chapters/08_block.html"), name
    assert "#search-results" in rules(site / "search.html")
    assert "#search-results" not in rules(site / "chapters/08_block.html")


def test_web_host_keeps_folders_with_underscore(site):
    assert (site / ".nojekyll").is_file()


def test_unused_weight_is_not_published(site):
    assert not list(site.rglob("*.map"))
    assert not list(site.rglob("fontawesome.js"))
    folders = {path.parent.name for path in site.rglob("search*.js")}
    assert folders == {"quiet-parts"}, "Sphinx's own search is not used"
    for page in ("index.html", "chapters/02_attention.html"):
        text = (site / page).read_text("utf-8")
        assert not re.search(r"searchindex|search\.json|search\.js", text)


@pytest.mark.parametrize("name", documents())
def test_headings_step_by_one(pages, name):
    """H09: one h1, first, and no level left out."""
    levels = [level for level, _ in pages[f"{name}.html"].headings]
    assert levels.count(1) == 1 and levels[0] == 1, levels
    assert all(b - a <= 1 for a, b in pairwise(levels)), levels


@pytest.mark.parametrize("name", documents())
def test_outputs_are_for_readers(pages, name):
    """H08: no stderr, no progress bar, nothing longer than 60 lines."""
    for classes, text in pages[f"{name}.html"].outputs:
        assert "stderr" not in classes, text[:200]
        assert not re.search(r"%\|.*\|", text), text[:200]
        if not {"text_html", "html"} & set(classes):
            assert text.count("\n") <= 60, text[:200]


@pytest.mark.parametrize("name", notebooks())
def test_widgets_have_their_state(site, name):
    """H01, H02: a view without stored state would be an empty place on the page."""
    notebook = nbformat.read(ROOT / f"{name}.ipynb", as_version=4)
    states = notebook.metadata.get("widgets", {})
    if states:
        stored = states["application/vnd.jupyter.widget-state+json"]["state"]
        assert isinstance(stored, dict)
    page = (site / f"{name}.html").read_text("utf-8")
    for view in re.findall(r"widget-view\+json[^>]*>(.*?)</script>", page, re.S):
        assert json.loads(view)["model_id"] in stored


def repository() -> tuple[str, str]:
    config = yaml.safe_load((ROOT / "_config.yml").read_text("utf-8"))
    return config["repository"]["url"], config["repository"]["branch"]


def test_colab_opens_every_chapter_and_nothing_else(pages):
    """H04: each link ends in a notebook of the repository, on the branch named."""
    url, branch = repository()
    start = url.replace(
        "https://github.com/", "https://colab.research.google.com/github/"
    )
    for name in documents():
        found = [h for h, _ in pages[f"{name}.html"].links if "colab.research" in h]
        if name.startswith("chapters/"):
            assert found == [f"{start}/blob/{branch}/{name}.ipynb"]
            nbformat.validate(nbformat.read(ROOT / f"{name}.ipynb", as_version=4))
        else:
            assert not found


@pytest.mark.parametrize("name", notebooks())
def test_download_is_the_repositorys_notebook(pages, site, name):
    page = pages[f"{name}.html"]
    (href,) = [h for h, classes in page.links if "qp-download" in classes]
    target = site / urlsplit(urljoin(f"http://x/{name}.html", href)).path.lstrip("/")
    assert target.read_bytes() == (ROOT / f"{name}.ipynb").read_bytes()


@pytest.mark.parametrize("name", chapters())
def test_folds_that_touch_have_different_names(site, name):
    """A solution and its check below it: which is which must be seen before opening."""
    page = BeautifulSoup((site / f"{name}.html").read_text("utf-8"), "html.parser")
    for above, below in pairwise(page.select("div.cell:has(> details.qp-fold)")):
        if above.find_next_sibling() is below and not above.select(
            ":scope > .cell_output"
        ):
            names = [cell.find("summary").get_text() for cell in (above, below)]
            assert names[0] != names[1]


@pytest.mark.parametrize("name", chapters())
def test_exported_cells_are_marked(pages, site, name):
    """Each names the module that it enters; the directive itself is not shown."""
    text = (site / f"{name}.html").read_text("utf-8")
    cells = json.loads((ROOT / f"{name}.ipynb").read_text("utf-8"))["cells"]
    exported = [
        cell
        for cell in cells
        if "".join(cell["source"]).startswith("#| export")
        and not {"remove-cell", "remove-input"} & set(cell["metadata"].get("tags", ()))
    ]
    assert text.count('<p class="qp-export-note">') == len(exported)
    for code in re.findall(r"<pre>.*?</pre>", text, re.S):
        assert not re.sub(r"<[^>]+>", "", code).startswith("#| export")
    module = re.sub(r"^\d+_", "", Path(name).name)
    if exported:
        url, branch = repository()
        assert f"{url}/blob/{branch}/minigpt/{module}.py" in text
        assert (ROOT / "minigpt" / f"{module}.py").is_file()


def test_ladder_shows_what_is_written(site):
    """Rungs of chapters in the contents are links; the others say "to come"."""
    outline = yaml.safe_load((ROOT / "_ext" / "outline.yml").read_text("utf-8"))
    numbers = {chapter["name"]: chapter["number"] for chapter in outline["chapters"]}
    text = (site / "index.html").read_text("utf-8")
    ladder = re.search(r'<figure class="qp-ladder">.*?</figure>', text, re.S)[0]
    rungs = re.findall(r"<li data-rung.*?(?=<li data-rung|</ol>)", ladder, re.S)
    assert len(rungs) == len(outline["rungs"]) == 7
    for rung, shown in zip(outline["rungs"], rungs):
        page = f"chapters/{numbers[rung['chapter']]:02}_{rung['chapter']}"
        written = page in documents()
        assert (f'href="{page}.html"' in shown) == written
        assert ("to come" in shown) == (not written)


def test_outline_and_contents_agree():
    """Every chapter of the contents is one of the outline, with its number."""
    outline = yaml.safe_load((ROOT / "_ext" / "outline.yml").read_text("utf-8"))
    planned = {f"chapters/{c['number']:02}_{c['name']}" for c in outline["chapters"]}
    assert set(chapters()) <= planned


def test_glossary_speaks_korean(site):
    text = (site / "glossary.html").read_text("utf-8")
    terms = re.findall(r"<dt.*?</dt>", text, re.S)
    assert len(terms) >= 50
    assert all('<span class="qp-korean" lang="ko">' in term for term in terms)
