"""How readers come: addresses, sitemap, 404 page, cards that others show, the feed."""

import http.server
import json
import os
import re
import shutil
import subprocess
import sys
from datetime import datetime
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import urljoin, urlsplit
from xml.etree import ElementTree as xml

import pytest
from conftest import PUBLIC, ROOT, chapters, documents, notebooks, serve, settle
from PIL import Image

sys.path.insert(0, str(ROOT / "_ext"))
from quiet_parts import addresses, canvas, card_layout, cards, drawings, feed

PATH = urlsplit(PUBLIC).path
ATOM = "{http://www.w3.org/2005/Atom}"
MAP = "{http://www.sitemaps.org/schemas/sitemap/0.9}"


class Head(HTMLParser):
    """Meta tags and links of a page's head, and its data for search engines."""

    def __init__(self, path: Path):
        super().__init__(convert_charrefs=True)
        self.meta, self.links, self.data, self.inside = {}, [], [], False
        self.feed(path.read_text("utf-8").partition("</head>")[0])

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        if tag == "meta" and "content" in attributes:
            name = attributes.get("property") or attributes.get("name")
            self.meta.setdefault(name, []).append(attributes["content"])
        if tag == "link":
            self.links.append(attributes)
        self.inside = attributes.get("type") == "application/ld+json"

    def handle_endtag(self, tag):
        self.inside = False

    def handle_data(self, data):
        if self.inside:
            self.data.append(json.loads(data))

    def one(self, name: str) -> str:
        (value,) = self.meta[name]
        return value

    def link(self, rel: str) -> list[str]:
        return [link["href"] for link in self.links if link.get("rel") == rel]


def address(name: str) -> str:
    return PUBLIC if name == "index" else f"{PUBLIC}{name}.html"


# Addresses --------------------------------------------------------------------------


@pytest.mark.parametrize("name", documents())
def test_canonical_address(site, name):
    assert Head(site / f"{name}.html").link("canonical") == [address(name)]


@pytest.mark.parametrize("name", ["404", "search"])
def test_what_is_no_page_of_the_book_is_not_indexed(site, name):
    head = Head(site / f"{name}.html")
    assert head.one("robots") == "noindex"
    assert not head.link("canonical") and "og:url" not in head.meta


def test_sitemap_lists_the_contents(site):
    root = xml.parse(site / "sitemap.xml").getroot()
    assert {url.text for url in root.iter(f"{MAP}loc")} == set(
        map(address, documents())
    )
    for date in root.iter(f"{MAP}lastmod"):
        datetime.fromisoformat(date.text)
    assert f"Sitemap: {PUBLIC}sitemap.xml" in (site / "robots.txt").read_text("utf-8")


def test_dates_come_from_git(tmp_path, monkeypatch):
    """Each file has the day of its last commit; without git there are no dates."""
    if shutil.which("git") is None:
        pytest.skip("needs git")
    monkeypatch.setattr(addresses, "ROOT", tmp_path)
    assert addresses.changed() == {}

    def commit(day, **files):
        for name, text in files.items():
            (tmp_path / f"{name}.md").write_text(text, "utf-8")
        who = ["-c", "user.name=a", "-c", "user.email=a@b"]
        who += ["-c", "commit.gpgsign=false"]
        for words in (["add", "."], [*who, "commit", "-qm", "x", f"--date={day}"]):
            env = {"GIT_COMMITTER_DATE": day, **os.environ}
            subprocess.run(["git", "-C", tmp_path, *words], check=True, env=env)

    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    commit("2025-01-02T03:04:05+00:00", old="1", new="1")
    commit("2026-01-02T03:04:05+00:00", new="2")
    (tmp_path / "untracked.md").write_text("", "utf-8")
    dates = {name: date[:10] for name, date in addresses.changed().items()}
    assert dates == {"old.md": "2025-01-02", "new.md": "2026-01-02"}
    shallow = tmp_path / "shallow"
    clone = ["git", "clone", "-q", "--depth=1", tmp_path.as_uri(), shallow]
    subprocess.run(clone, check=True)
    monkeypatch.setattr(addresses, "ROOT", shallow)
    assert addresses.changed() == {}, "one commit would date every file"


# 404 --------------------------------------------------------------------------------


