"""Seeds and sizes of the experiments: shown by default, changed from outside."""

import os

import torch

__all__ = ["seeds", "setting"]


def seeds(count: int = 3) -> tuple[int, ...]:
    """The seeds of a chapter's experiments: 0, 1, ... count - 1.

    Set `MINIGPT_SEEDS` to others, "7,8" say, to see whether a message depends on them.
    The book's tests do that with seeds that no page shows.

    Raises:
        ValueError: if `MINIGPT_SEEDS` is not a list of at least two whole numbers.
    """
    given = os.environ.get("MINIGPT_SEEDS")
    if not given:
        return tuple(range(count))
    try:
        chosen = tuple(int(part) for part in given.split(","))
    except ValueError:
        chosen = ()
    if len(chosen) < 2:
        raise ValueError(
            f"MINIGPT_SEEDS={given!r} must be two or more whole numbers, such as 7,8"
        )
    return chosen


def setting(small: dict, large: dict) -> tuple[torch.device, dict]:
    """The device of a chapter's experiments, and their size on it; prints one line.

    Args:
        small: what two CPU cores do in time.
        large: the same keys, for a GPU that CUDA drives. `MINIGPT_SIZE=small` or
            `large` overrides the choice.

    Returns:
        The device, and one of the two dicts.

    Raises:
        ValueError: if the keys differ, or `MINIGPT_SIZE` is neither word.
    """
    if small.keys() != large.keys():
        raise ValueError(f"small has {sorted(small)}, large has {sorted(large)}")
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    size = os.environ.get("MINIGPT_SIZE") or (
        "large" if device.type == "cuda" else "small"
    )
    if size not in ("small", "large"):
        raise ValueError(f"MINIGPT_SIZE={size!r} must be small or large")
    chosen = large if size == "large" else small
    numbers = ", ".join(f"{name} {value}" for name, value in chosen.items())
    print(f"{size} setting on {device.type}: {numbers}")
    return device, chosen
