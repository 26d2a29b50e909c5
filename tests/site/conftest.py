"""The built site, served below a path as a web host does, and one browser for all."""

import contextlib
import functools
import http.server
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import yaml

from tools import stamp
from tools.browser import FLAGS, chromium

ROOT = Path(__file__).resolve().parents[2]
SHOTS = ROOT / "_build" / "shots"
# Where GitHub Pages shows the book.
PUBLIC = stamp.decide(ROOT, os.environ.get("BOOK_REPOSITORY_URL"), None).pages
BELOW = "/repo/"  # where the tests' host shows the site, as GitHub Pages does


def documents() -> list[str]:
    """Every page of the table of contents, the landing page first."""
    toc = yaml.safe_load((ROOT / "_toc.yml").read_text("utf-8"))
    return [toc["root"]] + [c["file"] for p in toc["parts"] for c in p["chapters"]]


def notebooks() -> list[str]:
    """Every page that is a notebook: the chapters, and an appendix without number."""
    return [name for name in documents() if name.startswith("chapters/")]


def chapters() -> list[str]:
    return [name for name in notebooks() if name.split("/")[1][0].isdigit()]


@pytest.fixture(scope="session")
def site() -> Path:
    """The site, built by the project's own command; quick when nothing has changed."""
    if os.environ.get("BOOK_SITE"):
        return Path(os.environ["BOOK_SITE"])
    command = [sys.executable, str(ROOT / "tools" / "site.py"), "build"]
    done = subprocess.run(command, capture_output=True, text=True, encoding="utf-8")
    assert done.returncode == 0, done.stdout + done.stderr
    return ROOT / "_build" / "html"


class Host(http.server.SimpleHTTPRequestHandler):
    """Answers below /repo/ only: an address from the host's root is not found."""

    def translate_path(self, path):
        if not path.startswith(BELOW):
            return str(Path(self.directory) / "no such file")
        return super().translate_path(path[len(BELOW) - 1 :])

    def log_message(self, *args):
        pass


@contextlib.contextmanager
def serve(host: type, site: Path, below: str = BELOW):
    """The address at which a host of this kind shows the site."""
    handler = functools.partial(host, directory=str(site))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}{below}"
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="session")
def address(site) -> str:
    with serve(Host, site) as address:
        yield address


@pytest.fixture(scope="session", autouse=True)
def checker():
    """axe, brought once from its pinned package; the site itself does not need it."""
    command = [sys.executable, str(ROOT / "tools" / "vendor.py")]
    done = subprocess.run(command, capture_output=True, text=True, encoding="utf-8")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="session")
def browser():
    path = chromium()
    if path is None:
        pytest.skip(
            "needs chromium, which is not installed: apt-get install chromium, or name "
            "a Chromium or Chrome in the environment variable CHROMIUM"
        )
    try:
        from playwright.sync_api import sync_playwright
    except ModuleNotFoundError:
        pytest.skip("needs playwright to drive chromium: pip install playwright")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def visit(browser, address):
    """Open a page; the returned page has `troubles`, all that went wrong on it."""
    contexts = []

    def open_page(name, scheme="light", width=1366, height=900, **options):
        context = browser.new_context(
            viewport={"width": width, "height": height},
            color_scheme=scheme,
            reduced_motion="reduce",
            **options,
        )
        contexts.append(context)
        page = context.new_page()
        page.troubles = watch(page, address)
        page.goto(address + name, wait_until="load")
        if options.get("java_script_enabled", True):
            settle(page)
        return page

    yield open_page
    for context in contexts:
        context.close()


def settle(page):
    """Wait until the fonts are there."""
    page.evaluate("async () => { await document.fonts.ready; }")


def watch(page, address) -> list[str]:
    """Note script errors, failed requests and requests to other hosts."""
    troubles = []

    def on_request(request):
        if not request.url.startswith((address, "data:", "blob:")):
            troubles.append(f"asks another host, or leaves {BELOW}: {request.url}")

    def on_response(response):
        if response.status >= 400:
            troubles.append(f"answer {response.status}: {response.url}")

    def on_failure(request):
        if request.failure != "net::ERR_ABORTED":  # the reader went on to the next page
            troubles.append(f"failed: {request.url}: {request.failure}")

    def on_console(message):
        if message.type in ("error", "warning"):
            troubles.append(f"console: {message.text}")

    page.on("request", on_request)
    page.on("response", on_response)
    page.on("console", on_console)
    page.on("pageerror", lambda error: troubles.append(f"script: {error}"))
    page.on("requestfailed", on_failure)
    return troubles
