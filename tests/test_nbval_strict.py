"""The chapters' comparison itself fails when it should."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import nbformat
import pytest

ROOT = Path(__file__).resolve().parent.parent


def run(
    folder: Path, *cells, timeout: int = 60, options=()
) -> subprocess.CompletedProcess:
    """nbval with our plugin over one notebook of (source, stored outputs, tags)."""
    new = nbformat.v4
    notebook = new.new_notebook(
        cells=[
            new.new_code_cell(s, outputs=o, execution_count=i, metadata={"tags": t})
            for i, (s, o, t) in enumerate(cells, 1)
        ]
    )
    notebook.metadata.kernelspec = {"name": "python3", "display_name": "Python 3"}
    nbformat.write(notebook, folder / "a.ipynb")
    command = [
        sys.executable,
        "-m",
        "pytest",
        str(folder),
        "-q",
        "-p",
        "no:cacheprovider",
    ]
    command += ["-p", "tools.nbval_strict", "--nbval", "--nbval-current-env"]
    command += ["--nbval-sanitize-with", str(ROOT / "tools" / "nbval_sanitize.cfg")]
    command += [f"--nbval-cell-timeout={timeout}", "-c", os.devnull, "--color", "no"]
    command += options
    environ = dict(os.environ, PYTHONPATH=str(ROOT), BOOK_STATUS=str(folder / "status"))
    return subprocess.run(
        command,
        env=environ,
        cwd=folder,
        capture_output=True,
        text=True,
        encoding="utf-8",
    )


def said(text):
    return [nbformat.v4.new_output("stream", name="stdout", text=text)]


def html(text):
    data = {"text/html": text, "text/plain": "x"}
    return [nbformat.v4.new_output("execute_result", data=data, execution_count=1)]


def test_counts_what_was_compared(tmp_path):
    done = run(tmp_path, ("print(1)", said("1\n"), []), ("x = 2", [], []))
    assert done.returncode == 0, done.stdout
    assert "a.ipynb: 2 cells run, 1 outputs compared" in done.stdout


def test_a_changed_output_fails(tmp_path):
    done = run(tmp_path, ("print(2)", said("1\n"), []))
    assert done.returncode == 1 and "mismatch 'stdout'" in done.stdout


def test_stripped_outputs_fail(tmp_path):
    """G10: nbval alone passes a notebook that stores nothing."""
    done = run(tmp_path, ("x = 1", [], []))
    assert done.returncode == 1 and "nothing was compared" in done.stdout


def test_an_output_that_is_not_stored_fails(tmp_path):
    done = run(tmp_path, ("print(1)", [], []), ("print(2)", said("2\n"), []))
    assert done.returncode == 1 and "Unexpected output fields" in done.stdout


def test_raises_exception_must_raise(tmp_path):
    tag = ["raises-exception"]
    error = nbformat.v4.new_output("error", ename="E", evalue="", traceback=[])
    done = run(tmp_path, ("print(1)", said("1\n"), tag), ("1 / 0", [error], []))
    assert done.returncode == 1
    assert "tagged raises-exception, but the cell ran without an error" in done.stdout


def test_a_dead_kernel_fails_soon(tmp_path):
    """G06: named, and long before the 240 s that a cell may take."""
    kill = "import os, signal; os.kill(os.getpid(), getattr(signal, 'SIGKILL', 9))"
    start = time.monotonic()
    done = run(tmp_path, ("print(1)", said("1\n"), []), (kill, [], []), timeout=240)
    assert time.monotonic() - start < 150
    assert done.returncode == 1 and "a.ipynb" in done.stdout


def test_a_cell_over_its_time_is_named(tmp_path):
    """G06: a kernel that lives, but does not come to an end."""
    cells = [("print(1)", said("1\n"), []), ("while True: pass", [], [])]
    done = run(tmp_path, *cells, timeout=3)
    assert done.returncode == 1 and "a.ipynb" in done.stdout


def test_too_much_memory_fails(tmp_path):
    """G06: the limit is 2 GiB; a small one shows that it is looked at."""
    cells = [("x = bytearray(2**28); print(len(x))", said(f"{2**28}\n"), [])]
    done = run(tmp_path, *cells, options=["--peak-mib", "250"])
    assert done.returncode == 1, done.stdout
    assert "ERROR a.ipynb: its kernel took" in done.stdout
    assert run(tmp_path, *cells).returncode == 0


def test_results_are_kept_for_the_status_page(tmp_path):
    """A chapter's run with its numbers, and the cell that failed."""
    cells = [("print(1)", said("1\n"), []), ("raise KeyError('lost')", [], [])]
    run(tmp_path, *cells, options=["--keep-results"])
    kept = json.loads((tmp_path / "status" / "run" / "a.json").read_text("utf-8"))
    assert kept["result"] == "failed" and kept["cells"] == 1 and kept["outputs"] == 1
    assert kept["peak_mib"] > 20 and kept["seconds"] > 0
    (failed,) = kept["failed"]
    assert "KeyError" in failed["message"] and failed["where"]
    assert str(tmp_path) not in json.dumps(kept)


def test_nothing_is_kept_unless_asked(tmp_path):
    run(tmp_path, ("print(1)", said("1\n"), []))
    assert not (tmp_path / "status").exists()


@pytest.mark.parametrize("shown, code", [("<svg>1.00</svg>", 0), ("<b>1.00</b>", 1)])
def test_drawings_are_not_compared_but_other_html_is(tmp_path, shown, code):
    source = (
        "class Shown:\n"
        "    def __repr__(self): return 'x'\n"
        f"    def _repr_html_(self): return {shown.replace('1.00', '1.01')!r}\n"
        "Shown()"
    )
    done = run(tmp_path, (source, html(shown), []))
    assert done.returncode == code, done.stdout
