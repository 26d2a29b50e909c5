"""Lighthouse's audit of three pages: 95 of 100 or more in each of its four categories.

Lighthouse comes from npm, pinned in `tools/lighthouse/package-lock.json`, and drives
the Chromium of the other tests. Its phone is simulated: what the page asked for is
replayed on slow 4G with a processor four times slower. A busy machine lowers that
score, nothing raises it; so the best of three runs counts.
"""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from conftest import ROOT, serve
from speed import GzipHost
from test_budgets import meter, note  # noqa: F401 (a fixture)

from tools.browser import FLAGS, chromium

PAGES = ["index", "chapters/04_depth", "chapters/08_block"]
CATEGORIES = ["performance", "accessibility", "best-practices", "seo"]
ENOUGH = 95
FOLDER = ROOT / "_build" / "lighthouse"
LOCK = ("package.json", "package-lock.json")


@pytest.fixture(scope="module")
def lighthouse() -> Path:
    """The program, installed once from its lock file; npm compares the sha512 sums."""
    npm = shutil.which("npm")
    assert npm, "npm is missing: install Node.js 18 or newer"
    sources = {name: ROOT / "tools" / "lighthouse" / name for name in LOCK}
    program = FOLDER / "node_modules" / "lighthouse" / "cli" / "index.js"
    same = all(
        (FOLDER / name).is_file() and (FOLDER / name).read_bytes() == path.read_bytes()
        for name, path in sources.items()
    )
    if not (same and program.is_file()):
        FOLDER.mkdir(parents=True, exist_ok=True)
        for name, path in sources.items():
            shutil.copy(path, FOLDER / name)
        command = [npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--silent"]
        done = subprocess.run(command, cwd=FOLDER, capture_output=True, text=True)
        assert done.returncode == 0, f"npm ci failed: {done.stdout} {done.stderr}"
    return program


@pytest.fixture(scope="module")
def host(site):
    with serve(GzipHost, site) as address:
        yield address


@pytest.mark.parametrize("name", PAGES)
def test_lighthouse(lighthouse, host, meter, name):  # noqa: F811
    path = chromium()
    if path is None:
        pytest.skip("needs chromium: apt-get install chromium")
    best, why = dict.fromkeys(CATEGORIES, 0), {}
    for _ in range(3):
        report = audit(lighthouse, path, f"{host}{name}.html", meter().slow().cpu)
        for key in CATEGORIES:
            score = round(100 * (report["categories"][key]["score"] or 0))
            if score > best[key] or key not in why:
                best[key], why[key] = score, failures(report, key)
        if min(best.values()) >= ENOUGH:
            break
    note(name, **best)
    low = [
        f"{key} {best[key]}: {', '.join(why[key])}"
        for key in CATEGORIES
        if best[key] < ENOUGH
    ]
    assert not low, "\n".join(low)


def audit(program: Path, browser: str, address: str, slower: float) -> dict:
    node = shutil.which("node")
    flags = " ".join(["--headless=new", *FLAGS])
    command = [node, str(program), address, "--quiet", "--output=json"]
    command.append(f"--throttling.cpuSlowdownMultiplier={slower:.2f}")
    command += [f"--only-categories={','.join(CATEGORIES)}", f"--chrome-flags={flags}"]
    done = subprocess.run(
        command,
        env=os.environ | {"CHROME_PATH": browser},
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=180,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    report = json.loads(done.stdout)
    assert "runtimeError" not in report, report["runtimeError"]
    return report


def failures(report: dict, category: str) -> list[str]:
    """The audits that cost points, the dearest first, each with what it measured."""
    found = []
    for part in report["categories"][category]["auditRefs"]:
        result = report["audits"][part["id"]]
        score = result["score"]
        if part["weight"] and score is not None and score < 1:
            shown = result.get("displayValue", "")
            found.append(
                ((1 - score) * part["weight"], f"{part['id']} {shown}".strip())
            )
    return [text for _, text in sorted(found, reverse=True)]
