"""`python -m minigpt.train`: options, progress, Ctrl-C and resume, plot and sample."""

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
import types
from pathlib import Path

import pytest
import torch

import minigpt._train_cli as cli
from minigpt.block import BLOCKS
from minigpt.gpt import GPT, GPTConfig
from minigpt.train import TrainConfig, checkpoints, last_readable, recipe

ROOT = Path(__file__).resolve().parent.parent
SIZE = "--context 16 --n-layers 1 --n-heads 2 --d-model 16 --batch-size 2 --warmup 2"
ENDINGS = (".pt", ".safetensors")
RHYTHM = "--eval-every 6 --checkpoint-every 3 --device cpu --sample 40"
SMALL = [*SIZE.split(), *RHYTHM.split()]


@pytest.fixture
def short_text(monkeypatch):
    """The corpus in small: what is tested here is the command."""
    text = "First Citizen:\nBefore we proceed any further, hear me speak.\n" * 30
    monkeypatch.setattr(cli, "tiny_shakespeare", lambda: text)


def run(*options) -> int:
    return cli.main([str(option) for option in options])


def refused(capsys, *options) -> str:
    with pytest.raises(SystemExit) as caught:
        run(*options)
    assert caught.value.code == 2
    return capsys.readouterr().err


def steps(folder: Path) -> list[int]:
    rows = (folder / "records.jsonl").read_text("utf-8").splitlines()
    return [json.loads(row)["step"] for row in rows]


def test_a_run_from_start_to_sample(tmp_path, capsys, short_text):
    pytest.importorskip("matplotlib")
    assert run("--folder", tmp_path, "--steps", 12, *SMALL) == 0
    said = capsys.readouterr().out
    assert "12 steps of 2 x 16 characters" in said and "on cpu in float32" in said
    assert "validation loss" in said and "nats per character" in said
    made = {path.name for path in tmp_path.iterdir()}
    written = {f"step-0000{n:02}{end}" for n in (9, 12) for end in ENDINGS}
    assert made == written | {"best.safetensors", "records.jsonl", "loss.svg"}
    assert "<svg" in (tmp_path / "loss.svg").read_text("utf-8")
    assert steps(tmp_path) == list(range(1, 13))
    sample = said.split("loss.svg\n")[1]
    assert len(sample) >= 40


def test_progress_is_told_in_lines_where_there_is_no_terminal(
    tmp_path, capsys, short_text, monkeypatch
):
    monkeypatch.delenv("MINIGPT_STATIC")
    run("--folder", tmp_path, "--steps", 12, *SMALL)
    out, err = capsys.readouterr()
    assert "step 6/12: loss " in out and "tokens/s" in out and " left" in out
    assert err == ""


def test_the_bar_shows_loss_and_speed(monkeypatch, capsys):
    pytest.importorskip("tqdm")
    monkeypatch.delenv("MINIGPT_STATIC")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)

    class Job:
        config = TrainConfig(steps=150)

    with cli.progress(Job, quiet=False) as show:
        show({"step": 100, "loss": 2.5, "tokens_per_s": 12345, "val_loss": 2.25})
        show({"step": 150, "loss": 2.25, "tokens_per_s": 12345})
    err = capsys.readouterr().err
    assert "150/150" in err and "loss 2.250, val 2.250, 12.3k tokens/s" in err


def test_tensorboard_is_optional_and_its_lack_is_said(
    tmp_path, capsys, short_text, monkeypatch
):
    base = ("--folder", tmp_path, *SMALL, "--steps", 6, "--tensorboard")
    monkeypatch.setitem(sys.modules, "tensorboard", None)  # as if it were not there
    monkeypatch.delitem(sys.modules, "torch.utils.tensorboard", raising=False)
    message = refused(capsys, *base)
    assert "pip install tensorboard" in message and "records.jsonl" in message
    assert not checkpoints(tmp_path)

    written = []

    class Writer:
        def __init__(self, folder):
            written.append(folder)

        def add_scalar(self, *row):
            written.append(row)

        def flush(self):
            pass

    fake = types.ModuleType("torch.utils.tensorboard")
    fake.SummaryWriter = Writer
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", fake)
    assert run(*base) == 0
    assert written[0] == str(tmp_path / "tensorboard")
    assert [row[2] for row in written[1:] if row[0] == "loss"] == list(range(1, 7))
    assert [row[2] for row in written[1:] if row[0] == "val_loss"] == [6]


