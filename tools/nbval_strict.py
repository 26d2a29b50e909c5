"""A pytest plugin beside nbval: count what is compared, and let no cell slip through.

nbval passes a notebook whose outputs were stripped (it compares nothing), and a cell
tagged `raises-exception` that no longer raises. Both fail here. So does a notebook
whose kernel takes more memory than a free machine on Colab can spare, and one whose
kernel dies fails soon instead of at the end of its time. Use it with
`-p tools.nbval_strict`.
"""

import re
import time
from collections import Counter, defaultdict
from pathlib import Path
from queue import Empty

import psutil
import pytest
from nbval.kernel import RunningKernel

from tools import results

COMPARED, CELL, PEAK = "compared-outputs", "cell-id", "peak-mib"
PATIENCE = 5  # seconds between two looks at whether a kernel lives


def pytest_addoption(parser):
    parser.addoption(
        "--peak-mib",
        type=int,
        default=2048,
        help="most memory that the kernel of a notebook may take",
    )
    parser.addoption(
        "--keep-results", action="store_true", help="write them for the status page"
    )


def is_cell(item) -> bool:
    return hasattr(item, "cell") and hasattr(item, "cell_num")


def comparable(item) -> int:
    """How many stored outputs of this cell nbval compares (images are not compared)."""
    if item.options["skip"] or not item.options["check"]:
        return 0
    kinds = 0
    for output in item.cell.get("outputs", []):
        data = output.get("data", {})
        kinds += any(k.startswith("text/") for k in data) if data else 1
    return kinds


def peak_mib(item) -> int:
    """The most memory that the cell's kernel has had so far, in MiB; 0 if it died."""
    kernel = item.parent.kernel
    try:
        process = psutil.Process(kernel.km.provisioner.pid)
        status = Path(f"/proc/{process.pid}/status")
        if status.is_file():
            high = re.search(r"^VmHWM:\s*(\d+) kB", status.read_text("utf-8"), re.M)
            return int(high[1]) // 1024 if high else 0
        memory = process.memory_info()
        return getattr(memory, "peak_wset", memory.rss) // 2**20
    except (AttributeError, psutil.Error, OSError):
        return 0


def look_while_waiting(get_message):
    """A dead kernel answers no more: do not wait for it until the time is up."""

    def get(self, stream, timeout=None):
        end = time.monotonic() + (timeout or 0)
        while True:
            left = end - time.monotonic()
            try:
                return get_message(self, stream, timeout=max(0, min(PATIENCE, left)))
            except Empty:
                if left <= PATIENCE or not self.is_alive():
                    raise

    return get


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_call(item):
    outcome = yield
    if not is_cell(item):
        return
    item.user_properties.append((CELL, item.cell.get("id", str(item.cell_num))))
    item.user_properties.append((PEAK, peak_mib(item)))
    if outcome.excinfo is not None:
        return
    kinds = {output.get("output_type") for output in item.test_outputs or []}
    if item.options["check_exception"] and "error" not in kinds:
        outcome.force_exception(
            AssertionError("tagged raises-exception, but the cell ran without an error")
        )
    item.user_properties.append((COMPARED, comparable(item)))


class Report:
    """Adds up on the controlling process, over all workers."""

    def __init__(self, most_mib: int, keep: bool):
        self.outputs, self.cells, self.seconds = Counter(), Counter(), Counter()
        self.peak, self.failed = Counter(), defaultdict(list)
        self.most_mib, self.keep = most_mib, keep

    def pytest_runtest_logreport(self, report):
        notebook = report.nodeid.split("::")[0].split("/")[-1]
        if not notebook.endswith(".ipynb"):
            return
        self.seconds[notebook] += report.duration
        found = dict(report.user_properties)
        if report.failed:
            said = {"where": found.get(CELL, ""), "message": reason(report)}
            self.failed[notebook].append(said)
        if report.when != "call":
            return
        self.peak[notebook] = max(self.peak[notebook], found.get(PEAK, 0))
        if COMPARED in found:
            self.cells[notebook] += 1
            self.outputs[notebook] += found[COMPARED]

    def empty(self) -> list[str]:
        return sorted(n for n in self.cells if not self.outputs[n])

    def heavy(self) -> list[str]:
        return sorted(n for n in self.peak if self.peak[n] > self.most_mib)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session):
        ran_nothing = session.config.option.nbval and not self.cells
        wrong = self.empty() or self.heavy() or ran_nothing
        if wrong and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
        for notebook in self.seconds if self.keep else ():
            self.write(notebook)

    def write(self, notebook: str):
        failed = self.failed[notebook][:5]
        if notebook in self.empty():
            failed.append({"where": "", "message": "nothing was compared"})
        if notebook in self.heavy():
            failed.append({"where": "", "message": f"over {self.most_mib} MiB"})
        results.keep(
            "run",
            notebook.removesuffix(".ipynb"),
            "failed" if failed else "passed",
            seconds=round(self.seconds[notebook], 1),
            peak_mib=self.peak[notebook],
            cells=self.cells[notebook],
            outputs=self.outputs[notebook],
            failed=failed,
        )

    def pytest_terminal_summary(self, terminalreporter):
        write = terminalreporter.write_line
        for notebook in sorted(self.cells):
            cells, outputs = self.cells[notebook], self.outputs[notebook]
            spent = f"{self.seconds[notebook]:.0f} s, {self.peak[notebook]} MiB"
            write(f"{notebook}: {cells} cells run, {outputs} outputs compared, {spent}")
        total = f"{sum(self.cells.values())} cells run, {sum(self.outputs.values())}"
        write(f"chapters: {total} outputs compared")
        for notebook in self.empty():
            write(f"ERROR {notebook}: nothing was compared; its outputs are missing")
        for notebook in self.heavy():
            found = f"{self.peak[notebook]} MiB, more than {self.most_mib}"
            write(f"ERROR {notebook}: its kernel took {found}")


def reason(report) -> str:
    """What went wrong in a few words: of an error its last line."""
    lines = [line for line in report.longreprtext.splitlines() if line.strip()]
    plain = [re.sub(r"\x1b\[[0-9;]*m", "", line).strip() for line in lines]
    cell = next((s for s in plain if re.match(r"Cell \d+: ", s)), plain[0])
    said = re.sub(r"^Cell \d+: ", "", cell)
    last = (
        plain[-1] if re.match(r"[\w.]*(Error|Exception|Interrupt)\b", plain[-1]) else ""
    )
    return results.plain(f"{said}: {last}" if last and last != said else said)


def pytest_configure(config):
    if not hasattr(RunningKernel.get_message, "__wrapped__"):
        patient = RunningKernel.get_message
        RunningKernel.get_message = look_while_waiting(patient)
        RunningKernel.get_message.__wrapped__ = patient
    if not hasattr(config, "workerinput"):
        report = Report(config.option.peak_mib, config.option.keep_results)
        config.pluginmanager.register(report, "nbval-strict-report")
