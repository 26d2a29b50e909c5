"""`make bench`: what it measures is what it says; bars are not tested by the clock."""

import json
import types

import pytest
import torch

import benchmarks.gpt as bench
from minigpt.gpt import GPT
from minigpt.train import recipe

IDS = (torch.arange(2000) * 7 + torch.arange(2000) // 5) % 65


def test_the_yardstick_is_the_restated_recipe():
    """Same parameters, logits and gradients as `nanogpt`, in float64."""
    config, _ = recipe("nanogpt", 65)
    torch.manual_seed(0)
    ours = GPT(config).double()
    theirs = bench.Yardstick(config).double().load(ours)
    sizes = [sum(p.numel() for p in m.parameters()) for m in (ours, theirs)]
    assert sizes[0] == sizes[1] == 804_096
    tokens = IDS[:128].view(2, 64)
    weight = torch.randn(2, 64, 65, dtype=torch.float64)
    for model in (ours, theirs):
        (model(tokens) * weight).sum().backward()
    torch.testing.assert_close(ours(tokens), theirs(tokens), rtol=0, atol=1e-10)
    torch.testing.assert_close(
        ours.tok_emb.weight.grad, theirs.tok_emb.weight.grad, rtol=0, atol=1e-8
    )


def test_a_row_says_whether_its_bar_is_held():
    assert bench.row("a", 0.98, 0.97)["held"] is True
    assert bench.row("a", 0.98, 0.97, at_most=True)["held"] is False
    assert bench.row("a", None, 0.97)["held"] is None
    assert bench.row("a", 0.98, None)["held"] is None


def test_a_bar_for_three_seeds_is_not_held_by_one(monkeypatch):
    monkeypatch.setattr(bench.records, "RECORDED", {"best": (11,), "plain": (1, 2, 3)})
    loss = types.SimpleNamespace(final=1.0)
    monkeypatch.setattr(bench.records, "read", lambda name, seed: loss)
    rows = {line["what"].split(",")[1].split()[1]: line for line in bench.losses()}
    assert list(rows) == list(bench.BARS)  # what is not recorded is a row, too
    assert rows["best"]["held"] is None and "three seeds" in rows["best"]["why"]
    assert rows["muon"]["value"] is None and rows["muon"]["bar"] == 1.59


def test_speed_is_the_median_of_ratios_for_equal_tokens(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(bench.time, "process_time", lambda: now[0])

    class Fake:
        def __init__(self, seconds, tokens):
            self.seconds, self.tokens = seconds, tokens

        def step(self):
            now[0] += self.seconds

    times = bench.interleaved([Fake(2.0, 100), Fake(2.0, 200)], rounds=3, steps=2)
    assert [len(each) for each in times] == [3, 3]
    assert bench.ratio(*times) == pytest.approx(2.0)


def test_training_in_the_yardsticks_time_runs_small(monkeypatch):
    monkeypatch.setattr(bench, "choose_dtype", lambda *args: torch.float32)
    seconds = {"nanogpt": 1e-4, "best": 2e-4}
    sizes = {"seeds": (1, 2), "budget": 2 * 3 * 12 * 64}
    short, half = bench.same_time(IDS, IDS[:200], seconds, True, **sizes)
    assert f"{3 * 12 * 64:,} characters" in short["why"] and 0 < short["value"] < 4.3
    assert half["value"] is None and half["why"] == bench.NO_BFLOAT16
    asked, _ = bench.same_time(IDS, IDS[:200], seconds, False)
    assert asked["value"] is None and "--train" in asked["why"]


def test_the_table_and_the_file(monkeypatch, tmp_path, capsys):
    rows = [bench.row("speed", 0.5, 0.97), bench.row("other", None, 1.0)]
    monkeypatch.setattr(bench, "text", lambda: (IDS, IDS[:200]))
    monkeypatch.setattr(bench, "equal_logits", lambda ids: rows[0])
    monkeypatch.setattr(bench, "losses", list)
    monkeypatch.setattr(bench, "step_speeds", lambda *args: ([rows[1]], {}))
    monkeypatch.setattr(bench, "auto_here", lambda *args: (1.0, 0.95))
    monkeypatch.setattr(bench, "auto_as_on_avx2", lambda *args: (1.0, 0.95))
    monkeypatch.setattr(bench, "peak_memory", lambda: 400.0)
    assert bench.main(["--folder", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert "MISSED" in printed and "not measured" in printed and "held" in printed
    result = json.loads((tmp_path / "gpt_cpu.json").read_text("utf-8"))
    assert result["machine"]["threads"] == 1 and len(result["rows"]) == 8


def test_the_chapter_shows_the_result_that_is_stored():
    stored = bench.RESULTS / "gpt_cpu.json"
    shown = bench.RECORDS / "bench_cpu.json"
    assert stored.read_bytes() == shown.read_bytes()
    result = json.loads(shown.read_text("utf-8"))
    bars = [line["bar"] for line in result["rows"] if line["bar"] is not None]
    assert set(bars) >= {
        *(bar for bar in bench.BARS.values() if bar),
        *(1.65, 1.52, 0.97, 0.80, 1.7, 2.5, 0.95, 0.05, 500),
    }