def test_a_run_on_mps_begins_with_a_check_of_the_device(tmp_path, monkeypatch):
    """F02: and the check warns, it does not forbid."""
    seen = []
    monkeypatch.setattr(cli, "choose_device", lambda word: torch.device("mps"))
    monkeypatch.setattr(cli, "selfcheck", seen.append)
    monkeypatch.setattr(cli, "Job", lambda *args: args)
    parser = cli.make_parser()
    cli.prepare(parser.parse_args(["--folder", str(tmp_path)]))
    assert seen == [torch.device("mps")]


def test_an_existing_run_needs_resume_or_overwrite(tmp_path, capsys, short_text):
    base = ("--folder", tmp_path, *SMALL)
    run(*base, "--steps", 4)
    message = refused(capsys, *base, "--steps", 4)
    assert "--resume" in message and "--overwrite" in message
    assert "choose one" in refused(capsys, *base, "--resume", "--overwrite")
    assert run(*base, "--steps", 5, "--overwrite") == 0
    assert steps(tmp_path) == [1, 2, 3, 4, 5]
    assert "nothing to resume" in refused(
        capsys, "--folder", tmp_path / "new", "--resume"
    )


def test_resume_takes_the_recipe_from_the_run(tmp_path, capsys, short_text):
    run("--folder", tmp_path, "--steps", 4, "--lr", 0.007, *SMALL)
    assert run("--folder", tmp_path, "--resume") == 0  # complete already
    assert "already complete" in capsys.readouterr().out
    assert run("--folder", tmp_path, "--resume", "--steps", 8, "--sample", 0) == 0
    stored = last_readable(tmp_path)[1]
    assert stored["step"] == 8 and stored["train_config"]["lr"] == 0.007
    assert stored["model_config"]["context"] == 16
    message = refused(capsys, "--folder", tmp_path, "--resume", "--lr", 0.1)
    assert "lr=0.007, now 0.1" in message


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("--n-heads 3 --d-model 128", ["n_heads=3", "d_model=128", "multiple"]),
        ("--steps 0", ["steps=0", "at least 1"]),
        ("--steps 10 --warmup 20", ["warmup=20", "steps=10"]),
        ("--dtype float16 --device cpu", ["float16", "cpu", "bfloat16"]),
        ("--device abacus", ["abacus", "cpu"]),
        ("--compile always", ["compile='always'", "off", "on", "auto"]),
        ("--norm batch", ["batch", "layernorm"]),
        ("--steps many", ["--steps", "many"]),
        ("--threads 0", ["threads", "0", "at least 1"]),
        ("--sample -1", ["--sample", "-1"]),
    ],
)
def test_a_bad_option_is_named_before_anything_begins(tmp_path, capsys, options, words):
    message = refused(capsys, "--folder", tmp_path / "run", *options.split())
    assert all(word in message for word in words)
    assert not (tmp_path / "run").exists()


def test_help_tells_every_field_with_its_default(capsys):
    with pytest.raises(SystemExit) as caught:
        run("--help")
    assert caught.value.code == 0
    told = " ".join(capsys.readouterr().out.split())
    for config in (GPTConfig, TrainConfig):
        for field in dataclasses.fields(config):
            if field.name != "vocab_size":
                assert f"--{field.name.replace('_', '-')}" in told
    assert "(default: 2000)" in told and "(default: 0.9 0.99)" in told
    assert "nanogpt" in told and "(default: best" in told
    assert "runs/shakespeare" in told
    assert f"one of {', '.join(BLOCKS)} (default: pre)" in told


