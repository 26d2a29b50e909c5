"""The clinic: parts that are wrong on purpose, tests that find them, the record."""

import copy
import inspect
import json
import math
import re
from dataclasses import fields
from itertools import islice
from pathlib import Path

import pytest
import torch

from minigpt.book import clinic
from minigpt.book import clinic_runs as parts
from minigpt.book.clinic_patients import PATIENTS
from minigpt.book.clinic_runs import PLANS, Plan, build
from tools import record_clinic

ROOT = Path(__file__).resolve().parent.parent
RECORD = ROOT / "minigpt" / "book" / "records" / "clinic.json"
NUMBERS = range(1, len(PATIENTS) + 1)
SICK = [n for n in NUMBERS if clinic.patient(n).cured]
TINY = {"n_layers": 2, "d_model": 16}


def tiny(seed=0, **changes):
    """A model that has not been trained, and its plan."""
    plan = Plan(**TINY | changes)
    return build(plan, seed), plan


# --- The record -----------------------------------------------------------------------


def test_record_holds_every_plan_with_every_seed_and_is_small():
    runs = json.loads(RECORD.read_text("utf-8"))["runs"]
    kept = {(run["plan"], run["seed"]) for run in runs}
    assert kept == {(plan, seed) for plan in PLANS for seed in record_clinic.SEEDS}
    assert len(runs) == len(kept) and len(record_clinic.SEEDS) >= 2
    assert RECORD.stat().st_size < 300_000


@pytest.mark.parametrize("plan", PLANS)
def test_first_steps_come_out_as_recorded(plan):
    """F05: other machines round otherwise, and a run that explodes magnifies it."""
    for seed, kept in clinic.record()[plan].items():
        model = build(PLANS[plan], seed)
        steps = islice(parts.train(model, PLANS[plan], seed), 3)
        again = [loss for loss, _ in steps]
        close = 0.2 if plan == "explodes" else 5e-3
        assert again == pytest.approx(kept["first"][:3], rel=close)
        assert again[0] == pytest.approx(kept["sheet"]["first loss"], rel=5e-3)


def test_recorder_keeps_what_is_there_and_adds_what_is_missing(tmp_path, monkeypatch):
    path = tmp_path / "clinic.json"
    monkeypatch.setattr(record_clinic, "RECORD", path)
    monkeypatch.setattr(parts, "PLANS", {"a": Plan(), "b": Plan()})
    asked = []

    def run(plan, seed):
        asked.append(seed)
        return {"train": [1.0], "val": [len(asked)]}

    monkeypatch.setattr(parts, "run", run)
    assert record_clinic.main([]) == 0 and len(asked) == 4
    assert record_clinic.main([]) == 0 and len(asked) == 4
    assert record_clinic.main(["b"]) == 0 and len(asked) == 6
    runs = json.loads(path.read_text("utf-8"))["runs"]
    assert [r["plan"] for r in runs].count("a") == [r["plan"] for r in runs].count("b")
    with pytest.raises(SystemExit):
        record_clinic.main(["c"])


# --- The patients ---------------------------------------------------------------------


@pytest.mark.parametrize("number", NUMBERS)
def test_every_statement_holds_in_every_seed(number):
    false = [words for words, holds in clinic.evidence(number) if not holds]
    assert false == []


@pytest.mark.parametrize("number", SICK)
def test_right_answer_does_not_fit_the_repaired_run(number, monkeypatch):
    """Its statements are about the disease: without it, one at least is false."""
    who = clinic.patient(number)
    swapped = copy.deepcopy(clinic.record()) | {
        who.plan: clinic.record()[who.cured],
    }
    (right,) = (option for option in who.options if option.right)
    for seed in record_clinic.SEEDS:
        runs = {plan: found[seed] for plan, found in swapped.items()}
        assert not all(holds(runs) for _, holds in right.evidence)


@pytest.mark.parametrize("number", NUMBERS)
def test_question_has_one_right_answer_and_each_rests_on_something(number):
    who = clinic.patient(number)
    assert len(who.options) == 4
    assert [option.right for option in who.options].count(True) == 1
    for option in who.options:
        assert option.evidence and len(option.why.split()) >= 8
        for words, _ in option.evidence:
            assert len(f"{number}  {words}: False") <= 88
    assert len(who.verdict[0]) <= 80


