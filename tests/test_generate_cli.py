"""`python -m minigpt.generate`: finds a run's model and tokenizer, and prints text."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import minigpt._generate_cli as cli
from minigpt.gpt import GPT, GPTConfig
from minigpt.text import CharTokenizer, train_bpe
from minigpt.train import identity, save_checkpoint, save_weights

ROOT = Path(__file__).resolve().parent.parent
TEXT = "Before we proceed any further, hear me speak.\n"


@pytest.fixture
def run(tmp_path):
    """The folder of a run, as `train` leaves it."""
    tokenizer = CharTokenizer(TEXT)
    torch.manual_seed(0)
    config = GPTConfig(tokenizer.vocab_size, context=16, n_layers=1, d_model=16)
    about = {"tokenizer": identity(tokenizer), "step": 1}
    save_weights(tmp_path / "best.safetensors", GPT(config), **about)
    return tmp_path


def write(capsys, *options) -> str:
    assert cli.main([str(option) for option in options]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    return out


def refused(capsys, *options) -> str:
    with pytest.raises(SystemExit) as caught:
        cli.main([str(option) for option in options])
    assert caught.value.code == 2
    return capsys.readouterr().err


def test_it_writes_what_the_seed_says(run, capsys):
    base = (run, "--prompt", "Before", "--n-new", 40, "--device", "cpu")
    first = write(capsys, *base, "--seed", 3)
    assert first.startswith("Before") and len(first) == len("Before") + 40 + 1
    assert write(capsys, *base, "--seed", 3) == first
    assert write(capsys, *base, "--seed", 4) != first
    assert write(capsys, run / "best.safetensors", *base[1:], "--seed", 3) == first


def test_greedy_needs_no_seed(run, capsys):
    base = (run, "--temperature", 0, "--n-new", 10, "--device", "cpu")
    texts = {write(capsys, *base, "--seed", seed) for seed in (1, 2)}
    options = ("--temperature", 1, "--top-k", 1)
    texts.add(write(capsys, *base[:1], *options, "--n-new", 10, "--device", "cpu"))
    assert len(texts) == 1


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("--prompt Zoë", "Z"),
        ("--temperature -1", "temperature=-1.0"),
        ("--top-k -2", "top_k=-2"),
        ("--top-p 1.5", "top_p=1.5"),
        ("--n-new -1", "n_new=-1"),
        ("--device cuda:x", "device"),
    ],
)
def test_bad_options_are_named(run, capsys, options, words):
    """D05 and others: before anything is written, in one line."""
    if "cuda" in options and torch.cuda.is_available():
        pytest.skip("that word is for torch to judge here")
    assert words in refused(capsys, run, *options.split())


def test_an_empty_prompt_is_named(run, capsys):
    assert "prompt 0 is empty" in refused(capsys, run, "--prompt", "")


def test_a_folder_without_a_run(tmp_path, capsys):
    assert "train first" in refused(capsys, tmp_path / "nothing")


def test_the_last_checkpoint_where_there_is_no_best(tmp_path, capsys):
    tokenizer = CharTokenizer(TEXT)
    config = GPTConfig(tokenizer.vocab_size, context=16, n_layers=1, d_model=16)
    for step in (1, 2):
        path = tmp_path / f"step-{step:06d}.pt"
        save_checkpoint(path, GPT(config), tokenizer=identity(tokenizer))
    assert cli.find(tmp_path) == path
    assert len(write(capsys, tmp_path, "--n-new", 5, "--device", "cpu")) == 7


def test_tokenizers_that_a_file_can_and_cannot_name(tmp_path, capsys):
    bpe = train_bpe(TEXT * 5, 270)
    path = tmp_path / "best.safetensors"
    config = GPTConfig(bpe.n_vocab, context=16, n_layers=1, d_model=16)
    save_weights(path, GPT(config), tokenizer=identity(bpe))
    assert "cannot be made from its name" in refused(capsys, tmp_path)
    save_weights(path, GPT(config))
    assert "does not name its tokenizer" in refused(capsys, tmp_path)


def test_ctrl_c_ends_the_text(run, capsys, monkeypatch):
    def interrupted(*args, **kwargs):
        yield "ab"
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "stream_text", interrupted)
    assert cli.main([str(run), "--device", "cpu"]) == 130
    assert capsys.readouterr().out == "\nab\n"


def test_as_a_command_it_streams(run):
    """In a process of its own, also where the console knows ASCII only."""
    done = subprocess.run(
        [sys.executable, "-m", "minigpt.generate", str(run), "--n-new", "20"],
        env=os.environ | {"PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "ascii"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert len(done.stdout) == 22 and done.stderr == ""
