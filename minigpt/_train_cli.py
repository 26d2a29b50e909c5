"""The command line of chapter 12: `python -m minigpt.train`.

Written by hand. It parses options, shows progress, draws the loss and prints a sample;
what it trains with is all in `minigpt.gpt` and `minigpt.train`.
"""

import argparse
import contextlib
import dataclasses
import json
import os
import re
import shutil
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from minigpt.block import BLOCKS
from minigpt.generate import generate
from minigpt.gpt import GPT, MLPS, NORMS, POSITIONS, GPTConfig
from minigpt.text import Batches, CharTokenizer, split, tiny_shakespeare
from minigpt.train import (
    COMPILE,
    DECAYS,
    DTYPES,
    OPTIMIZERS,
    RECIPES,
    TrainConfig,
    TrainingDiverged,
    checkpoints,
    choose_compile,
    choose_device,
    choose_dtype,
    last_readable,
    load_model,
    recipe,
    selfcheck,
    train,
)

__all__ = ["main"]

CHOICES = {
    "norm": NORMS,
    "mlp": MLPS,
    "order": BLOCKS,
    "positions": POSITIONS,
    "optimizer": OPTIMIZERS,
    "decay": DECAYS,
    "dtype": DTYPES,
    "compile": COMPILE,
}
OWN_FILES = ("best.safetensors", "records.jsonl", "loss.svg")


def main(argv: list[str] | None = None) -> int:
    """Train. Exit status: 0 done, 1 diverged, 2 a bad option, 130 after Ctrl-C."""
    parser = make_parser()
    args = parser.parse_args(argv)
    try:
        torch.set_num_threads(choose_threads(args.threads))
        job = prepare(args)
        board = tensorboard(args.folder) if args.tensorboard else None
    except (ValueError, OSError, ModuleNotFoundError) as error:
        parser.error(str(error))
    say(job.describe())
    try:
        with progress(job, args.quiet) as show:
            records = train(
                job.model,
                job.batches,
                job.config,
                val=job.val,
                folder=args.folder,
                resume=args.resume,
                tokenizer=job.tokenizer,
                on_record=both(show, board),
            )
    except KeyboardInterrupt:
        say(f"Stopped. Go on with: {command()}{at(args.folder)} --resume")
        return 130
    except TrainingDiverged as error:
        say(f"Stopped: {error}")
        return 1
    except (ValueError, FileExistsError) as error:
        parser.error(str(error))
    finish(args, job, records)
    return 0


def make_parser() -> argparse.ArgumentParser:
    """All options; those of the two configs come from their fields and docstrings."""
    parser = argparse.ArgumentParser(
        prog="python -m minigpt.train",
        description="Train a GPT on Tiny Shakespeare, character by character.",
    )
    run = parser.add_argument_group("run")
    run.add_argument(
        "--folder",
        type=Path,
        default=Path("runs/shakespeare"),
        help="where checkpoints, records and plot go (default: runs/shakespeare)",
    )
    run.add_argument(
        "--recipe",
        choices=list(RECIPES),
        default="best",
        help="where all other options start (default: best, whose values are below)",
    )
    run.add_argument("--resume", action="store_true", help="go on with its run")
    run.add_argument(
        "--overwrite",
        action="store_true",
        help="delete its run and start anew",
    )
    run.add_argument(
        "--threads",
        type=int,
        default=None,
        help="CPU threads (default: OMP_NUM_THREADS, else the cores that are idle)",
    )
    run.add_argument(
        "--sample", type=int, default=400, help="characters to print (default: 400)"
    )
    run.add_argument("--quiet", action="store_true", help="show no progress")
    run.add_argument(
        "--tensorboard",
        action="store_true",
        help="write the records for TensorBoard, too (needs the package tensorboard)",
    )
    add_fields(parser.add_argument_group("model"), GPTConfig, skip=("vocab_size",))
    add_fields(parser.add_argument_group("training"), TrainConfig)
    return parser


def add_fields(group, config: type, skip: tuple[str, ...] = ()) -> None:
    """One option for each field of a config class; defaults are the best recipe's."""
    model, training = recipe("best", vocab_size=1)
    defaults = model.to_dict() | training.to_dict()
    told = dict(re.findall(r"^        (\w+): (.+(?:\n {12}.+)*)", config.__doc__, re.M))
    for field in dataclasses.fields(config):
        if field.name in skip:
            continue
        default = defaults[field.name]
        shown = " ".join(map(str, default)) if isinstance(default, list) else default
        text = " ".join(told[field.name].split()).rstrip(".")
        if field.name in CHOICES:
            text = f"one of {', '.join(CHOICES[field.name])}"
        option = {
            "dest": field.name,
            "default": argparse.SUPPRESS,  # so that --resume knows what was asked for
            "help": f"{text} (default: {shown})".replace("%", "%%"),
        }
        kind = str(field.type)
        if "bool" in kind:
            option["action"] = argparse.BooleanOptionalAction
        elif "tuple" in kind:
            option |= {"type": float, "nargs": 2, "metavar": "NUMBER"}
        else:
            number = next(word for word in (int, float, str) if word.__name__ in kind)
            option["type"] = or_none(number) if "None" in kind else number
            option["metavar"] = number.__name__.upper()
        group.add_argument(f"--{field.name.replace('_', '-')}", **option)


