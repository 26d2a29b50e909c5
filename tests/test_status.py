"""tools/results.py and tools/status.py: what was found is kept, gathered and shown."""

import json
import re
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tools import results, status

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "_ext"))
from quiet_parts import status as page  # noqa: E402

CHAPTER = "04_depth"
RAN = {"seconds": 12.3, "peak_mib": 512, "cells": 40, "outputs": 31}


CLAIMS = status.count_claims(ROOT)  # once: it reads every notebook


@pytest.fixture(autouse=True)
def claims_counted_once(monkeypatch):
    monkeypatch.setattr(status, "count_claims", lambda root: CLAIMS)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch) -> Path:
    """An empty place for results, and no workflow around."""
    monkeypatch.setenv("BOOK_STATUS", str(tmp_path))
    for name in ("GITHUB_RUN_ID", "GITHUB_SHA"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def in_workflow(monkeypatch):
    monkeypatch.setenv("GITHUB_SERVER_URL", "https://github.com")
    monkeypatch.setenv("GITHUB_REPOSITORY", "me/my-book")
    monkeypatch.setenv("GITHUB_RUN_ID", "17")
    monkeypatch.setenv("GITHUB_SHA", "0123456789abcdef")


def row(name: str) -> dict:
    return next(r for r in status.gather(ROOT)["chapters"] if r["name"] == name)


def html(found: dict) -> str:
    parts = (page.summary, page.failures, page.chapters, page.checks)
    return "\n".join(part(found) for part in parts)


def test_a_result_is_kept_with_date_commit_and_run(monkeypatch):
    in_workflow(monkeypatch)
    path = results.keep("run", CHAPTER, "passed", **RAN)
    found = json.loads(path.read_text("utf-8"))
    assert found.items() >= RAN.items()
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", found["date"])
    assert found["commit"] == "0123456789abcdef"
    assert found["workflow"] == "https://github.com/me/my-book/actions/runs/17"
    assert [p.suffix for p in path.parent.iterdir()] == [".json"], (
        "nothing half-written"
    )


@pytest.mark.parametrize("kind, result", [("walk", "passed"), ("run", "fine")])
def test_an_unknown_kind_or_result_is_refused(kind, result):
    with pytest.raises(ValueError, match="a result is one of"):
        results.keep(kind, CHAPTER, result)


def test_a_new_run_forgets_the_old_one():
    for name in ("01_text", CHAPTER):
        results.keep("run", name, "passed")
    results.forget("run", ["01_text"])
    assert row("01_text")["result"] == "missing"
    assert row(CHAPTER)["result"] == "passed"


def test_from_the_command_line(capsys):
    """As the weekly workflow writes: no package but Python's own is imported."""
    words = ["colab", CHAPTER, "failed", "--seconds", "63", "--message", "no numpy"]
    assert results.main(words) == 0
    found = json.loads(Path(capsys.readouterr().out.strip()).read_text("utf-8"))
    assert (found["seconds"], found["failed"][0]["message"]) == (63, "no numpy")
    source = (ROOT / "tools" / "results.py").read_text("utf-8")
    imported = set(re.findall(r"^(?:from|import) (\w+)", source, re.M))
    assert imported <= sys.stdlib_module_names


@pytest.mark.parametrize(
    "message, said",
    [
        ("FileNotFoundError: '/home/me/book/a.txt'", "FileNotFoundError: 'a.txt'"),
        (r"OSError: C:\Users\me\a.txt", "OSError: a.txt"),
        ("see https://example.org/a/b", "see https://example.org/a/b"),
        ("\x1b[31mred\x1b[0m  and\nnext", "red and next"),
        ("ratio 3/4 is not 1/2", "ratio 3/4 is not 1/2"),
    ],
)
def test_no_folder_of_the_machine_is_shown(message, said):
    assert results.plain(message) == said


def test_a_long_message_is_cut():
    assert len(results.plain("word " * 500)) == 300


def test_the_machine_has_no_name():
    import platform

    found = json.dumps(results.machine())
    assert platform.node() not in found or len(platform.node()) < 4
    assert results.machine()["cores"] > 0


def test_gathered_with_verdicts_and_claims():
    results.keep("run", CHAPTER, "passed", **RAN, failed=[])
    results.keep("reseed", CHAPTER, "passed", verdicts=21, seeds="101,102")
    results.keep(
        "checks", "machine", "passed", system="Linux", cpu="A", cores=2, torch="2"
    )
    found = status.gather(ROOT)
    one = row(CHAPTER)
    assert one.items() >= RAN.items() and one["verdicts"] == 21
    text = (ROOT / "chapters" / f"{CHAPTER}.ipynb").read_text("utf-8")
    marks = re.findall(r'<span id=\\"claim-.*?>', text)
    assert one["measured"] == sum("data-cell" in mark for mark in marks) > 3
    assert one["cited"] == sum("data-cite" in mark for mark in marks)
    assert found["versions"] == {"torch": "2"}
    assert found["machine"] == "A (Linux, 2 cores)"


def test_a_failing_chapter_is_shown_with_cell_words_and_log(monkeypatch):
    in_workflow(monkeypatch)
    said = [{"where": "train-loop", "message": "ValueError: <too> large"}]
    results.keep("run", CHAPTER, "failed", **RAN, failed=said)
    text = html(status.gather(ROOT))
    assert "What failed" in text
    assert "<code>train-loop</code> ValueError: &lt;too&gt; large" in text
    assert 'href="https://github.com/me/my-book/actions/runs/17"' in text
    assert "0 of" in text and '<td class="qp-failed">failed</td>' in text


def test_a_verdict_that_other_seeds_turn_fails_the_chapter():
    results.keep("run", CHAPTER, "passed", **RAN, failed=[])
    said = [{"where": "spread", "message": "falls in every seed: False"}]
    results.keep("reseed", CHAPTER, "failed", verdicts=3, seeds="1", failed=said)
    one = row(CHAPTER)
    assert one["result"] == "failed" and one["failed"] == said


def test_a_missing_chapter_is_no_passed_one():
    results.keep("run", "01_text", "passed", **RAN, failed=[])
    found = status.gather(ROOT)
    assert row(CHAPTER)["result"] == "missing"
    assert f"<li>{CHAPTER} <strong>missing</strong>" in page.failures(found)
    count = len(found["chapters"])
    assert f"1 of {count} chapters passed" in page.summary(found)


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"name": "04_depth"}', '{"name": "x", "result": "fine"}', ""]
)
def test_damaged_results_are_named_and_count_for_nothing(folder, text):
    (folder / "run").mkdir()
    (folder / "run" / f"{CHAPTER}.json").write_text(text, "utf-8")
    results.keep("run", "01_text", "passed", **RAN)
    found = status.gather(ROOT)
    assert found["damaged"] == [f"run/{CHAPTER}.json"]
    assert row(CHAPTER)["result"] == "missing"
    assert f"Damaged, and left out: run/{CHAPTER}.json" in page.failures(found)


