"""Run every chapter and compare each output with the stored one (nbval, strict).

python tools/chapters.py          the way a reader runs them: each notebook alone in an
                                  empty folder, in an environment that holds only the
                                  built wheel and its [book] extra
python tools/chapters.py --here   in this environment, which is quicker to start
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
from tools import results  # noqa: E402
from tools.environment import BUILD, environment_python, notebook_environment  # noqa: E402

KERNEL = "minigpt-wheel"
MACHINE = "machine"  # the result that says on what the chapters ran
VERSIONS = """
import json, platform, importlib.metadata as m
names = ("torch", "numpy", "minigpt")
versions = {name: m.version(name) for name in names}
print(json.dumps({"python": platform.python_version()} | versions))
"""


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("notebooks", nargs="*", type=Path)
    parser.add_argument("--here", action="store_true", help="use this environment")
    parser.add_argument("--timeout", type=int, default=240, help="seconds for a cell")
    args = parser.parse_args(argv)
    notebooks = args.notebooks or sorted((ROOT / "chapters").glob("*.ipynb"))
    if not notebooks:
        print("chapters: there are none")
        return 1
    environ = dict(os.environ) | notebook_environment()
    environ.pop("PYTHONPATH", None)
    with tempfile.TemporaryDirectory() as folder:
        python = Path(sys.executable)
        if not args.here:
            python = install_wheel(BUILD / "wheel-env")
        environ["JUPYTER_PATH"] = str(kernelspec(Path(folder, "jupyter"), python))
        results.forget("run", [notebook.stem for notebook in notebooks])
        results.keep(
            "checks", MACHINE, "passed", **results.machine(), **versions(python)
        )
        for notebook in notebooks:
            alone = Path(folder, "run", notebook.stem)
            alone.mkdir(parents=True)
            shutil.copy(notebook, alone)
        return compare(Path(folder, "run"), args.timeout, environ)


def install_wheel(folder: Path) -> Path:
    """An environment with the built wheel, its extra, and nothing else."""
    # setuptools would put what an earlier build left in `build` into the wheel.
    for stale in (folder, BUILD / "dist", ROOT / "build"):
        shutil.rmtree(stale, ignore_errors=True)
    pip = [sys.executable, "-m", "pip", "wheel", "-qq", "--no-deps", str(ROOT)]
    subprocess.run([*pip, "-w", str(BUILD / "dist")], check=True)
    shutil.rmtree(ROOT / "build", ignore_errors=True)
    (wheel,) = (BUILD / "dist").glob("minigpt-*.whl")
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    python = environment_python(folder)
    install = [str(python), "-m", "pip", "install", "-qq", "--no-compile"]
    if os.environ.get("UV_TORCH_BACKEND"):  # uv then chooses which build of torch
        uv = [sys.executable, "-m", "uv", "pip", "install", "-q"]
        install = [*uv, "--python", str(python)]
    lock = ROOT / "requirements-lock.txt"
    subprocess.run([*install, f"{wheel}[book]", "-c", str(lock)], check=True)
    return python


def kernelspec(folder: Path, python: Path) -> Path:
    """A kernel that runs that environment's Python."""
    spec = folder / "kernels" / KERNEL
    spec.mkdir(parents=True)
    launch = [str(python), "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    content = {"argv": launch, "display_name": KERNEL, "language": "python"}
    content["env"] = {"PYTHONPATH": ""}  # the checkout must not shadow the wheel
    (spec / "kernel.json").write_text(json.dumps(content), "utf-8")
    return folder


def versions(python: Path) -> dict[str, str]:
    """Of the Python that the kernels run, and of what it imports."""
    command = [str(python), "-c", VERSIONS]
    done = subprocess.run(command, capture_output=True, text=True, encoding="utf-8")
    return json.loads(done.stdout) if done.returncode == 0 else {}


def compare(folder: Path, timeout: int, environ: dict[str, str]) -> int:
    workers = str(min(2, os.cpu_count() or 1))
    command = [sys.executable, "-m", "pytest", str(folder), "-q", "--no-header"]
    command += ["--rootdir", str(folder), "-p", "no:cacheprovider", "-c", os.devnull]
    command += ["-p", "tools.nbval_strict", "--nbval", "--nbval-kernel-name", KERNEL]
    command += ["--nbval-sanitize-with", str(ROOT / "tools" / "nbval_sanitize.cfg")]
    command += [f"--nbval-cell-timeout={timeout}", "--keep-results"]
    # One worker per notebook: the cells of one notebook share a kernel.
    command += ["-n", workers, "--dist", "loadfile"]
    environ["PYTHONPATH"] = str(ROOT)  # for the plugin; the kernel does not see it
    return subprocess.run(command, env=environ, cwd=folder).returncode


if __name__ == "__main__":
    sys.exit(main())