class Pages(http.server.SimpleHTTPRequestHandler):
    """As GitHub Pages: below the public path, with 404.html for what is not there."""

    def do_GET(self):
        path = urlsplit(self.path).path
        file = Path(self.directory) / path.removeprefix(PATH)
        if path.startswith(PATH) and (
            file.is_file() or (file / "index.html").is_file()
        ):
            self.path = "/" + path.removeprefix(PATH)
            return super().do_GET()
        page = (Path(self.directory) / "404.html").read_bytes()
        self.send_response(404)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(page)))
        self.end_headers()
        self.wfile.write(page)

    def log_message(self, *args):
        pass


@pytest.fixture(scope="module")
def host(site):
    with serve(Pages, site, PATH) as address:
        yield address


@pytest.mark.parametrize("wrong", ["nothing.html", "chapters/old/04_deep.html", "a/b/"])
def test_lost_reader_finds_back(browser, host, wrong):
    """At any depth the page has its style, its links live, and its search searches."""
    page = browser.new_page()
    missing = []
    page.on("response", lambda r: missing.append(r.url) if r.status >= 400 else None)
    page.goto(host + wrong)
    settle(page)
    assert missing == [host + wrong]
    assert page.inner_text("h1") == "There is no such page"
    family = page.evaluate("getComputedStyle(document.querySelector('h1')).fontFamily")
    assert "Source Serif" in family
    shown = page.eval_on_selector_all(".qp-lost nav a", "all => all.map(a => a.href)")
    assert shown == [f"{host}{name}.html" for name in documents()[1:]]
    page.click(".qp-lost nav a >> nth=3")
    assert page.inner_text(".bd-article h1")
    page.goto(host + wrong)
    page.fill(".qp-lost input", "residual")
    page.keyboard.press("Enter")
    page.wait_for_url(f"{host}search.html?q=residual")
    assert missing == [host + wrong] * 2
    page.close()


# Cards ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", documents())
def test_page_says_what_others_show(site, name):
    head = Head(site / f"{name}.html")
    title, text = head.one("og:title"), head.one("og:description")
    assert head.one("description") == head.one("twitter:description") == text
    assert text.endswith((".", "?", "!")) and 30 < len(text) <= 300
    assert not re.search(r"[\\$`<>]|\*\*", title + text)
    assert head.one("og:url") == address(name)
    assert head.one("og:site_name") == "The Quiet Parts"
    assert head.one("twitter:card") == "summary_large_image"
    assert head.one("og:image") == head.one("twitter:image")
    assert len(head.one("og:image:alt")) > 30
    card = site / head.one("og:image").removeprefix(PUBLIC)
    assert card.stat().st_size < 100_000
    with Image.open(card) as image:
        assert (image.format, image.size) == ("PNG", (1200, 630))
    assert (head.one("og:image:width"), head.one("og:image:height")) == ("1200", "630")


@pytest.mark.parametrize("name", notebooks())
def test_chapter_has_its_own_card_and_sentence(site, name):
    head = Head(site / f"{name}.html")
    assert Path(head.one("og:image")).stem == re.sub(r"^\d+_", "", name.split("/")[1])
    cells = json.loads((ROOT / f"{name}.ipynb").read_text("utf-8"))["cells"]
    lead = re.search(r"^> (.*)$", "".join(cells[0]["source"]), re.M)[1]
    assert head.one("description").replace("’", "'") == lead.replace("`", "")


def test_cards_differ(site):
    drawn = sorted((site / "_static" / "cards").glob("*.png"))
    assert len({path.read_bytes() for path in drawn}) == len(notebooks()) + 1


def test_card_is_drawn_from_its_words_alone():
    words = {"number": 5, "name": "Residual", "question": "What does x + f(x) change?"}
    first = card_layout.draw_card("residual", words)
    assert card_layout.draw_card("residual", words) == first
    assert card_layout.draw_card("residual", words | {"number": 6}) != first
    assert card_layout.draw_card("dropout", words) != first


def test_longest_question_stays_on_the_card():
    words = {"number": 6, "name": "LayerNorm", "question": "Why is this so long? " * 4}
    image = canvas.Canvas.blank(*card_layout.SIZE)
    card_layout.write_question(image, 300, words["question"])
    margin = image.image.crop((1160 * canvas.SCALE, 0, 1200 * canvas.SCALE, 630))
    assert len(margin.getcolors()) == 1


