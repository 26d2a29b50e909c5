"""Fetch the browser libraries that the site and its tests need, pinned and checked.

    python tools/vendor.py            all of them
    python tools/vendor.py --site     only what the site publishes

Each library is an npm package at an exact version. `npm pack` brings its archive, the
sha512 in `tools/vendor-lock.json` is compared, and the few files in use are copied: to
`_assets/vendor` for the site, to `_build/test-assets` for the tests. What is for
building alone lies in `_assets/vendor/.build`: Sphinx publishes no name that begins
with a dot. None of it is kept in the repository. What is there already, from the same
lock, is not fetched again.
"""

import argparse
import base64
import fnmatch
import hashlib
import json
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOCK = Path(__file__).with_name("vendor-lock.json")
TIMEOUT = 180  # seconds for one package


class VendorError(Exception):
    """What is missing, and what to do about it."""


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--site", action="store_true", help="only what the site publishes"
    )
    args = parser.parse_args(argv)
    try:
        fetched = vendor(site_only=args.site)
    except VendorError as error:
        print(f"vendor: {error}", file=sys.stderr)
        return 1
    print("vendor: " + (f"fetched {', '.join(fetched)}" if fetched else "up to date"))
    return 0


def vendor(site_only: bool = False, root: Path = ROOT, lock: Path = LOCK) -> list[str]:
    """Bring every package of the lock file; return those that had to be fetched."""
    fetched = []
    for spec, entry in json.loads(lock.read_text("utf-8")).items():
        if site_only and not entry["site"]:
            continue
        folder = root / entry["folder"]
        stamp = folder / ".vendored"
        want = json.dumps([spec, entry], sort_keys=True)
        if stamp.is_file() and stamp.read_text("utf-8") == want:
            continue
        with tempfile.TemporaryDirectory() as scratch:
            archive = pack(spec, Path(scratch))
            compare(spec, archive, entry["integrity"])
            shutil.rmtree(folder, ignore_errors=True)
            unpack(archive, folder, entry["files"])
        stamp.write_text(want, "utf-8")
        fetched.append(spec)
    return fetched


def pack(spec: str, folder: Path) -> Path:
    """Download one package's archive with npm."""
    npm = shutil.which("npm")
    if npm is None:
        raise VendorError(
            "npm is missing; it fetches the site's browser libraries and fonts. "
            "Install Node.js 18 or newer, which brings npm, and run this again."
        )
    try:
        done = subprocess.run(
            [npm, "pack", "--silent", spec],
            cwd=folder,
            capture_output=True,
            text=True,
            encoding="utf-8",
            errors="replace",
            timeout=TIMEOUT,
        )
    except subprocess.TimeoutExpired:
        raise VendorError(
            f"npm pack {spec} took more than {TIMEOUT} s; no network?"
        ) from None
    archives = list(folder.glob("*.tgz"))
    if done.returncode or len(archives) != 1:
        reason = done.stderr.strip() or done.stdout.strip() or "no archive came"
        raise VendorError(f"npm pack {spec} failed: {reason[-800:]}")
    return archives[0]


def compare(spec: str, archive: Path, want: str) -> None:
    """Refuse an archive that is not the one in the lock file."""
    digest = hashlib.sha512(archive.read_bytes()).digest()
    got = "sha512-" + base64.b64encode(digest).decode()
    if got != want:
        raise VendorError(
            f"{spec} is not the archive of {LOCK.name}: expected {want}, got {got}"
        )


def unpack(archive: Path, folder: Path, patterns: list[str]) -> None:
    """Copy the files that match; every pattern must match at least one."""
    unused = set(patterns)
    with tarfile.open(archive) as tar:
        for member in tar.getmembers():
            name = member.name.partition("/")[2]
            hits = {p for p in patterns if fnmatch.fnmatch(name, p)}
            if not (member.isfile() and hits) or ".." in Path(name).parts:
                continue
            unused -= hits
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(tar.extractfile(member).read())
    if unused:
        raise VendorError(
            f"{archive.name} has no file like {', '.join(sorted(unused))}"
        )


if __name__ == "__main__":
    sys.exit(main())
