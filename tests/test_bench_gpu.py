"""`benchmarks/gpu.py`, at tiny size on the CPU: that it measures, keeps and stops."""

import json

import pytest
import torch

import benchmarks.gpu as bench
from minigpt.gpt import preset
from minigpt.train import SUPPORTED

IDS = (torch.arange(9000) * 7 + torch.arange(9000) // 5) % 65
CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def short_text(monkeypatch):
    monkeypatch.setattr(bench, "text", lambda: (IDS, IDS[:300]))


def rows(folder) -> dict[str, list[dict]]:
    result = json.loads((folder / "gpt_small.json").read_text("utf-8"))
    parts: dict[str, list[dict]] = {}
    for line in result["rows"]:
        parts.setdefault(line["part"], []).append(line)
    return parts


def test_all_of_it_runs_small(tmp_path, capsys):
    assert bench.main(["--small", "--folder", str(tmp_path)]) == 0
    parts = rows(tmp_path)
    assert list(parts) == list(bench.SECONDS)
    assert not any("Error" in line["why"] for part in parts.values() for line in part)
    measured = [line for line in parts["checks"] if line["value"] is not None]
    assert len(measured) == 4 + len(SUPPORTED["cpu"])
    assert all(line["held"] and line["value"] == 0.0 for line in measured)
    assert (
        parts["nanogpt"][0]["value"] < 4.3 and "1.4697" in parts["nanogpt"][0]["what"]
    )
    assert "mean of 3" in parts["ours"][0]["what"] and parts["ours"][1]["value"] > 0
    assert any("share of peak" in line["what"] for line in parts["speed"])
    assert "ours" in capsys.readouterr().out


def test_the_seconds_of_the_parts_are_less_than_eight_minutes():
    assert sum(bench.SECONDS.values()) < 8 * 60


def test_a_part_that_is_out_of_time_keeps_what_it_has(tmp_path, monkeypatch):
    monkeypatch.setitem(bench.SECONDS, "nanogpt", 0.0)
    monkeypatch.setitem(bench.TINY_TRAINING, "steps", 40)
    options = ["--small", "--folder", str(tmp_path), "--parts", "nanogpt", "speed"]
    assert bench.main(options) == 0
    parts = rows(tmp_path)
    assert "stopped after" in parts["nanogpt"][0]["why"]
    assert "of 40" in parts["nanogpt"][0]["why"]
    assert parts["speed"][0]["value"] > 0


def test_a_part_that_fails_is_said_and_the_others_are_kept(tmp_path, monkeypatch):
    def fail(*args):
        raise RuntimeError("no kernel\nand more")

    monkeypatch.setattr(bench, "selfcheck", fail)
    options = ["--small", "--folder", str(tmp_path), "--parts", "checks", "speed"]
    assert bench.main(options) == 0
    parts = rows(tmp_path)
    assert parts["checks"][0]["why"] == "RuntimeError: no kernel"
    assert parts["speed"][0]["value"] > 0


def test_a_killed_run_keeps_the_parts_before(tmp_path, monkeypatch):
    def killed(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr(bench, "speed", killed)
    options = ["--small", "--folder", str(tmp_path), "--parts", "nanogpt", "speed"]
    with pytest.raises(KeyboardInterrupt):
        bench.main(options)
    assert list(rows(tmp_path)) == ["nanogpt"]


def test_operations_of_a_token_are_those_of_the_formula():
    """GPT-2, 1024 tokens: 6 x 123.65 million + 12 x 12 x 768 x 1024."""
    config = preset("gpt2", 50_257, bias=False)
    expected = 6 * 123.6e6 + 12 * 12 * 768 * 1024
    assert bench.operations_per_token(config) == pytest.approx(expected, rel=2e-3)


def test_a_small_run_never_stands_for_a_device(tmp_path, monkeypatch):
    monkeypatch.setattr(bench, "RESULTS", tmp_path)
    monkeypatch.setattr(bench, "RECORDS", tmp_path / "records")
    bench.keep({"small": True, "rows": []}, tmp_path)
    assert not list(tmp_path.iterdir())


def test_without_cuda_it_says_what_can_be_done(monkeypatch, capsys):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(SystemExit):
        bench.main([])
    assert "--small" in capsys.readouterr().err
