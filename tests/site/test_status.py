"""The status page as it is built, and that no page can show an old number."""

import json
import re

import yaml
from conftest import ROOT, notebooks


def test_it_shows_every_chapter_or_says_how_to_get_there(site):
    text = (site / "status.html").read_text("utf-8")
    found = json.loads((site / "status.json").read_text("utf-8"))
    names = [row["name"] for row in found["chapters"]]
    assert names == sorted(name.split("/")[1] for name in notebooks())
    if not found["ran"]:
        words = re.sub(r"<[^>]+>", "", text)
        assert "Not yet run here" in words and "make test" in words
    else:
        for name in names:
            assert re.search(rf"href=['\"]chapters/{name}\.html['\"]", text), name


def test_it_names_no_machine_and_no_folder(site):
    text = (site / "status.json").read_text("utf-8")
    assert str(ROOT) not in text and "/home/" not in text and "\\Users\\" not in text


def test_pages_show_what_the_tests_compared():
    """G09: nothing is run or taken from a cache when the pages are built."""
    config = yaml.safe_load((ROOT / "_config.yml").read_text("utf-8"))
    assert config["execute"]["execute_notebooks"] == "off"
    assert "cache" not in config["execute"]
    own = config["sphinx"]["config"]
    assert not [k for k in own if re.match(r"nb_execution_(mode|cache)", k)]
    # And what the pages show is compared: by default with every chapter.
    checks = (ROOT / "tools" / "check.py").read_text("utf-8")
    assert 'python("tools/chapters.py")' in checks