@pytest.mark.parametrize(
    ("share", "shown"), [(1.0, "100%"), (0.996, "100%"), (0.1234, "12%"), (0.0, "0%"),
                         (0.05, "5%"), (0.0012, "0.12%")]
)  # fmt: skip
def test_a_share_is_a_percentage_that_is_read_at_once(share, shown):
    path = ("sheet", next(iter(clinic.SHARES)))
    assert clinic._cell(path, {"sheet": {path[1]: share}}) == shown


def test_right_answers_stand_at_different_places():
    places = [[o.right for o in who.options].index(True) for who in PATIENTS]
    assert len(set(places)) == 4


@pytest.mark.parametrize("number", SICK)
def test_sick_and_repaired_differ_in_what_is_shown(number):
    who = clinic.patient(number)
    sick, cured = PLANS[who.plan], PLANS[who.cured]
    differ = [
        field.name
        for field in fields(Plan)
        if getattr(sick, field.name) is not getattr(cured, field.name)
        and getattr(sick, field.name) != getattr(cured, field.name)
    ]
    # A norm has two places in a plan.
    assert len({name.removeprefix("final_") for name in differ}) == len(who.shown)


@pytest.mark.parametrize("number", SICK)
def test_difference_is_made_of_source_lines(number):
    for wrong, right in clinic.patient(number).shown:
        lines = clinic.difference(wrong, right)
        gone = [line[1:].strip() for line in lines if line.startswith("-")]
        come = [line[1:].strip() for line in lines if line.startswith("+")]
        assert gone or come
        assert len(gone) <= 4 and len(come) <= 4, "more than the fault differs"
        assert all(line in inspect.getsource(wrong) for line in gone)
        assert all(line in inspect.getsource(right) for line in come)


def test_all_plans_serve():
    used = {who.plan for who in PATIENTS} | {who.cured for who in PATIENTS} - {""}
    assert set(PLANS) - used == {"normed stream, four blocks"}


# --- The examination ------------------------------------------------------------------


def test_later_characters_move_early_logits_without_a_mask_only():
    for attention, moves in ((parts.OpenAttention, True), (None, False)):
        changes = {"attention": attention} if attention else {}
        model, plan = tiny(**changes)
        found = parts.examine(model, plan)["later"]
        assert (found > 1e-3) if moves else (found == 0)


def test_dropout_in_evaluation_is_no_look_at_the_future():
    model, plan = tiny(dropout=parts.stuck_dropout)
    found = parts.examine(model, plan)
    assert found["again"] > 0 and found["later"] == 0
    assert parts.examine(*tiny(dropout=parts.some_dropout))["again"] == 0


def test_silenced_blocks_show_a_norm_on_the_stream():
    assert parts.examine(*tiny())["silent"] == 0
    assert parts.examine(*tiny(block=parts.NormedStreamBlock))["silent"] > 0.01


def test_dead_neurons_are_counted():
    closed = tiny(mlp=parts.ReluMLP, start=parts.closed_start)
    assert parts.examine(*closed)["dead"] > 0.95
    assert parts.examine(*tiny(mlp=parts.ReluMLP, start=parts.open_start))["dead"] < 0.3


def test_no_gradient_comes_back_to_a_dead_neuron():
    plan = Plan(**TINY, mlp=parts.ReluMLP, start=parts.closed_start)
    model = build(plan, 0)
    parts.accumulate(model, next(parts.batches(plan, 0)))
    for block in model.blocks:
        up = parts.mlp_of(block).up
        alive = up.weight.grad.ne(0).any(1).double().mean()
        assert alive < 0.05


def test_half_norm_turns_large_tokens_into_zeros():
    """A03: 300 squared is more than float16 holds."""
    x = torch.full((1, 3, 16), 300.0)
    assert torch.equal(parts.HalfNorm(16)(x), torch.zeros_like(x))
    torch.testing.assert_close(parts.WideNorm(16)(x), torch.ones_like(x))
    model, plan = tiny(norm=parts.HalfNorm, final_norm=parts.HalfNorm)
    assert parts.examine(model, plan)["zeros"] == 0
    with torch.no_grad():
        model.embed.tok_emb.weight.mul_(1e4)
    assert parts.examine(model, plan)["zeros"] == 1