def or_none(number: type) -> Callable[[str], object]:
    """Reads a number, or the word none."""

    def read(word: str) -> object:
        return None if word.lower() == "none" else number(word)

    read.__name__ = f"{number.__name__}, or none"  # what argparse calls it in errors
    return read


class Job:
    """What is about to be trained, and on what."""

    def __init__(self, model_config: dict, config: TrainConfig):
        text = tiny_shakespeare()
        self.tokenizer = CharTokenizer(text)
        ids = torch.as_tensor(self.tokenizer.encode(text))
        self.train, self.val = split(ids)
        self.config = config
        vocab_size = self.tokenizer.vocab_size
        self.model_config = GPTConfig(**{"vocab_size": vocab_size} | model_config)
        self.batches = Batches(
            self.train,
            config.batch_size,
            self.model_config.context,
            seed=config.seed,
            device=choose_device(config.device),
        )
        torch.manual_seed(config.seed)
        self.model = GPT(self.model_config)

    def describe(self) -> str:
        c, m = self.config, self.model_config
        device = choose_device(c.device)
        dtype = str(choose_dtype(device, c.dtype, m.d_model)).removeprefix("torch.")
        n = sum(p.numel() for p in self.model.parameters())
        batch = f"{c.batch_size * c.accumulate} x {m.context}"
        how = "" if c.compile == "off" else f", compile {c.compile}"
        return (
            f"{n:,} parameters: {m.n_layers} layers, {m.n_heads} heads, "
            f"width {m.d_model}\n"
            f"{c.steps} steps of {batch} characters, of {len(self.train):,}; "
            f"seed {c.seed}\n"
            f"on {device} in {dtype}, {torch.get_num_threads()} thread(s){how}"
        )


def prepare(args: argparse.Namespace) -> Job:
    """Everything that can be wrong with the options is found here, before training."""
    given = vars(args)
    model_given = _fields(GPTConfig, given)
    train_given = _fields(TrainConfig, given)
    if args.sample < 0:
        raise ValueError(f"--sample {args.sample} must be 0 or more")
    if args.resume and args.overwrite:
        raise ValueError("--resume and --overwrite exclude each other: choose one")
    if args.resume:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # `train` looks again, and warns
                path, stored = last_readable(args.folder)
        except FileNotFoundError as error:
            raise FileNotFoundError(f"{error}. Start without --resume") from error
        if "train_config" not in stored:
            raise ValueError(f"no train_config in {path}: it cannot be resumed")
        model_given = stored["model_config"] | model_given
        train_given = stored["train_config"] | train_given
    else:
        model, training = recipe(args.recipe, 1, **model_given, **train_given)
        model_given, train_given = model.to_dict(), training.to_dict()
        del model_given["vocab_size"]  # the text decides
    if not args.resume and checkpoints(args.folder) and not args.overwrite:
        raise FileExistsError(
            f"{args.folder} holds a run: continue it with --resume, replace it with "
            "--overwrite, or choose another --folder"
        )
    config = TrainConfig.from_dict(train_given)
    device = choose_device(config.device)
    dtype = choose_dtype(device, config.dtype)
    choose_compile(device, dtype, config.compile)
    if device.type == "mps":
        selfcheck(device)  # warns, if this version of torch computes wrongly there
    GPTConfig.from_dict({"vocab_size": 1} | model_given)  # before the text is fetched
    job = Job(model_given, config)
    if args.overwrite:
        for name in OWN_FILES:
            (args.folder / name).unlink(missing_ok=True)
        for path in args.folder.glob("step-*"):
            path.unlink()
    return job


def _fields(config: type, given: dict) -> dict:
    names = {field.name for field in dataclasses.fields(config)}
    return {name: value for name, value in given.items() if name in names}


def choose_threads(asked: int | None) -> int:
    """The threads asked for, or OMP_NUM_THREADS, or as many as there are idle cores.

    Two threads on two cores of which one is busy are many times slower than one.
    """
    if asked is not None:
        if asked < 1:
            raise ValueError(f"--threads {asked} must be at least 1")
        return asked
    if os.environ.get("OMP_NUM_THREADS"):
        return torch.get_num_threads()
    busy = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    return max(1, torch.get_num_threads() - round(busy))


@contextlib.contextmanager
def progress(job: Job, quiet: bool):
    """Yield what shows a record: a bar in a terminal, a line now and then elsewhere."""
    if quiet or os.environ.get("MINIGPT_STATIC") == "1":
        yield None
        return
    try:
        from tqdm import tqdm
    except ModuleNotFoundError:
        tqdm = None
    if tqdm is None or not sys.stderr.isatty():
        yield lines(job.config)
        return
    size = shutil.get_terminal_size()  # 80 x 24 where a terminal claims 0 x 0
    look = {"ncols": size.columns, "nrows": size.lines}
    look["bar_format"] = "{percentage:3.0f}% {n}/{total} {bar} {desc}{remaining} left"
    with tqdm(total=job.config.steps, **look) as bar:
        val = ""

        def show(record: dict) -> None:
            nonlocal val
            if "val_loss" in record:
                val = f", val {record['val_loss']:.3f}"
            speed = f"{record['tokens_per_s'] / 1000:.1f}k tokens/s"
            told = f"loss {record['loss']:.3f}{val}, {speed}, "
            bar.set_description_str(told, refresh=False)
            bar.update(record["step"] - bar.n)

        yield show