def test_path_of_a_drawing():
    lines = canvas.flatten("M1 2H5V3L6 3M7 4V6M0 0Q0 -6 6 -6")
    assert lines[:2] == [[(1, 2), (5, 2), (5, 3), (6, 3)], [(7, 4), (7, 6)]]
    assert lines[2][0] == (0, 0) and lines[2][4] == (1.5, -4.5)
    assert lines[2][-1] == (6, -6) and len(lines[2]) == 9
    with pytest.raises(ValueError, match="cannot draw 'C'"):
        canvas.flatten("M0 0C1 1 2 2 3 3")


def test_data_for_search_engines(site):
    (book,) = Head(site / "index.html").data
    assert (book["@type"], book["name"], book["url"]) == (
        "Book",
        "The Quiet Parts",
        PUBLIC,
    )
    for number, name in enumerate(chapters(), 1):
        (part,) = Head(site / f"{name}.html").data
        assert part["position"] == number and part["url"] == address(name)
        assert part["isPartOf"]["@id"] == book["@id"]


# Changes ----------------------------------------------------------------------------

LOG = """\
# Changelog

What changed.

## [Unreleased]

## [0.2.0] - 2027-02-03

### Errata

- Chapter 4 said `3`; see [there](chapters/04_depth.html).

## [0.1.0] - 2026-12-01

First.
"""


def test_log_is_read_by_version():
    opening, releases = feed.read_log(LOG)
    assert opening == "What changed."
    assert [r.title for r in releases] == [
        "Next version",
        "Version 0.2.0",
        "Version 0.1.0",
    ]
    assert [r.anchor for r in releases][1:] == ["version-0-2-0", "version-0-1-0"]
    assert releases[2].text == "First." and not releases[0].text
    assert feed.updated(releases[1]) == "2027-02-03T00:00:00Z"
    html = feed.as_html(releases[1].text, PUBLIC)
    assert f'href="{PUBLIC}chapters/04_depth.html"' in html and "<code>3</code>" in html


def test_version_without_a_day_is_refused():
    with pytest.raises(Exception, match=r"0\.3\.0 has no date"):
        feed.read_log("# C\n\n## [0.3.0]\n\nx\n")


def test_feed_is_valid_atom(site):
    """What RFC 4287 asks of a feed and of each entry."""
    root = xml.parse(site / "feed.xml").getroot()
    assert root.tag == f"{ATOM}feed"
    assert root.find(f"{ATOM}author/{ATOM}name").text
    (own,) = (e.get("href") for e in root.findall(f"{ATOM}link[@rel='self']"))
    assert own == f"{PUBLIC}feed.xml"
    entries = root.findall(f"{ATOM}entry")
    ids = [element.text for element in root.iter(f"{ATOM}id")]
    assert entries and len(set(ids)) == len(ids) == len(entries) + 1
    for element in (root, *entries):
        assert element.find(f"{ATOM}title").text
        time = datetime.fromisoformat(element.find(f"{ATOM}updated").text)
        assert time.tzinfo is not None
    page = (site / "changes.html").read_text("utf-8")
    for entry in entries:
        link = entry.find(f"{ATOM}link[@rel='alternate']").get("href")
        assert link.startswith(f"{PUBLIC}changes.html#")
        assert f'id="{link.partition("#")[2]}"' in page
        content = entry.find(f"{ATOM}content")
        assert content.get("type") == "html" and "<li>" in content.text


@pytest.mark.parametrize("name", [*documents(), "search"])
def test_page_names_the_feed(site, name):
    links = Head(site / f"{name}.html").links
    (href,) = (
        link["href"] for link in links if link.get("type") == "application/atom+xml"
    )
    assert urljoin(f"http://x/{name}.html", href) == "http://x/feed.xml"


def test_page_of_changes_says_what_the_log_says(site):
    page = (site / "changes.html").read_text("utf-8")
    words = re.sub(r"\s+", " ", re.sub(r"<[^>]+>", "", page)).replace("’", "'")
    _, releases = feed.read_log((ROOT / "CHANGELOG.md").read_text("utf-8"))
    for release in releases:
        for item in re.findall(r"^- (.*)$", release.text, re.M):
            assert re.sub(r"[`*]", "", item)[:40] in words


def test_every_chapter_is_described():
    """A card without a drawing of its own would fail; here it also has words."""
    names = {cards.card_name(name) for name in documents()}
    added = set(drawings.ADDED.values())
    assert names == set(drawings.DRAWINGS) == set(cards.DRAWN) | added
