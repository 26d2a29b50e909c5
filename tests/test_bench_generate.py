"""The benchmark of chapter 14: both candidates write the same text; the table."""

import json

import torch

import benchmarks.generate as bench
from minigpt.gpt import GPTConfig

SMALL = GPTConfig(bench.V, context=12, n_layers=1, n_heads=2, d_model=16)


def test_both_candidates_write_the_same_within_the_window():
    model, prompt = bench.new_model(SMALL), bench.prompt(2, bench.PROMPT)
    work = model, prompt, 8
    ours, theirs = bench.Cached(*work), bench.Recomputed(*work)
    assert torch.equal(ours.step(), theirs.step())
    assert ours.tokens == theirs.tokens == 16


def test_past_the_window_recomputation_slides_by_one_token():
    model, prompt = bench.new_model(SMALL), bench.prompt(1, bench.PROMPT)
    seen = []
    model.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].shape[1]))
    bench.Recomputed(model, prompt, 20).step()
    assert seen == [*range(4, 12), *[12] * 12]


def test_the_table_and_the_file(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(bench, "CASES", [(8, 3, 1, 1e9), (8, 3, 2, 1e-9)])
    monkeypatch.setattr(bench, "recipe", lambda name, V: (SMALL, None))
    monkeypatch.setattr(bench, "GPTConfig", lambda V: SMALL)
    monkeypatch.setattr(bench, "new_model", lambda config, **changes: model)
    torch.manual_seed(0)
    model = bench.GPT(SMALL).eval()
    assert bench.main(["--rounds", "2", "--folder", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert "MISSED" in printed and "held" in printed
    rows = json.loads((tmp_path / "generate_cpu.json").read_text("utf-8"))["rows"]
    assert len(rows) == 6 and all(row["held"] for row in rows[:2])
    assert [row["held"] for row in rows[2:]] == [False, True, None, None]
