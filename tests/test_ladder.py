"""The ladder: fair runs, lines of real code, differences in pairs, the record."""

import dataclasses
import inspect
import itertools
import json
import math
import random
import statistics
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import minigpt.ladder
from minigpt.book import records
from minigpt.gpt import GPT, PRESETS, preset
from minigpt.ladder import (
    RUNGS,
    Difference,
    Run,
    Setting,
    Text,
    body,
    by_rung,
    change,
    choose,
    climb,
    paired,
    summary,
    train_rung,
)
from minigpt.text import windows
from tools import record_ladder, record_stability

often = settings(deadline=None, max_examples=25, derandomize=True)
losses_of_seeds = st.lists(st.floats(-50, 50), min_size=2, max_size=9)
CHAPTER = Path(__file__).resolve().parent.parent / "chapters" / "13_ladder.ipynb"
V, T = 11, 8
TINY = Setting(n_layers=2, d_model=8, n_heads=2, context=T, batch_size=4, steps=6)


@pytest.fixture(scope="module")
def text():
    ids = torch.randint(V, (400,), generator=torch.Generator().manual_seed(0))
    return Text.of(ids[:300], ids[300:], V, T, every=2)


def a_run(rung="pre", start="default", lr=1e-3, seed=0, val_loss=2.5, n_layers=2):
    return Run(rung, n_layers, start, lr, seed, val_loss, [3.0], 10)


# Rungs and their code


def test_every_rung_is_a_preset_and_stands_on_an_earlier_one():
    names = list(RUNGS)
    assert set(names) <= set(PRESETS)
    for place, (name, rung) in enumerate(RUNGS.items()):
        assert rung.below in ("", *names[:place])
        assert bool(rung.below) == (name != "plain")


def test_a_rung_changes_one_field():
    for name, rung in RUNGS.items():
        if rung.below:
            here, below = preset(name, V).to_dict(), preset(rung.below, V).to_dict()
            changed = {key for key in here if here[key] != below[key]}
            assert len(changed - {"d_ff"}) == 1, name


def test_parameters_of_all_rungs_are_equal_within_one_part_in_a_hundred():
    counts = [sum(p.numel() for p in GPT(preset(r, 65)).parameters()) for r in RUNGS]
    assert max(counts) < 1.01 * min(counts)


@pytest.mark.parametrize("rung", RUNGS)
def test_changed_lines_stand_in_the_package(rung):
    new, old = (
        Path(inspect.getsourcefile(code)).read_text("utf-8").splitlines()
        if code
        else []
        for code in (RUNGS[rung].new, RUNGS[rung].old)
    )
    lines = change(rung)
    assert any(line[0] == "+" for line in lines)
    for line in lines:
        source = {"+": new, "-": old}[line[0]]
        assert line[1] == " " and line[2:].strip() in {s.strip() for s in source}


def test_changes_are_those_that_the_chapters_tell():
    assert change("residual") == [
        "- x = self.attn(x)",
        "- x = self.mlp(x)",
        "+ x = x + self.attn(x)",
        "+ x = x + self.mlp(x)",
    ]
    assert change("pre")[2:] == [
        "+ x = x + self.attn(self.attn_norm(x))",
        "+ x = x + self.mlp(self.mlp_norm(x))",
    ]
    assert any("mean" in line and line[0] == "-" for line in change("rmsnorm"))
    assert all("dropout" in line for line in change("dropout"))
    assert any("gate" in line for line in change("swiglu"))


def test_body_leaves_out_head_and_docstring():
    def documented(
        x,
    ):
        """One line.

        And more.
        """
        y = x
        # a remark
        return y

    def bare(x):
        return x

    assert body(documented) == ["y = x", "# a remark", "return y"]
    assert body(bare) == ["return x"]