def test_without_results_the_page_knows_that():
    found = status.gather(ROOT)
    assert not found["ran"] and "make test" in page.NOT_YET


def test_strict_fails_unless_all_passed(capsys, folder):
    for path in (ROOT / "chapters").glob("*.ipynb"):
        results.keep("run", path.stem, "passed", **RAN)
    assert status.main(["--strict"]) == 0
    assert json.loads((folder / "status.json").read_text("utf-8"))["ran"]
    results.keep("run", CHAPTER, "failed", **RAN)
    assert status.main(["--strict"]) == 1 and status.main([]) == 0
    assert f"{CHAPTER:16} failed" in capsys.readouterr().out


class Tags(HTMLParser):
    """Every tag is closed, in order; what each table has as header and rows."""

    def __init__(self, text: str):
        super().__init__()
        self.open, self.rows = [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)
        if tag == "tr":
            self.rows.append(0)
        if tag in ("td", "th"):
            self.rows[-1] += 1

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_the_tables_are_whole():
    results.keep("run", CHAPTER, "passed", **RAN)
    results.keep("checks", "style", "passed", seconds=3)
    results.keep("checks", "Lighthouse", "failed", values={"speed": 88})
    found = status.gather(ROOT)
    for part in (page.chapters(found), page.checks(found)):
        tags = Tags(part)
        assert not tags.open and len(set(tags.rows)) == 1
    assert "speed 88" in page.checks(found)
