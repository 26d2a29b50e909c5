"""One token and what norms make of it, as bars; scripts/norms.js moves them."""

from statistics import fmean, pstdev

from minigpt.book.figures import COLORS, Figure, handle

__all__ = ["token_figure"]

SIZES = {
    "std": pstdev,
    "rms": lambda values: fmean(value * value for value in values) ** 0.5,
}


def token_figure(shown: dict[str, list[float]], size: str) -> Figure:
    """The token above, with its mean as a line, and below it each norm's output.

    Args:
        shown: what is written above each panel, and its numbers; the token first.
        size: what is told beside the mean, a key of `SIZES`.

    Returns:
        A figure whose parts have the names that scripts/norms.js moves.
    """
    told = {name: sizes(values, size) for name, values in shown.items()}
    alt = " ".join(
        f"{name}: {', '.join(map(word, values))}; {told[name]}."
        for name, values in shown.items()
    )
    alt, rows = alt[0].upper() + alt[1:], len(shown)
    fig = Figure(alt=alt, size=(4.4, 0.6 + 2 * rows), rows=rows)
    for n, (ax, (name, values)) in enumerate(zip(fig.axes, shown.items())):
        bars(fig, n, values, COLORS["norm" if n else "stream"])
        title = {"transform": ax.transAxes, "ha": "right", "va": "bottom"}
        fig.part(ax.text(1, 1.03, told[name], **title), f"sizes-{n}")
        ax.axhline(0, color=COLORS["muted"], linewidth=0.8)
        ax.set(title=name, xlim=(-0.6, 3.6), ylim=(-2.2, 2.2), xticks=[])
    handles(fig, next(iter(shown.values())))
    fig.ax.set(ylim=(-8.4, 8.4), yticks=[-8, -4, 0, 4, 8])
    return fig


def bars(fig: Figure, n: int, values: list[float], color: str) -> None:
    """The bars of a panel, with their numbers below them."""
    ax = fig.axes[n]
    below = {"transform": ax.get_xaxis_transform(), "ha": "center", "va": "top"}
    drawn = ax.bar(range(len(values)), values, 0.6, color=color)
    for i, (bar, value) in enumerate(zip(drawn, values)):
        fig.part(bar, f"bar-{n}-{i + 1}")
        fig.part(ax.text(i, -0.05, word(value), **below), f"value-{n}-{i + 1}")


def handles(fig: Figure, token: list[float]) -> None:
    """What a reader can take hold of: the end of each bar, and that of the mean."""
    mean = [fmean(token)] * 2
    (line,) = fig.ax.plot([-0.5, 3.5], mean, "--", color=COLORS["ink"])
    fig.part(line, "mean")
    fig.part(fig.ax.plot([3.5], mean[:1], "D", **handle("ink"))[0], "mean-end")
    for i, value in enumerate(token):
        (dot,) = fig.ax.plot([i], [value], "o", **handle("stream"))
        fig.part(dot, f"dot-{i + 1}")


def sizes(values: list[float], size: str) -> str:
    return f"mean {word(fmean(values))}, {size} {word(SIZES[size](values))}"


def word(value: float) -> str:
    text = f"{value:.{4 if abs(value) < 0.01 else 2}f}"
    return "0" if float(text) == 0 else text.replace("-", "−")
