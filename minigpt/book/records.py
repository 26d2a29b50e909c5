"""Recorded results that chapters show, each with the command that remakes it.

The training runs of chapter 12 come from `tools/record.py`, the times of chapter 7 from
`benchmarks/norms.py`, the texts of chapter 14 from `tools/record_speech.py`.
"""

import json
from dataclasses import dataclass
from importlib.resources import files

from minigpt.gpt import GPTConfig
from minigpt.train import TrainConfig

__all__ = [
    "ABLATED",
    "CHANGES",
    "RECORDED",
    "SEEDS",
    "Record",
    "ablation",
    "bench",
    "ladder",
    "nanogpt",
    "norm_speed",
    "read",
    "speech",
    "stability",
]

# None of them was used while the recipes were looked for.
SEEDS = (11, 12, 13)
# recipe -> the seeds it was recorded with, from the plainest to the best. The batches
# of `best` were chosen on its seed 11, which is therefore not among them.
RECORDED = {
    "plain": (1337, 1, 2),
    "adamw": SEEDS,
    "muon": SEEDS,
    "best-short": (12, 13, 14),
    "best": (12, 13, 14),
    "cpu-long": (12, 13, 14),
}
# The ablation: a shorter run of the recipe "muon", and one change at a time, with each
# of SEEDS. What a change does is its loss minus the recipe's with the same seed.
ABLATED = {"steps": 250, "warmup": 30, "eval_every": 250}
CHANGES = {
    "as it is": {},
    "AdamW for the matrices too": {"optimizer": "adamw", "lr": 2e-3},
    "learned positions": {"positions": "learned"},
    "no QK-norm": {"qk_norm": False},
    "writes and head not from zero": {"zero_init": False},
    "tied head": {"tie_weights": True},
    "LayerNorm": {"norm": "layernorm"},
    "SwiGLU": {"mlp": "swiglu", "d_ff": 344},
    "token shift": {"shift": True},
    "three Newton-Schulz steps": {"ns_steps": 3},
    "Muon at 0.04": {"muon_lr": 0.04},
    "Muon at 0.01": {"muon_lr": 0.01},
    "cosine to a tenth": {"decay": "cosine", "min_lr": 6e-4},
    "weight decay 0.1": {"weight_decay": 0.1},
    "no clipping": {"clip": None},
    "batches of 12, twice the steps": {"batch_size": 12, "steps": 500},
}


@dataclass(frozen=True)
class Record:
    """One run of a recipe: what was trained, and how the loss went.

    Losses are in nats per character, rounded to 4 digits. `losses` has one number for
    every step; `val_losses`, over the whole validation split, belong to `val_steps`.
    """

    model_config: GPTConfig
    train_config: TrainConfig
    n_parameters: int
    losses: list[float]
    val_steps: list[int]
    val_losses: list[float]

    @property
    def final(self) -> float:
        """The validation loss after the last step."""
        return self.val_losses[-1]


def nanogpt() -> dict[int, float]:
    """Seed -> validation loss of nanoGPT's CPU recipe, measured with its own code.

    The file says with which commit and command, and how the loss was taken.
    """
    path = files("minigpt.book") / "records" / "nanogpt.json"
    losses = json.loads(path.read_text("utf-8"))["val_loss"]
    return {int(seed): loss for seed, loss in losses.items()}


def bench(device: str) -> dict | None:
    """What `make bench` kept for a kind of device, None if nothing was measured.

    Args:
        device: "cpu" or "cuda".

    Returns:
        A dict with "machine" and "rows": each says "what" was measured, its "value" or
        None, the "bar", whether it must be "at_most" that, whether it was "held", and
        "why" not, or how.
    """
    path = files("minigpt.book") / "records" / f"bench_{device}.json"
    return json.loads(path.read_text("utf-8")) if path.is_file() else None


def norm_speed(device: str) -> dict | None:
    """What `benchmarks/norms.py --write` kept for a kind of device, None if nothing.

    Args:
        device: "cpu" or "cuda".
    """
    path = files("minigpt.book") / "records" / f"norm_speed_{device}.json"
    return json.loads(path.read_text("utf-8")) if path.is_file() else None


def stability(device: str = "cpu") -> dict | None:
    """The map of chapter 8, from `tools/record_stability.py`; None if there is none.

    Args:
        device: "cpu" or "cuda".

    Returns:
        A dict with "setting", the sizes and the device's name, and "runs": each has its
        order, depth, lr, warmup and seed, its "val_loss", and "losses", the means of
        ten steps each, in nats per character. A loss that is no number is None.
    """
    name = "stability.json" if device == "cpu" else f"stability_{device}.json"
    path = files("minigpt.book") / "records" / name
    return json.loads(path.read_text("utf-8")) if path.is_file() else None


def ladder(device: str = "cpu") -> dict | None:
    """The ladder of chapter 13, from `tools/record_ladder.py`; None if there is none.

    Args:
        device: "cpu" or "cuda".

    Returns:
        A dict with "setting", what all runs share, and "runs": each belongs to a part
        (grid, ladder, page) and has its rung, n_layers, start, lr and seed, its
        "val_loss", and "losses", the means of ten steps each, in nats per character. A
        loss that is no number is None. `minigpt.ladder.by_rung` reads them.
    """
    name = "ladder.json" if device == "cpu" else f"ladder_{device}.json"
    path = files("minigpt.book") / "records" / name
    return json.loads(path.read_text("utf-8")) if path.is_file() else None


def speech() -> dict:
    """What a trained model says, from `tools/record_speech.py`.

    Returns:
        A dict: "recipe", "seed" and "val_loss" of the model; "characters", its
        vocabulary; "text", the first window of the validation text, and "logits", a row
        after each of its characters; "prompt", "samples" and "sweep", which have the
        fields of `minigpt.generate.Sampling` and a seed. A sample has its "text". A
        line of the sweep has the share of "known" words and of "repeated" pieces.
    """
    path = files("minigpt.book") / "records" / "speech.json"
    return json.loads(path.read_text("utf-8"))


def read(recipe: str, seed: int) -> Record:
    """The record of a recipe and seed. Raises FileNotFoundError if there is none."""
    path = files("minigpt.book") / "records" / f"{recipe}_{seed}.jsonl"
    head, *rows = map(json.loads, path.read_text("utf-8").splitlines())
    vals = [row for row in rows if "val_loss" in row]
    return Record(
        model_config=GPTConfig.from_dict(head["model_config"]),
        train_config=TrainConfig.from_dict(head["train_config"]),
        n_parameters=head["n_parameters"],
        losses=[loss for row in rows for loss in row["losses"]],
        val_steps=[row["step"] for row in vals],
        val_losses=[row["val_loss"] for row in vals],
    )


def ablation() -> list[dict]:
    """One dict for each run: label, changes, seed, n_parameters, val_loss."""
    path = files("minigpt.book") / "records" / "ablation.jsonl"
    if not path.is_file():
        return []
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]