def test_even_attention_has_evenness_one():
    model, plan = tiny()
    with torch.no_grad():
        for block in model.blocks:
            block.attn[0].qkv.weight.zero_()
    assert parts.examine(model, plan)["evenness"] == pytest.approx(1, abs=1e-5)


def test_examination_leaves_the_model_as_it_was():
    model, plan = tiny(dropout=parts.some_dropout)
    before = copy.deepcopy(model.state_dict())
    model.train()
    parts.examine(model, plan)
    after = model.state_dict()
    assert model.training and before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_undivided_pieces_add_up():
    """E10"""
    plan = Plan(**TINY, pieces=4)
    pieces = next(parts.batches(plan, 0))
    assert [len(x) for x, _ in pieces] == [4, 4, 4, 4]
    lengths = []
    for gradient in (parts.accumulate, parts.accumulate_undivided):
        model = build(plan, 0)
        total = gradient(model, pieces)
        length = parts.size([p.grad for p in model.parameters()])
        lengths.append((total, length))
    (one, short), (four, long) = lengths
    assert four == pytest.approx(4 * one, rel=1e-5)
    assert long == pytest.approx(4 * short, rel=1e-5)


def test_unshifted_targets_are_the_inputs():
    rows = torch.arange(12).view(2, 6)
    inputs, targets = parts.unshifted(rows)
    assert torch.equal(inputs, targets)
    inputs, targets = parts.shifted(rows)
    assert torch.equal(inputs + 1, targets)


def test_run_that_is_no_number_ends_and_is_filled_up():
    plan = Plan(**TINY, rate=lambda step: math.nan if step == 14 else 1e-3)
    found = parts.run(plan, 0, steps=24)
    assert found["val"][5] is not None and found["val"][6:] == [None] * 6
    assert len(found["train"]) == len(found["steps"]) == parts.LOOKS
    assert json.loads(json.dumps(found)) == found


# --- The page -------------------------------------------------------------------------


def test_losses_to_compare_with():
    counts = torch.bincount(parts.text()[1][:, 1:].flatten()).tolist()
    total = sum(counts)
    entropy = -sum(n / total * math.log(n / total) for n in counts if n)
    assert clinic.unigram() == pytest.approx(entropy)
    assert clinic.uniform() == pytest.approx(math.log(65))


@pytest.mark.parametrize("number", NUMBERS)
def test_what_is_seen_first_does_not_name_the_disease(number):
    who = clinic.patient(number)
    shown = clinic.chart(number)._repr_html_() + clinic.sheet(number)._repr_html_()
    words = re.sub(r"<[^>]*>", " ", shown) + clinic.chart(number).alt
    assert who.name not in words
    assert "dropout" not in words and "mask" not in words
    assert shown.count("<svg") == 1


def test_number_of_no_patient_is_refused():
    for number in (0, len(PATIENTS) + 1):
        with pytest.raises(ValueError, match="must be from 1 to"):
            clinic.patient(number)


def test_reveal_is_one_fold_with_lines_and_evidence():
    markup = clinic.reveal(2)._repr_html_()
    assert markup.startswith("<details><summary>") and markup.count("<details") == 1
    assert "scaled_dot_product_attention(q, k, v)" in markup
    assert markup.count(": True</li>") == len(clinic.evidence(2))
    assert "Healthy" in clinic.reveal(5)._repr_html_()


def test_rerun_prints_a_verdict_and_does_not_name_the_disease(capsys):
    runs = clinic.rerun(8, seed=7, steps=12)
    printed = capsys.readouterr().out
    assert printed.startswith("patient 8, seed 7, 12 steps:\n")
    assert printed.rstrip().endswith("True")
    assert set(runs) == {"patient", "repaired"}


def test_page_shows_every_patient_in_order():
    path = ROOT / "chapters" / "clinic.ipynb"
    cells = json.loads(path.read_text("utf-8"))["cells"]
    ids = [cell["id"] for cell in cells]
    for number in NUMBERS:
        parts_ = ("patient", "chart", "sheet", "decide", "question", "reveal", "again")
        names = [f"{part}-{number}" for part in (*parts_, "rerun")]
        first = ids.index(names[0])
        assert ids[first : first + len(names)] == names
    text = "".join(
        "".join(c["source"])
        for c in cells
        if re.match(r"patient|decide|again", c["id"])
    )
    assert not any(who.name in text for who in PATIENTS)