def tensorboard(folder: Path) -> Callable[[dict], None]:
    """What writes each record's numbers into `folder`/tensorboard.

    Raises:
        ModuleNotFoundError: if the package tensorboard is not installed.
    """
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "--tensorboard needs the package tensorboard: pip install tensorboard, "
            "or leave the option out; records.jsonl has the same numbers",
            name="tensorboard",
        ) from error
    writer = SummaryWriter(str(folder / "tensorboard"))

    def show(record: dict) -> None:
        for name, value in record.items():
            if name != "step":
                writer.add_scalar(name, value, record["step"])
        writer.flush()

    return show


def both(*shows: Callable[[dict], None] | None) -> Callable[[dict], None]:
    """One function that shows a record in every way there is."""

    def show(record: dict) -> None:
        for one in shows:
            if one is not None:
                one(record)

    return show


def lines(config: TrainConfig) -> Callable[[dict], None]:
    """Progress as lines of text: at every evaluation, and every ten seconds."""
    start = told = time.perf_counter()
    first = None

    def show(record: dict) -> None:
        nonlocal told, first
        now = time.perf_counter()
        first = record["step"] - 1 if first is None else first
        if "val_loss" not in record and now - told < 10:
            return
        told = now
        done = record["step"] - first
        left = (now - start) / done * (config.steps - record["step"])
        val = f", val {record['val_loss']:.3f}" if "val_loss" in record else ""
        say(
            f"step {record['step']}/{config.steps}: loss {record['loss']:.3f}{val}, "
            f"{record['tokens_per_s'] / 1000:.1f}k tokens/s, "
            f"{left // 60:.0f}:{left % 60:02.0f} left"
        )

    return show


def finish(args: argparse.Namespace, job: Job, records: list[dict]) -> None:
    """Say how it ended; draw the loss; print a sample of the best checkpoint."""
    rows = [
        json.loads(row)
        for row in (args.folder / "records.jsonl").read_text("utf-8").splitlines()
    ]
    vals = [row for row in rows if "val_loss" in row]
    if not records:
        say("This run was already complete.")
    if vals:
        best = min(vals, key=lambda row: row["val_loss"])
        say(
            f"validation loss {vals[-1]['val_loss']:.4f} nats per character "
            f"(best {best['val_loss']:.4f} at step {best['step']})"
        )
    last, best_file = checkpoints(args.folder)[-1], args.folder / "best.safetensors"
    say(f"checkpoint: {last}; best weights: {best_file}")
    try:
        plot(rows, args.folder / "loss.svg")
        say(f"plot: {args.folder / 'loss.svg'}")
    except ModuleNotFoundError:
        say('no plot: it needs matplotlib (pip install "minigpt[book]")')
    if args.sample:
        device = choose_device(job.config.device)
        model = load_model(best_file if best_file.exists() else last)
        start = torch.tensor([job.tokenizer.encode("\n")])
        ids = sample(model.to(device), start, args.sample, job.config.seed)
        say(job.tokenizer.decode(ids[0, 1:].tolist()))


def plot(rows: list[dict], path: Path) -> None:
    """Draw training and validation loss over the steps into an SVG file."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 3.6), layout="constrained")
    axes = figure.subplots()
    steps, losses = [r["step"] for r in rows], [r["loss"] for r in rows]
    axes.plot(steps, losses, color="0.75", lw=0.8, label="training, each batch")
    vals = [(r["step"], r["val_loss"]) for r in rows if r.get("val_loss") is not None]
    if vals:
        axes.plot(*zip(*vals), "o-", color="#0072b2", label="validation, whole split")
    axes.set(xlabel="step", ylabel="loss (nats per character)")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    figure.savefig(path)


@torch.inference_mode()
def sample(model: GPT, tokens: Tensor, n_new: int, seed: int) -> Tensor:
    """Draw `n_new` tokens after `tokens` (B, T), each from the model's distribution.

    The draws have a generator of their own, so that they change nothing in a training
    run.
    """
    generator = torch.Generator().manual_seed(seed)
    return generate(model, tokens, n_new, generator=generator)


def command() -> str:
    """How this program is started again: with this Python, named as from here."""
    python = Path(sys.executable)
    if python.is_relative_to(Path.cwd()):
        python = python.relative_to(Path.cwd())
    return f"{python} -m minigpt.train"


def at(folder: Path) -> str:
    """The option that names the folder, where it is not the usual one."""
    return "" if folder == Path("runs/shakespeare") else f" --folder {folder}"


def say(text: str) -> None:
    print(text, flush=True)
