"""The bibliography and the chapters' links, compared both ways."""

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "_ext"))

from quiet_parts.sources import WORK, entries, pages, same, used_in  # noqa: E402

ENTRIES = entries(ROOT / "references.bib")


@pytest.mark.parametrize("page, text", pages(ROOT).items())
def test_every_cited_work_has_an_entry(page, text):
    known = {same(entry.fields["url"]) for entry in ENTRIES.values()}
    missing = {url for url in WORK.findall(text) if same(url) not in known}
    assert not missing, f"{page}: no entry in references.bib for {sorted(missing)}"


def test_every_entry_is_linked_from_a_page():
    uses = used_in(ROOT)
    unused = [
        k for k, entry in ENTRIES.items() if same(entry.fields["url"]) not in uses
    ]
    assert not unused, f"no chapter or page links to {unused}"


@pytest.mark.parametrize("key", ENTRIES)
def test_entry_is_complete(key):
    entry = ENTRIES[key]
    assert entry.persons.get("author"), f"{key}: no author"
    for field in ("title", "year", "url"):
        assert entry.fields.get(field), f"{key}: no {field}"
    assert entry.fields["year"].isdigit(), f"{key}: year {entry.fields['year']!r}"


def test_two_entries_do_not_name_one_work():
    urls = [same(entry.fields["url"]) for entry in ENTRIES.values()]
    assert len(urls) == len(set(urls)), sorted(u for u in urls if urls.count(u) > 1)


def test_addresses_of_one_work_are_known_as_such():
    assert same("https://arxiv.org/pdf/1706.03762v5.pdf") == "arxiv.org/abs/1706.03762"
    assert same("http://www.arxiv.org/abs/1706.03762#S3") == "arxiv.org/abs/1706.03762"
    assert same("https://doi.org/10.1/x.y") != same("https://doi.org/10.1/x.z")