def test_the_best_recipe_is_the_default_and_others_go_by_name(tmp_path):
    parser = cli.make_parser()

    def job(*options):
        folder = ("--folder", str(tmp_path))
        return cli.prepare(parser.parse_args([*folder, *options]))

    best = job("--device", "cpu")
    assert (best.model_config, best.config) == recipe("best", 65, device="cpu")
    changed = job("--recipe", "nanogpt", "--d-model", "32", "--lr", "0.002")
    assert changed.model_config.d_ff == 128 and changed.config.lr == 0.002
    assert not changed.model_config.bias and changed.config.decay == "cosine"
    assert job("--d-model", "64").model_config.d_ff == 170  # follows the width


def test_resume_after_damage_names_the_file_and_goes_on(tmp_path, short_text):
    run("--folder", tmp_path, "--steps", 12, *SMALL)
    newest = checkpoints(tmp_path)[-1]
    newest.write_bytes(newest.read_bytes()[:500])
    with pytest.warns(UserWarning, match=rf"{newest.name} is incomplete.*before it"):
        assert run("--folder", tmp_path, "--resume", "--steps", 15) == 0
    assert last_readable(tmp_path)[1]["step"] == 15
    assert steps(tmp_path) == list(range(1, 16))


def test_clipping_can_be_switched_off(tmp_path, capsys, short_text):
    run("--folder", tmp_path, "--steps", 3, "--clip", "none", *SMALL)
    assert last_readable(tmp_path)[1]["train_config"]["clip"] is None
    message = refused(capsys, "--folder", tmp_path / "b", "--clip", "much")
    assert "--clip" in message and "float, or none" in message


def test_divergence_ends_with_its_message_and_status_1(
    tmp_path, capsys, short_text, monkeypatch
):
    def diverge(*args, **kwargs):
        raise cli.TrainingDiverged("step 3: the loss is nan")

    monkeypatch.setattr(cli, "train", diverge)
    assert run("--folder", tmp_path, *SMALL, "--steps", 4) == 1
    assert "step 3: the loss is nan" in capsys.readouterr().out


def test_threads(monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 4)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    for load, expected in ((0.2, 4), (1.4, 3), (9.0, 1)):
        monkeypatch.setattr(os, "getloadavg", lambda load=load: (load, 0, 0), False)
        assert cli.choose_threads(None) == expected
    monkeypatch.setenv("OMP_NUM_THREADS", "4")
    assert cli.choose_threads(None) == 4
    assert cli.choose_threads(2) == 2


def test_sample_is_seeded_and_leaves_the_model_alone():
    torch.manual_seed(0)
    model = GPT(
        GPTConfig(vocab_size=11, context=8, n_layers=1, d_model=16, dropout=0.5)
    )
    model.train()
    before = torch.get_rng_state()
    start = torch.zeros(2, 1, dtype=torch.long)
    first, second = (cli.sample(model, start, 20, seed=3) for _ in range(2))
    assert torch.equal(first, second) and first.shape == (2, 21)
    assert not torch.equal(first, cli.sample(model, start, 20, seed=4))
    assert model.training and torch.equal(torch.get_rng_state(), before)


@pytest.mark.skipif(sys.platform == "win32", reason="needs POSIX signals")
def test_ctrl_c_leaves_what_resume_goes_on_with(tmp_path):
    """The real command, interrupted from outside, on the real text."""
    command = [sys.executable, "-m", "minigpt.train", "--folder", str(tmp_path), *SMALL]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(
        [*command, "--steps", "100000"],
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 120
    while not checkpoints(tmp_path) and time.monotonic() < deadline:
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    advice = f"{sys.executable} -m minigpt.train --folder {tmp_path} --resume"
    assert advice in out  # a line that can be pasted, also with no environment active
    reached = last_readable(tmp_path)[1]["step"]
    assert steps(tmp_path) == list(range(1, reached + 1))
    assert run("--folder", tmp_path, "--resume", "--steps", reached + 2) == 0
    assert steps(tmp_path)[-1] == reached + 2
