""".github/workflows: lint them, and keep what they promise true."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import check_jsonschema
import click.testing
import pytest
import yaml

from tools import bootstrap, install_plan

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / ".github" / "workflows"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]


def load(name: str) -> dict:
    workflow = yaml.safe_load((FOLDER / f"{name}.yml").read_text("utf-8"))
    workflow["on"] = workflow.pop(True)  # YAML 1.1 reads `on` as a truth value
    return workflow


WORKFLOWS = {path.stem: load(path.stem) for path in sorted(FOLDER.glob("*.yml"))}
JOBS = {f"{w}/{j}": job for w in WORKFLOWS for j, job in WORKFLOWS[w]["jobs"].items()}


# A job that calls another workflow has no steps of its own.
CALLS = {name: job["uses"] for name, job in JOBS.items() if "uses" in job}


def steps(job: dict, key: str) -> list[str]:
    return [step[key] for step in job.get("steps", []) if key in step]


def version(text: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", text)))


def supported_pythons() -> list[tuple[int, ...]]:
    start = "Programming Language :: Python :: 3."
    return sorted(version(c) for c in PROJECT["classifiers"] if c.startswith(start))


def check(schema: str, paths: list[Path]) -> click.testing.Result:
    """In this process: to start another takes longer than to check."""
    command = ["--builtin-schema", f"vendor.github-{schema}", *map(str, paths)]
    return click.testing.CliRunner().invoke(check_jsonschema.main, command)


def test_they_are_valid_workflows(tmp_path):
    done = check("workflows", sorted(FOLDER.glob("*.yml")))
    assert done.exit_code == 0, done.output
    wrong = tmp_path / "wrong.yml"
    wrong.write_text("on: push\njobs: {a: {steps: []}}\n", "utf-8")
    assert check("workflows", [wrong]).exit_code == 1, "it finds what is wrong"


def test_they_are_valid_issue_forms():
    forms = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))
    config = [path for path in forms if path.stem == "config"]
    for schema, paths in (
        ("issue-config", config),
        ("issue-forms", [path for path in forms if path not in config]),
    ):
        done = check(schema, paths)
        assert done.exit_code == 0, done.output


def test_no_finding_of_the_linter():
    """zizmor: pinned actions, least permissions, no expression inside a script."""
    command = [zizmor(), "--offline", "--no-progress", "--color=never", str(FOLDER)]
    done = subprocess.run(command, capture_output=True, text=True, encoding="utf-8")
    assert done.returncode == 0, done.stdout + done.stderr


def zizmor() -> str:
    found = [p for p in Path(sys.executable).parent.glob("zizmor*") if p.is_file()]
    assert found, "zizmor is not installed; it is in requirements.txt"
    return str(found[0])


def test_the_three_workflows():
    assert set(WORKFLOWS) == {"test", "publish", "weekly"}
    assert {"push", "pull_request"} <= set(WORKFLOWS["test"]["on"])
    assert WORKFLOWS["publish"]["on"]["push"] == {"branches": ["main"]}
    assert (
        WORKFLOWS["weekly"]["on"]["schedule"]
        and "workflow_dispatch" in (WORKFLOWS["weekly"]["on"])
    )
    assert all("pull_request_target" not in w["on"] for w in WORKFLOWS.values())


@pytest.mark.parametrize("name", WORKFLOWS)
def test_nothing_is_permitted_but_by_a_job(name):
    assert WORKFLOWS[name]["permissions"] == {}
    assert WORKFLOWS[name]["concurrency"]


@pytest.mark.parametrize("name", JOBS)
def test_each_job_is_bounded(name):
    job = JOBS[name]
    assert name in CALLS or 0 < job["timeout-minutes"] <= 60
    writes = {k for k, v in job["permissions"].items() if v == "write"}
    allowed = {
        "publish/deploy": {"pages", "id-token"},
        "weekly/publish": {"pages", "id-token"},
        "weekly/report": {"issues"},
    }
    assert writes == allowed.get(name, set())


@pytest.mark.parametrize("name", JOBS)
def test_each_action_is_pinned_by_commit_with_its_version(name):
    text = (FOLDER / f"{name.split('/')[0]}.yml").read_text("utf-8")
    for action in steps(JOBS[name], "uses"):
        pin = re.escape(action) + r" # v\d+\.\d+\.\d+\n"
        assert re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", action), action
        assert re.search(pin, text), f"{action}: its version stands beside it"


def test_one_commit_for_each_action():
    uses = {action for job in JOBS.values() for action in steps(job, "uses")}
    names = [action.split("@")[0] for action in uses]
    assert len(names) == len(set(names)), sorted(uses)


def test_the_matrix_covers_systems_and_bounds():
    """Oldest and newest Python and torch are those that pyproject.toml admits."""
    matrix = JOBS["test/package"]["strategy"]["matrix"]
    systems = {name.split("-")[0] for name in matrix["os"]}
    assert systems == {"ubuntu", "macos", "windows"}

    pythons = sorted(map(version, matrix["python"]))
    supported = supported_pythons()
    assert pythons == [supported[0], supported[-1]]
    assert version(PROJECT["requires-python"]) == supported[0]

    torch = {version(row["python"]): row["torch"] for row in matrix["include"]}
    (bound,) = (d for d in PROJECT["dependencies"] if re.match(r"torch\b", d))
    assert torch[supported[0]] == bound.replace(">=", "==") + ".*"
    assert torch[supported[-1]] == "torch", "the newest there is"
    peers = {version(row["python"]): row["transformers"] for row in matrix["include"]}
    book = PROJECT["optional-dependencies"]["book"]
    (bound,) = (d for d in book if d.startswith("transformers"))
    assert peers[supported[0]] == bound.replace(">=", "==") + ".*"
    assert peers[supported[-1]] == "transformers"


def test_every_job_runs_a_supported_python():
    for name, job in JOBS.items():
        for step in job.get("steps", []):
            asked = step.get("with", {}).get("python-version", "")
            if asked and "matrix" not in asked:
                assert version(asked) in supported_pythons(), name
    bounds = supported_pythons()
    assert (bounds[0], bounds[-1]) == (bootstrap.OLDEST, bootstrap.NEWEST)


def test_the_full_check_is_the_command_of_the_readme():
    assert "make test" in steps(JOBS["test/book"], "run")
    assert "make test" in (ROOT / "README.md").read_text("utf-8")
    assert "make test" in (ROOT / ".ci" / "run").read_text("utf-8")


def test_what_is_published_carries_its_own_address():
    job = JOBS["publish/build"]
    assert job["env"]["BOOK_REPOSITORY_URL"] == (
        "${{ github.server_url }}/${{ github.repository }}"
    )
    commands = steps(job, "run")
    assert commands.index("make stamp") < commands.index("make book SERVE=0")
    assert JOBS["publish/deploy"]["environment"]["name"] == "github-pages"


def test_the_status_page_shows_the_tests_of_the_same_commit():
    """The tests' results, and each week those as on Colab, go to the build."""
    assert CALLS == {
        "publish/tests": "$/.github/workflows/test.yml",
        "weekly/publish": "$/.github/workflows/publish.yml",
    }
    assert JOBS["publish/build"]["needs"] == "tests"
    assert JOBS["weekly/publish"]["needs"] == "colab"
    kept = {
        step["with"]["name"]: step["with"]["path"]
        for name in ("test/book", "weekly/colab")
        for step in JOBS[name]["steps"]
        if "upload-artifact" in step.get("uses", "")
    }
    assert kept["status-tests"] == kept["status-colab"] == "_build/status/"
    (got,) = (
        step["with"]
        for step in JOBS["publish/build"]["steps"]
        if "download-artifact" in step.get("uses", "")
    )
    assert got["pattern"] == "status-*" and got["path"] == "_build/status"
    # A failed test is published, as failed; so is a failed week.
    for name in ("publish/build", "publish/deploy", "weekly/publish"):
        assert "!cancelled()" in JOBS[name]["if"]


