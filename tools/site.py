"""Build the site from the saved outputs, and serve it.

    python tools/site.py build              _build/html, every warning an error
    python tools/site.py build --serve      and serve it on 127.0.0.1
    python tools/site.py serve              serve what was built

Addresses inside the site are relative: it works at any path, as at /the-quiet-parts/.
"""

import argparse
import functools
import hashlib
import http.server
import os
import re
import shutil
import subprocess
import sys
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import vendor

ROOT = Path(__file__).resolve().parent.parent


class SiteError(Exception):
    """What keeps the site from being built, and what to do about it."""


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("command", choices=["build", "serve"])
    parser.add_argument("--serve", action="store_true", help="serve after building")
    parser.add_argument(
        "--port", type=int, default=8000, help="the next free one is taken"
    )
    parser.add_argument("--all", action="store_true", help="write every page anew")
    parser.add_argument(
        "--out", type=Path, default=ROOT, help="folder that gets _build/html"
    )
    args = parser.parse_args(argv)
    try:
        site = args.out / "_build" / "html"
        if args.command == "build":
            site = build(args.out, everything=args.all)
        elif not (site / "index.html").is_file():
            raise SiteError(f"there is no site in {site}; build it first")
        if args.serve or args.command == "serve":
            serve(site, args.port)
    except (SiteError, vendor.VendorError) as error:
        print(f"site: {error}", file=sys.stderr)
        return 1
    return 0


def build(out: Path = ROOT, everything: bool = False) -> Path:
    """Build the pages into `out/_build/html` and return that folder."""
    check_version()
    vendor.vendor(site_only=True)
    start = time.perf_counter()
    site, stamp = out / "_build" / "html", out / "_build" / "site-stamp"
    now = [frame(), content()]
    before = stamp.read_text("utf-8").split() if stamp.is_file() else ["", ""]
    if before == now and (site / "index.html").is_file() and not everything:
        print(f"site: up to date: {site}", flush=True)
        return site
    everything |= before[0] != now[0]  # what every page shows has changed
    run = "from jupyter_book.cli.main import main; main()"
    command = [sys.executable, "-c", run, "build", str(ROOT)]
    command += ["-W", "-n", "--keep-going", "--path-output", str(out)]
    command += ["--all"] if everything else []
    if everything:  # a page that is no longer in the book would stay
        shutil.rmtree(site, ignore_errors=True)
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=os.environ | {"PYTHONUTF8": "1"},
        capture_output=True,
        text=True,
        encoding="utf-8",
        errors="replace",
    )
    if done.returncode or not (site / "index.html").is_file():
        stamp.unlink(missing_ok=True)
        raise SiteError(f"the build failed.\n{complaints(done.stdout + done.stderr)}")
    (site / ".nojekyll").touch()
    stamp.write_text("\n".join(now), "utf-8")
    size = sum(path.stat().st_size for path in site.rglob("*") if path.is_file())
    pages = len(list(site.glob("*.html"))) + len(list(site.glob("chapters/*.html")))
    seconds = time.perf_counter() - start
    print(
        f"site: {pages} pages, {size / 1e6:.1f} MB, {seconds:.0f} s: {site}", flush=True
    )
    return site


def check_version() -> None:
    try:
        found = version("jupyter-book")
    except PackageNotFoundError:
        found = None
    if found is None or int(found.split(".")[0]) >= 2:
        raise SiteError(
            f"the site needs jupyter-book 1, and {found or 'none'} is installed "
            "(version 2 is another program and reads no _config.yml). "
            "Run: python -m pip install -r requirements.txt"
        )


def frame() -> str:
    """A digest of all that every page depends on: templates, navigation, addresses."""
    files = [ROOT / "_config.yml", ROOT / "_toc.yml"]
    for folder in ("_ext", "_templates"):
        files += (
            p
            for p in (ROOT / folder).rglob("*")
            if p.suffix in {".py", ".js", ".yml", ".html"}
        )
    digest = digest_of(files)
    for path in chapters():  # their titles and times stand in every menu
        text = path.read_text("utf-8")
        for found in (r'"# (.*?)\\n"', r'"\*Reading (\d+) min'):
            words = re.search(found, text)
            digest.update(f"{path.name} {words[1] if words else ''}".encode())
    for name in ("BOOK_REPOSITORY_URL", "BOOK_REPOSITORY_BRANCH"):
        digest.update(f"{name}={os.environ.get(name, '')}".encode())
    return digest.hexdigest()


def content() -> str:
    """A digest of what the pages hold: chapters, Markdown, sources, style, records."""
    files = [*chapters(), *ROOT.glob("*.md"), ROOT / "references.bib", vendor.LOCK]
    for folder in ("_static", "_assets/quiet-parts", "_build/status"):
        files += (path for path in (ROOT / folder).rglob("*") if path.is_file())
    package = (ROOT / "minigpt").rglob("*")  # drawings, lines of code, numbers
    files += (path for path in package if path.suffix in {".py", ".json"})
    return digest_of(files).hexdigest()


def chapters() -> list[Path]:
    return sorted(ROOT.glob("chapters/*.ipynb"))


def digest_of(files):
    digest = hashlib.sha256()
    for path in sorted(files):
        digest.update(path.relative_to(ROOT).as_posix().encode())
        digest.update(path.read_bytes())
    return digest


def complaints(log: str) -> str:
    """The lines of a build's log that say what is wrong."""
    log = re.sub(r"\x1b\[[\d;]*m", "", log)
    told = [
        line for line in log.splitlines() if re.search(r"WARNING|ERROR|[Ee]rror:", line)
    ]
    told = [line for line in told if "IPKernelApp" not in line]
    return "\n".join(dict.fromkeys(told)) or log[-4000:]


class Handler(http.server.SimpleHTTPRequestHandler):
    """Files of one folder, without a line for each request."""

    def log_message(self, *args):
        pass

    def end_headers(self):
        self.send_header("Cache-Control", "no-cache")
        super().end_headers()


def serve(site: Path, port: int) -> None:
    """Serve until interrupted, on the first free port from `port` on."""
    handler = functools.partial(Handler, directory=str(site))
    for candidate in [*range(port, port + 20), 0]:
        try:
            server = http.server.ThreadingHTTPServer(("127.0.0.1", candidate), handler)
        except OSError:
            continue
        break
    address = f"http://127.0.0.1:{server.server_address[1]}/"
    print(f"site: {address}  (Ctrl-C stops it)", flush=True)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        print()
    finally:
        server.server_close()


if __name__ == "__main__":
    sys.exit(main())
