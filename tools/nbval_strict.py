"""A pytest plugin beside nbval: count what is compared, and let no cell slip through.

nbval passes a notebook whose outputs were stripped (it compares nothing), and a cell
tagged `raises-exception` that no longer raises. Both fail here. Use it with
`-p tools.nbval_strict`.
"""

from collections import Counter

import pytest

COMPARED = "compared-outputs"


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


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_call(item):
    outcome = yield
    if not is_cell(item) or outcome.excinfo is not None:
        return
    kinds = {output.get("output_type") for output in item.test_outputs or []}
    if item.options["check_exception"] and "error" not in kinds:
        outcome.force_exception(
            AssertionError("tagged raises-exception, but the cell ran without an error")
        )
    item.user_properties.append((COMPARED, comparable(item)))


class Report:
    """Adds up on the controlling process, over all workers."""

    def __init__(self):
        self.outputs, self.cells = Counter(), Counter()

    def pytest_runtest_logreport(self, report):
        for name, value in report.user_properties if report.when == "call" else ():
            if name == COMPARED:
                notebook = report.nodeid.split("::")[0].split("/")[-1]
                self.cells[notebook] += 1
                self.outputs[notebook] += value

    def empty(self) -> list[str]:
        return sorted(n for n in self.cells if not self.outputs[n])

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session):
        ran_nothing = session.config.option.nbval and not self.cells
        if (self.empty() or ran_nothing) and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter):
        write = terminalreporter.write_line
        for notebook in sorted(self.cells):
            cells, outputs = self.cells[notebook], self.outputs[notebook]
            write(f"{notebook}: {cells} cells run, {outputs} outputs compared")
        total = f"{sum(self.cells.values())} cells run, {sum(self.outputs.values())}"
        write(f"chapters: {total} outputs compared")
        for notebook in self.empty():
            write(f"ERROR {notebook}: nothing was compared; its outputs are missing")


def pytest_configure(config):
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Report(), "nbval-strict-report")