def test_the_pdf_is_published_beside_the_pages():
    commands = steps(JOBS["publish/build"], "run")
    build, pdf = commands.index("make book SERVE=0"), commands.index("make pdf")
    (copy,) = (i for i, c in enumerate(commands) if "_build/pdf/*.pdf" in c)
    assert build < pdf < copy


def test_the_weekly_run_is_like_colab():
    """I01, I05: older widgets and IPython, and an install that replaces nothing."""
    script = "\n".join(steps(JOBS["weekly/colab"], "run"))
    for pin in ("numpy==2.1.*", "ipython==7.34.*", "ipywidgets==7.7.*"):
        assert pin in script
    assert "tools/install_plan.py" in script and "jupyter execute" in script
    report = JOBS["weekly/report"]
    assert report["needs"] == "colab" and "failure()" in report["if"]
    assert "gh issue create" in "\n".join(steps(report, "run"))


def test_commands_name_files_that_exist():
    named = {
        name
        for job in JOBS.values()
        for script in steps(job, "run")
        for name in re.findall(r"\b(?:tools|tests)/\w+\.\w+", script)
    }
    assert "tools/data.py" in named
    assert [name for name in named if not (ROOT / name).is_file()] == []


@pytest.mark.parametrize(
    "names, bad",
    [
        (["minigpt", "tiktoken", "regex", "pooch"], []),
        (["minigpt", "Torch"], ["torch==1"]),
        (["nvidia_cublas.cu12", "numpy"], ["numpy==1", "nvidia-cublas-cu12==1"]),
        (["torchmetrics", "numpydoc"], []),
    ],
)
def test_install_plan_finds_what_would_be_replaced(names, bad):
    """I05: `pip install --report` lists only what pip would write."""
    plan = {"install": [{"metadata": {"name": n, "version": "1"}} for n in names]}
    assert install_plan.changed(plan) == bad
