"""The command line of chapter 14: `python -m minigpt.generate RUN`.

Written by hand. It finds the model and the tokenizer of a run and prints text as it is
made; how the text is made is all in `minigpt.generate`.
"""

import argparse
import sys
from pathlib import Path

import torch

from minigpt.generate import stream_text
from minigpt.text import CharTokenizer, gpt2_encoding
from minigpt.train import checkpoints, choose_device, load_checkpoint, load_model

__all__ = ["main"]


def main(argv: list[str] | None = None) -> int:
    """Write text. Exit status: 0 done, 2 a bad option or run, 130 after Ctrl-C."""
    parser = make_parser()
    args = parser.parse_args(argv)
    for out in (sys.stdout, sys.stderr):  # a console that lacks a character shows "?"
        if hasattr(out, "reconfigure"):
            out.reconfigure(errors="replace")
    try:
        device = choose_device(args.device)
        path = find(args.run)
        tokenizer = tokenizer_of(path)
        pieces = stream_text(
            load_model(path).to(device),
            tokenizer,
            args.prompt,
            args.n_new,
            temperature=args.temperature,
            top_k=args.top_k,
            top_p=args.top_p,
            generator=torch.Generator().manual_seed(args.seed),
        )
    except (ValueError, OSError) as error:
        parser.error(str(error))
    try:
        print(args.prompt, end="", flush=True)
        for piece in pieces:
            print(piece, end="", flush=True)
    except KeyboardInterrupt:
        print()
        return 130
    print()
    return 0


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m minigpt.generate",
        description="Write text with a trained model.",
    )
    parser.add_argument(
        "run",
        type=Path,
        nargs="?",
        default=Path("runs/shakespeare"),
        help="folder of a run, or a file of weights (default: runs/shakespeare)",
    )
    parser.add_argument("--prompt", default="\n", help="text to begin with")
    parser.add_argument(
        "--n-new", type=int, default=500, help="tokens to add (default: 500)"
    )
    parser.add_argument(
        "--temperature", type=float, default=1.0, help="0 is greedy (default: 1.0)"
    )
    parser.add_argument("--top-k", type=int, default=None, help="best K only")
    parser.add_argument(
        "--top-p", type=float, default=None, help="best P of the probability only"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the draws (default: 0)")
    parser.add_argument(
        "--device", default="auto", help="auto, cpu, cuda, mps (default: auto)"
    )
    return parser


def find(run: Path) -> Path:
    """The weights to use: those given, or a run's best ones, or else its last."""
    if run.is_file():
        return run
    best = run / "best.safetensors"
    if best.exists():
        return best
    found = checkpoints(run)
    if not found:
        raise FileNotFoundError(
            f"no weights in {run}: train first, with python -m minigpt.train --folder "
            f"{run}"
        )
    return found[-1]


def tokenizer_of(path: Path):
    """The tokenizer that a file of weights names.

    Raises:
        ValueError: if it names none, or one that cannot be made from its name.
    """
    told = load_checkpoint(path).get("tokenizer")
    if told is None:
        raise ValueError(f"{path} does not name its tokenizer: train with tokenizer=")
    if told.get("kind") == "characters":
        return CharTokenizer.from_dict(told)
    if told.get("name") == "gpt2":
        return gpt2_encoding()
    raise ValueError(
        f"{path} was made with the tokenizer {told}, which cannot be made from its "
        "name: use minigpt.generate.stream_text with that tokenizer"
    )