def test_unknown_names_are_refused(text):
    with pytest.raises(ValueError, match="rung 'prelude' is unknown; choose one of"):
        change("prelude")
    with pytest.raises(ValueError, match="rung 'gpt2' is unknown"):
        train_rung("gpt2", 0, text, TINY, lr=1e-3, start="default")
    with pytest.raises(ValueError, match="start='kaiming' must be one of default"):
        train_rung("pre", 0, text, TINY, lr=1e-3, start="kaiming")
    with pytest.raises(ValueError, match="n_layers=0"):
        zero = dataclasses.replace(TINY, n_layers=0)
        train_rung("pre", 0, text, zero, lr=1e-3, start="default")


# Text and runs


def test_text_keeps_one_window_in_so_many(text):
    ids = torch.arange(100) % V
    tokens, targets = windows(ids, T)
    some = Text.of(ids, ids, V, T, every=3)
    assert torch.equal(some.val[0], tokens[::3])
    assert torch.equal(some.val[1], targets[::3])
    assert Text.of(ids, ids, V, T).val[0].shape == (-(-len(tokens) // 8), T)


def test_frequencies_only_is_the_cross_entropy_of_counts(text):
    ids = text.train.tolist()
    total = 0.0
    for target in text.val[1].flatten().tolist():
        total -= math.log((ids.count(target) + 1) / (len(ids) + V))
    mean = total / text.val[1].numel()
    assert text.frequencies_only == pytest.approx(mean, abs=1e-5)
    unseen = Text(torch.zeros(50, dtype=torch.int64), text.val, V)
    assert math.isfinite(unseen.frequencies_only)


@pytest.fixture
def watched(monkeypatch):
    """What `train_rung` hands to the loop: weights at the start, and batches."""
    seen = []

    def fit(model, batches, *, steps, **more):
        weights = {k: v.clone() for k, v in model.state_dict().items()}
        seen.append((weights, [next(batches) for _ in range(steps)], model.training))
        seen[-1] += (more,)
        return [1.0] * steps

    monkeypatch.setattr(minigpt.ladder, "fit", fit)
    return seen


@pytest.mark.parametrize("start", ["default", "xavier"])
def test_rungs_of_a_seed_begin_alike_and_read_the_same(text, watched, start):
    for rung in RUNGS:
        train_rung(rung, 5, text, TINY, lr=1e-3, start=start)
    ground, batches, *_ = watched[0]
    for rung, (weights, read, training, more) in zip(RUNGS, watched):
        assert training and more == {"lr": 1e-3, "warmup": 25, "clip": 1.0}
        for (x, y), (x0, y0) in zip(read, batches):
            assert torch.equal(x, x0) and torch.equal(y, y0)
        if rung != "swiglu":  # it has other shapes
            for name in ground:
                assert torch.equal(weights[name], ground[name]), (rung, name)


def test_seeds_differ_and_repeat(text, watched):
    for seed in (5, 6, 5):
        train_rung("pre", seed, text, TINY, lr=1e-3, start="default")
    (a, first, *_), (b, second, *_), (again, third, *_) = watched
    name = "blocks.0.attn.qkv.weight"
    assert torch.equal(a[name], again[name]) and not torch.equal(a[name], b[name])
    assert torch.equal(first[0][0], third[0][0])
    assert not all(torch.equal(x, z) for (x, _), (z, _) in zip(first, second))


def test_gpt2_start_is_the_model_s_own(text, watched):
    train_rung("pre", 5, text, TINY, lr=1e-3, start="gpt2")
    torch.manual_seed(5)
    sizes = {"n_layers": 2, "d_model": 8, "n_heads": 2, "context": T}
    own = GPT(preset("pre", V, **sizes)).state_dict()
    assert all(torch.equal(value, own[name]) for name, value in watched[0][0].items())


@pytest.mark.parametrize("rung", RUNGS)
def test_a_run_is_complete_and_repeats(text, rung):
    torch.manual_seed(1)
    run = train_rung(rung, 3, text, TINY, lr=3e-3, start="xavier")
    torch.manual_seed(2)  # what happened before does not matter
    assert run == train_rung(rung, 3, text, TINY, lr=3e-3, start="xavier")
    assert len(run.losses) == TINY.steps and all(map(math.isfinite, run.losses))
    assert 1.0 < run.val_loss < 4.0
    assert (run.rung, run.n_layers, run.start, run.lr, run.seed) == (
        rung, 2, "xavier", 3e-3, 3)  # fmt: skip
    assert run.n_parameters > 1000


def test_a_failed_run_has_no_loss_and_did_not_learn(text, monkeypatch):
    monkeypatch.setattr(minigpt.ladder, "fit", lambda *_, **__: [3.0, math.nan])
    run = train_rung("residual", 0, text, TINY, lr=1.0, start="default")
    assert math.isnan(run.val_loss)
    assert not run.learned(1e9)
    assert a_run(val_loss=2.0).learned(2.2) and not a_run(val_loss=2.15).learned(2.2)


def test_a_climb_trains_every_rung_over_the_seeds(text):
    places = {"plain": ("xavier", 1e-3), "pre": ("default", 3e-3)}
    runs = climb(text, TINY, places, (4, 2))
    assert {rung: [run.seed for run in of] for rung, of in runs.items()} == {
        "plain": [4, 2],
        "pre": [4, 2],
    }
    assert {(run.start, run.lr) for run in runs["pre"]} == {("default", 3e-3)}
    alone = train_rung("pre", 2, text, TINY, lr=3e-3, start="default")
    assert runs["pre"][1] == alone


# Places


def test_choose_takes_the_lowest_mean_and_no_failure():
    runs = [
        a_run(lr=1e-3, seed=0, val_loss=2.0),
        a_run(lr=1e-3, seed=1, val_loss=2.6),
        a_run(lr=3e-3, seed=0, val_loss=2.2),
        a_run(lr=3e-3, seed=1, val_loss=2.2),
        a_run(lr=1e-2, seed=0, val_loss=1.0),
        a_run(lr=1e-2, seed=1, val_loss=math.nan),
        a_run(lr=3e-3, start="xavier", seed=0, val_loss=2.2),
    ]
    assert choose(runs) == ("default", 3e-3)
    assert choose([a_run(val_loss=math.nan)]) == ("default", 1e-3)


def test_choose_refuses_what_it_cannot_compare():
    for runs in ([], [a_run("pre"), a_run("post")], [a_run(), a_run(n_layers=3)]):
        with pytest.raises(ValueError, match="one rung and depth"):
            choose(runs)


@often
@given(st.lists(st.floats(0, 9) | st.just(math.nan), min_size=1, max_size=8))
def test_choose_is_no_worse_than_any_place(values):
    runs = [a_run(lr=10.0**-i, val_loss=value) for i, value in enumerate(values)]
    finite = [value for value in values if math.isfinite(value)]
    chosen = next(run for run in runs if run.lr == choose(runs)[1])
    assert chosen.val_loss == min(finite) if finite else chosen is runs[0]


def test_by_rung_reads_rows_in_order():
    row = dataclasses.asdict(a_run(seed=1, val_loss=2.0)) | {"part": "ladder"}
    rows = [
        row,
        row | {"seed": 0, "val_loss": None},
        row | {"rung": "plain"},
        row | {"part": "grid", "val_loss": 9.0},
    ]
    found = by_rung(rows, part="ladder", n_layers=2)
    assert list(found) == ["plain", "pre"]
    assert [run.seed for run in found["pre"]] == [0, 1]
    assert math.isnan(found["pre"][0].val_loss)
    assert found["pre"][1] == a_run(seed=1, val_loss=2.0)
    assert by_rung(rows, n_layers=5) == {}


# Differences


@often
@given(st.lists(st.tuples(st.floats(0, 9), st.floats(0, 9)), min_size=2, max_size=9))
def test_differences_by_formula(pairs):
    """formula: differences"""
    a, b = zip(*pairs)
    d = [x - y for x, y in pairs]
    n = len(d)
    mean = sum(d) / n
    squares = 0.0
    for value in d:
        squares += (value - mean) ** 2
    spread = math.sqrt(squares / (n - 1))
    found = paired(a, b)
    assert list(found.values) == d
    assert found.mean == pytest.approx(mean, abs=1e-12)
    assert found.spread == pytest.approx(spread, abs=1e-7)
    assert found.error == pytest.approx(spread / n**0.5, abs=1e-7)


@often
@given(losses_of_seeds, st.floats(-9, 9))
def test_a_difference_turns_its_sign_and_forgets_what_is_shared(a, shift):
    b = [x * 0.5 - 1 for x in a]
    one, other = paired(a, b), paired(b, a)
    assert other.mean == pytest.approx(-one.mean, abs=1e-9)
    assert other.spread == pytest.approx(one.spread, abs=1e-9)
    moved = paired([x + shift for x in a], [x + shift for x in b])
    assert moved.mean == pytest.approx(one.mean, abs=1e-9)
    assert moved.error == pytest.approx(one.error, abs=1e-9)


def test_agreement_wants_one_sign_and_no_zero():
    assert paired([1, 2], [0, 0]).agree and paired([0, 0], [1, 2]).agree
    assert not paired([1, 0], [0, 1]).agree and not paired([1, 1], [0, 1]).agree


def test_pairing_takes_out_the_luck_that_is_shared():
    luck = random.Random(0)
    shared = [luck.gauss(0, 1) for _ in range(8)]
    a = [s + luck.gauss(0.3, 0.05) for s in shared]
    b = [s + luck.gauss(0, 0.05) for s in shared]
    found = paired(a, b)
    apart = math.sqrt((statistics.variance(a) + statistics.variance(b)) / 8)
    assert found.error < 0.1 * apart
    assert found.mean > 4 * found.error


def test_paired_refuses_what_has_no_difference():
    with pytest.raises(ValueError, match="a has 2 values and b 3"):
        paired([1, 2], [1, 2, 3])
    with pytest.raises(ValueError, match="two or more seeds"):
        paired([1], [2])
    for bad in (math.nan, math.inf):
        with pytest.raises(ValueError, match="count it as a failure"):
            paired([1, bad], [1, 2])


@pytest.mark.parametrize(("alpha", "k"), [(1 / 16, 12), (0.01, 12), (0.5, 3)])
def test_many_looks_by_counting(alpha, k):
    """formula: many-looks"""
    none = 1.0
    for _ in range(k):
        none *= 1 - alpha
    at_least_one = sum(  # all ways to be right and wrong
        math.comb(k, wrong) * alpha**wrong * (1 - alpha) ** (k - wrong)
        for wrong in range(1, k + 1)
    )
    assert 1 - none == pytest.approx(at_least_one, abs=1e-12)
    assert 1 - (1 - alpha) ** k == pytest.approx(at_least_one, abs=1e-12)


def test_five_seeds_agree_by_chance_once_in_sixteen():
    patterns = list(itertools.product((-1, 1), repeat=5))
    agree = [paired(signs, [0] * 5).agree for signs in patterns]
    assert sum(agree) / len(patterns) == 1 / 16


def test_the_limit_is_student_s_for_five_seeds():
    """4.6 standard errors: outside lies one in a hundred, with 4 degrees of freedom."""
    step, inside = 1e-4, 0.0
    for i in range(46_000):
        t = (i + 0.5) * step
        inside += 2 * step * 0.375 * (1 + t * t / 4) ** -2.5
    assert 1 - inside == pytest.approx(0.01, abs=2e-4)


def test_summary_names_what_each_rung_did():
    runs = {
        "plain": [a_run("plain", seed=s, val_loss=3.3) for s in (0, 1)],
        "residual": [a_run("residual", seed=s, val_loss=2.5 + s / 10) for s in (0, 1)],
        "post": [a_run("post", seed=s, val_loss=(math.nan, 2.4)[s]) for s in (0, 1)],
        "swiglu": [a_run("swiglu", seed=s) for s in (0, 1)],
    }
    plain, residual, post, swiglu = summary(runs)
    assert plain["difference"] is None and plain["below"] == ""
    assert isinstance(residual["difference"], Difference)
    assert residual["difference"].mean == pytest.approx(-0.75)
    assert residual["losses"] == [2.5, 2.6] and residual["n_parameters"] == 10
    assert residual["change"] == change("residual")
    assert residual["adds"] == RUNGS["residual"].adds
    assert (post["failed"], post["difference"]) == (1, None)
    assert swiglu["difference"] is None  # rmsnorm was not climbed


# The record


@pytest.fixture(scope="module")
def record():
    return records.ladder()


def test_the_record_is_whole_and_of_this_setting(record):
    setting = record["setting"]
    assert setting["device"] == "one CPU core"
    ours = dataclasses.asdict(Setting())
    ours.pop("n_layers")
    assert {key: setting[key] for key in ours} == ours
    line = setting["frequencies_only"]
    assert list(record_ladder.missing(record["runs"], line)) == []
    places = [tuple(r[key] for key in record_ladder.PLACE) for r in record["runs"]]
    assert len(set(places)) == len(places)
    assert all(len(run["losses"]) == 25 for run in record["runs"])
    assert records.ladder("another") is None


def test_the_place_of_each_rung_was_chosen_on_another_seed(record):
    assert record_ladder.GRID_SEED not in record_ladder.SEEDS
    assert len(record_ladder.SEEDS) >= 5
    for n_layers in record_ladder.PARTS:
        for rung, runs in by_rung(
            record["runs"], part="ladder", n_layers=n_layers
        ).items():
            place = record_ladder.own_place(record["runs"], rung, n_layers)
            assert {(run.start, run.lr) for run in runs} == {place}
            assert [run.seed for run in runs] == list(record_ladder.SEEDS)


@pytest.mark.parametrize(("rung", "n_layers"), [("swiglu", 2), ("pre", 12)])
def test_the_first_steps_of_a_recorded_run_remade(record, rung, n_layers):
    (stored,) = [
        run
        for run in record["runs"]
        if (run["part"], run["rung"], run["n_layers"], run["seed"])
        == ("ladder", rung, n_layers, 0)
    ]
    text = record_ladder.read_text("cpu")
    line = record["setting"]["frequencies_only"]
    assert text.frequencies_only == pytest.approx(line, abs=1e-3)
    setting = Setting(n_layers=n_layers, steps=10)
    place = {"lr": stored["lr"], "start": stored["start"]}
    run = train_rung(rung, 0, text, setting, **place)
    assert run.n_parameters == stored["n_parameters"]
    assert statistics.fmean(run.losses) == pytest.approx(stored["losses"][0], abs=5e-3)


def test_the_record_says_what_the_chapter_says(record):
    line, rows = record["setting"]["frequencies_only"], record["runs"]
    ladder = {n: by_rung(rows, part="ladder", n_layers=n) for n in (2, 12)}
    assert not any(run.learned(line) for run in ladder[12].pop("plain"))
    for runs in (*ladder[2].values(), *ladder[12].values()):
        assert all(run.learned(line) for run in runs)
    difference = {n: {s["rung"]: s for s in summary(ladder[n])} for n in ladder}
    for n in ladder:
        worse = difference[n]["dropout"]["difference"]
        assert worse.agree and worse.mean > 4.6 * worse.error
    page = by_rung(rows, part="page")
    losses = ([run.val_loss for run in page[rung]] for rung in ("dropout", "rmsnorm"))
    better = paired(*losses)
    assert better.agree and better.mean < -4.6 * better.error
    grid = by_rung(rows, part="grid", n_layers=12)
    high = {rung: [r for r in runs if r.lr >= 1e-2] for rung, runs in grid.items()}
    for rung, runs in high.items():
        before = rung in ("pre", "rmsnorm", "dropout", "swiglu")
        assert {run.learned(line) for run in runs} == {before}


def test_the_record_is_resumed_and_written_whole(tmp_path, monkeypatch):
    budget = [20]

    def fake(place, text):
        if not budget[0]:
            raise KeyboardInterrupt
        budget[0] -= 1
        # the lowest rate of the grid is the best for all but two rungs
        loss = 2.0 + place["lr"] * (-1 if place["rung"] == "pre" else 1)
        loss = 9.0 if place["rung"] == "plain" else loss  # learns nowhere
        return place | {"n_parameters": 1, "val_loss": loss, "losses": []}

    monkeypatch.setattr(record_ladder, "FOLDER", tmp_path)
    monkeypatch.setattr(record_ladder, "run", fake)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(KeyboardInterrupt):
        record_ladder.main([])
    path = tmp_path / "ladder.json"
    assert len(json.loads(path.read_text("utf-8"))["runs"]) == 20
    budget[0] = 1000
    assert record_ladder.main(["--minutes", "0"]) == 0 and budget[0] == 1000
    assert record_ladder.main([]) == 0
    runs = json.loads(path.read_text("utf-8"))["runs"]
    places = [tuple(run[key] for key in record_ladder.PLACE) for run in runs]
    assert len(set(places)) == len(places) == 20 + 1000 - budget[0]
    assert list(tmp_path.iterdir()) == [path]
    lower = {run["rung"] for run in runs if run["lr"] == record_ladder.LOWER}
    assert lower == set(RUNGS) - {"pre"}
    deep = [r for r in runs if (r["part"], r["n_layers"]) == ("grid", 12)]
    own = {r["start"] for r in deep if r["rung"] == "swiglu"}
    assert own == {record_ladder.own_place(runs, "pre", 12)[0]}
    parts = [run["part"] for run in runs]
    assert (parts.count("ladder"), parts.count("page")) == (7 * 5 * 2, 10)


def test_a_page_belongs_to_its_seed():
    ids = torch.arange(10_000)
    first, other = record_ladder.page(ids, 1), record_ladder.page(ids, 2)
    assert len(first) == record_ladder.PAGE
    assert torch.equal(first, torch.arange(first[0].item(), first[-1].item() + 1))
    assert torch.equal(first, record_ladder.page(ids, 1))
    assert not torch.equal(first, other)
    assert torch.equal(record_ladder.page(ids[:2000], 3), ids[:2000])


def test_a_failure_of_the_map_remade():
    """Twelve residual blocks without a norm, under Xavier's rule, at 0.003."""
    setting = {"order": "residual", "depth": 12, "lr": 3e-3, "warmup": 0, "seed": 0}
    (stored,) = [
        run
        for run in records.stability()["runs"]
        if all(run[key] == value for key, value in setting.items())
    ]
    assert stored["val_loss"] is None
    chapter = record_stability.cells()
    chapter["SIZE"]["steps"] = 20
    found = record_stability.run(chapter, setting)
    learned = found["val_loss"] is not None and found["val_loss"] < 3.2
    assert not learned


def test_public_names_are_documented():
    for name in minigpt.ladder.__all__:
        thing = getattr(minigpt.ladder, name)
        if callable(thing) and name != "HEADS":
            assert inspect.getdoc(thing), name
    for function in (change, train_rung, choose, climb, paired, by_rung, summary):
        assert "Args:" in inspect.getdoc(function)
    assert "Source:" in inspect.getdoc(paired)


def test_five_seeds_that_agree_by_chance():
    """quiz: 2"""
    signs = list(itertools.product((-1, 1), repeat=5))
    alike = [pattern for pattern in signs if abs(sum(pattern)) == 5]
    assert len(signs) == 32 and len(alike) == 2
    assert len(alike) / len(signs) == 1 / 16
    assert sum(sum(pattern) == 5 for pattern in signs) / len(signs) == 1 / 32
