"""Checks of chapters 5 and 8: what is added, what is normalised, and in what order."""

import copy
import itertools
import os
from collections.abc import Callable

import torch
from torch import Tensor, nn

from minigpt.book.check import answer as answers
from minigpt.book.check.judge import Judge, close, judged, number

__all__ = [
    "compose",
    "contributions",
    "highway",
    "order_of",
    "post_block",
    "pre_block",
    "residual",
]

D = 4


class _Mix(nn.Module):
    """Stands for attention: every token takes something from the others."""

    def __init__(self, seed: int = 11):
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.weight = nn.Parameter(torch.randn(D, D, generator=generator) / 2)

    def forward(self, x: Tensor) -> Tensor:
        return (x + x.mean(-2, keepdim=True)) @ self.weight.to(x.dtype)


class _Bend(_Mix):
    """Stands for the MLP: each token by itself."""

    def __init__(self):
        super().__init__(seed=12)

    def forward(self, x: Tensor) -> Tensor:
        return 2 * torch.tanh(x @ self.weight.to(x.dtype)) + 0.5


class _Norm(nn.Module):
    """A LayerNorm with numbers of its own, so that no two are alike."""

    def __init__(self, seed: int):
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.weight = nn.Parameter(0.5 + torch.rand(D, generator=generator))
        self.bias = nn.Parameter(torch.randn(D, generator=generator) / 4)

    def forward(self, x: Tensor) -> Tensor:
        centred = x - x.mean(-1, keepdim=True)
        size = (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt()
        return centred / size * self.weight.to(x.dtype) + self.bias.to(x.dtype)


class _Silent(nn.Module):
    """A sublayer that writes nothing."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.zeros_like(x)


def _x(*shape: int, seed: int = 21) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return 1.5 * torch.randn(*shape, generator=generator) + 0.5


# The residual layer -------------------------------------------------------------------

_RESIDUAL = ("Residual(branch)", "residual(x, branch)")


@judged("Residual")
def residual(judge: Judge, answer):
    """Judge `class Residual(nn.Module)` with `Residual(branch)`, or a function.

    Args:
        answer: a class whose objects return x + branch(x); or a function
            `residual(x, branch)`.
    """
    answers.wants(judge, answer, " or ".join(_RESIDUAL))
    made = answers.is_class(answer) or _takes_only(answer, "branch")

    def run(x: Tensor, branch: nn.Module) -> Tensor:
        if made:
            module = answers.build(judge, answer, _RESIDUAL[0], branch=branch)
            value = judge.call(module, x, given=f"x: {answers._text(x)}")
        else:
            value = answers.invoke(judge, answer, _RESIDUAL[1], x=x, branch=branch)
        return judge.tensor(value, x.shape, what="your residual layer")

    x, f = _x(2, 3, D), _Bend()
    with judge.mechanism("shape"):
        y = run(x, f)
    with judge.mechanism("what is added"), torch.no_grad():
        change = f(x)
        judge.compare(
            y,
            x + change,
            [
                (
                    "The residual is missing: the output is f(x) alone. Add the input.",
                    change,
                ),
                ("The branch is missing: the output is x alone. Add f(x).", x),
                ("The branch is subtracted: x - f(x). It is added.", x - change),
                ("The input is subtracted: f(x) - x. It is added.", change - x),
                ("x and f(x) are multiplied. They are added.", x * change),
                ("The input is added twice: x + x + f(x).", 2 * x + change),
                ("The branch's output is added twice: x + 2 f(x).", x + 2 * change),
                (
                    "The branch is applied twice: f(f(x)). It is applied once.",
                    x + f(change),
                ),
                (
                    "The branch is applied to the sum again: what is added is f(x + "
                    "f(x)).",
                    x + f(x + change),
                ),
                ("The branch gets more than x: f(x + x).", x + f(2 * x)),
                (
                    "What is added is not x but f(x) itself: f(x) + f(f(x)). The name "
                    "`x` was overwritten before the addition.",
                    change + f(change),
                ),
                (
                    "The mean of x and f(x) is returned; their sum is wanted.",
                    (x + change) / 2,
                ),
                (
                    "The output is divided by the root of 2. That keeps the variance, "
                    "but it is not x + f(x): the identity path would shrink.",
                    (x + change) / 2**0.5,
                ),
                (
                    "Something bends the sum: a ReLU after the addition.",
                    (x + change).relu(),
                ),
                (
                    "The branch's output is bent before it is added: a ReLU too many.",
                    x + change.relu(),
                ),
                (
                    "The sum is normalised. This layer only adds; the norm comes in a "
                    "later chapter.",
                    lambda: torch.nn.functional.layer_norm(x + change, (D,)),
                ),
                (
                    "The branch reads a normalised x. This layer only adds; the norm "
                    "comes in a later chapter.",
                    lambda: x + f(torch.nn.functional.layer_norm(x, (D,))),
                ),
            ],
            x=x,
            **{"f(x)": change},
        )
    with judge.mechanism("a branch that writes nothing"):
        y = run(x, _Silent())
        if not torch.equal(y, x):
            judge.compare(
                y, x, (), 0.0, "With f(x) = 0 the output must be x bit for bit.", x=x
            )
    for name, shape in (("a batch of one", (1, 1, D)), ("two dimensions", (3, D))):
        with judge.mechanism(name), torch.no_grad():
            x = _x(*shape)
            judge.compare(run(x, f), x + f(x), x=x)
    _gaps(judge, lambda x: run(x, f), lambda x: x + f(x))
    with judge.mechanism("the type of the output"):
        _same_type(judge, lambda x: run(x, nn.Identity()), lambda x: 2 * x)
    _way_back(
        judge,
        lambda x: run(x, f),
        lambda x: x + f(x),
        [
            (
                "Only the branch passes a gradient; the input was cut off the graph "
                "(`.detach()`, `.data`, `.clone()` under `no_grad`).",
                f,
            ),
            (
                "Only the identity passes a gradient; the branch was cut off the graph "
                "(`.detach()`, `.data`, `no_grad`).",
                lambda x: 1 * x,
            ),
        ],
    )
    if made:
        module = answers.build(judge, answer, _RESIDUAL[0], branch=_Bend())
        _registered(judge, module, {"branch": 1})
    _unseen(judge, lambda x: run(x, f), lambda x: x + f(x))


def _takes_only(answer, name: str) -> bool:
    """Whether a function's one required argument is the branch: it makes layers."""
    parameters = answers._parameters(answer) or []
    few = [p for p in parameters if p.default is p.empty]
    return len(few) == 1 and few[0].name.lower() in answers.ALIASES[name]


def _gaps(judge: Judge, yours: Callable, right: Callable):
    with judge.mechanism("input that is not contiguous"), torch.no_grad():
        x = _x(D, 3, 2).permute(2, 1, 0)
        judge.compare(yours(x), right(x), x=x)


def _same_type(judge: Judge, yours: Callable, right: Callable):
    for dtype in (torch.float16, torch.bfloat16, torch.float64):
        x = _x(2, 3, D).to(dtype)
        y = yours(x)
        if y.dtype != dtype:
            name, got = (str(t).removeprefix("torch.") for t in (dtype, y.dtype))
            judge.fail(
                f"The input is {name}, and your output is {got}.",
                [("expected", name), ("yours", got)],
            )
        judge.compare(y, right(x), (), 0.02, x=x)


def _way_back(judge: Judge, yours: Callable, right: Callable, mistakes: list):
    with judge.mechanism("the gradient"):
        x, g = _x(2, 3, D), _x(2, 3, D, seed=22)
        y = yours(x := x.requires_grad_())
        if not y.requires_grad:
            judge.fail(
                "No gradient passes your code. Something cuts it: `.detach()`, "
                "`.data`, `torch.tensor(...)` or `torch.no_grad()`."
            )

        def gradient(function) -> Tensor:
            t = x.detach().clone().requires_grad_()
            return torch.autograd.grad(function(t), t, g)[0]

        try:
            (found,) = torch.autograd.grad(y, x, g, allow_unused=True)
        except RuntimeError as error:
            judge.fail(
                "The way back stops with an error. Something writes in place into a "
                "tensor that the gradient still needs.",
                [("error", str(error).splitlines()[0][:150])],
            )
        judge.compare(
            torch.zeros_like(x) if found is None else found,
            gradient(right),
            [(text, gradient(function)) for text, function in mistakes],
            1e-3,
            "The output is right, and the gradient for x is not.",
            x=x.detach(),
        )


def _registered(judge: Judge, module: nn.Module, expected: dict[str, int]):
    """All parameters of the parts are parameters of the whole."""
    with judge.mechanism("the parts are submodules"):
        wanted, found = sum(expected.values()), len(list(module.parameters()))
        if found < wanted:
            judge.fail(
                f"Your module has {found} of the {wanted} parameters of its parts, so "
                "an optimizer would not find the others. Assign each part to an "
                "attribute, `self.branch = branch`; a plain list or dict hides it "
                "(`nn.ModuleList` does not).",
                [
                    ("expected", f"{wanted} parameters"),
                    ("yours", f"{found} parameters"),
                ],
            )


def _unseen(judge: Judge, yours: Callable, right: Callable):
    with judge.mechanism("numbers never seen before"), torch.no_grad():
        x = _x(3, 5, D, seed=int.from_bytes(os.urandom(4), "little"))
        if not close(yours(x), right(x), 1e-3):
            judge.fail(
                "All inputs tried so far came out right, a new one does not. Are "
                "results or sizes written into the code?"
            )


# The blocks ---------------------------------------------------------------------------

_Half = Callable[[Tensor, Callable, Callable], Tensor]

# What can be done with the stream x, a sublayer f and its norm n; and how to say it.
_HALVES: dict[str, tuple[_Half, str]] = {
    "pre": (lambda x, f, n: x + f(n(x)), "the norm stands before {f} (Pre-LN)"),
    "post": (lambda x, f, n: n(x + f(x)), "the norm stands on the sum (Post-LN)"),
    "no norm": (lambda x, f, n: x + f(x), "the norm is missing"),
    "no residual": (lambda x, f, n: f(n(x)), "the residual is missing"),
    "normed residual": (
        lambda x, f, n: n(x) + f(n(x)),
        "the residual is taken after the norm: n(x) + {f}(n(x)). The stream itself is "
        "to be added, so keep `x` and give the normalised one another name",
    ),
    "reordered": (
        lambda x, f, n: x + n(f(x)),
        "the norm stands after {f}, on what it writes and not on the sum",
    ),
    "sandwich": (
        lambda x, f, n: x + n(f(n(x))),
        "the norm is applied twice, before {f} and after it",
    ),
    "plain": (lambda x, f, n: f(x), "norm and residual are missing"),
    "post without residual": (
        lambda x, f, n: n(f(x)),
        "the residual is missing under the norm",
    ),
    "both": (
        lambda x, f, n: n(x + f(n(x))),
        "there are two norms, one before {f} and one on the sum",
    ),
    "pre and sum": (
        lambda x, f, n: n(x) + f(x),
        "the norm stands on the residual path, and {f} reads the raw x",
    ),
    "idle": (lambda x, f, n: x, "{f} is not used"),
    "subtracted": (lambda x, f, n: x - f(n(x)), "what {f} writes is subtracted"),
    "twice": (lambda x, f, n: 2 * x + f(n(x)), "the input is added twice"),
    "doubled": (lambda x, f, n: x + 2 * f(n(x)), "what {f} writes is added twice"),
    "mean": (lambda x, f, n: (x + f(n(x))) / 2, "the sum is halved"),
}


@judged("Pre-LN block")
def pre_block(judge: Judge, answer):
    """Judge a Pre-LN block: `Block(attn, mlp, attn_norm, mlp_norm)`, or a function.

    Args:
        answer: a class of modules made of four ready parts, called with x (B, T, D); or
            a function `block(x, attn, mlp, attn_norm, mlp_norm)`.
    """
    _block(judge, answer, "pre", "Block")


@judged("Post-LN block")
def post_block(judge: Judge, answer):
    """Judge a Post-LN block: `PostNormBlock(attn, mlp, attn_norm, mlp_norm)`.

    Args:
        answer: a class of modules made of four ready parts, called with x (B, T, D); or
            a function `block(x, attn, mlp, attn_norm, mlp_norm)`.
    """
    _block(judge, answer, "post", "PostNormBlock")


def _block(judge: Judge, answer, order: str, name: str):
    of_class = f"{name}(attn, mlp, attn_norm, mlp_norm)"
    of_function = "block(x, attn, mlp, attn_norm, mlp_norm)"
    answers.wants(judge, answer, f"{of_class} or {of_function}")
    made = answers.is_class(answer) or not _takes_x(answer)
    parts = {
        "attn": _Mix(),
        "mlp": _Bend(),
        "attn_norm": _Norm(13),
        "mlp_norm": _Norm(14),
    }
    right = _HALVES[order][0]

    def run(x: Tensor, parts: dict[str, nn.Module] = parts) -> Tensor:
        if made:
            module = answers.build(judge, answer, of_class, **parts)
            value = judge.call(module, x, given=f"x: {answers._text(x)}")
        else:
            value = answers.invoke(judge, answer, of_function, x=x, **parts)
        return judge.tensor(value, x.shape, what="your block")

    def expected(x: Tensor, parts: dict[str, nn.Module] = parts) -> Tensor:
        x = right(x, parts["attn"], parts["attn_norm"])
        return right(x, parts["mlp"], parts["mlp_norm"])

    x = _x(2, 3, D)
    with judge.mechanism("shape"):
        y = run(x)
    with torch.no_grad():
        if not close(y, expected(x), 1e-4):
            _diagnose(judge, order, x, y, expected(x), parts, run)
    judge.held += ["attention's branch", "the MLP's branch", "the order of the two"]
    with judge.mechanism("sublayers that write nothing"):
        silent = parts | {"attn": _Silent(), "mlp": _Silent()}
        y = run(x, silent)
        if order == "pre" and not torch.equal(y, x):
            judge.compare(y, x, (), 0.0, "The output must be x bit for bit.", x=x)
        judge.compare(y, expected(x, silent), x=x)
    with judge.mechanism("a batch of one"), torch.no_grad():
        small = _x(1, 1, D)
        judge.compare(run(small), expected(small), x=small)
    _gaps(judge, run, expected)
    with judge.mechanism("the type of the output"), torch.no_grad():
        for dtype in (torch.float16, torch.bfloat16, torch.float64):
            cast = {n: copy.deepcopy(p).to(dtype) for n, p in parts.items()}
            y = run(x.to(dtype), cast)
            got, wanted = (str(t).removeprefix("torch.") for t in (y.dtype, dtype))
            if y.dtype != dtype:
                judge.fail(f"The input is {wanted}, and your output is {got}.")
    _way_back(judge, run, expected, _cut(order, parts))
    if made:
        module = answers.build(judge, answer, of_class, **parts)
        _registered(judge, module, {"parts": 6})
    _unseen(judge, run, expected)


def _takes_x(answer) -> bool:
    parameters = answers._parameters(answer) or []
    few = [p for p in parameters if p.default is p.empty]
    return len(few) >= 5 or any(p.name.lower() in answers.ALIASES["x"] for p in few)


def _cut(order: str, parts: dict) -> list:
    """Gradients of blocks that cut one of the two ways in both halves."""

    def without(identity: bool) -> Callable:
        def block(x: Tensor) -> Tensor:
            for f, n in (("attn", "attn_norm"), ("mlp", "mlp_norm")):
                f, n = parts[f], parts[n]
                kept = x.detach() if identity else x
                if order == "pre":
                    x = kept + (f(n(x)) if identity else f(n(x)).detach())
                else:
                    x = n(kept + (f(x) if identity else f(x).detach()))
            return x

        return block

    tail = " (`.detach()`, `.data`, or a `.clone()` under `no_grad`)."
    return [
        (
            "The identity path passes no gradient: it was cut off the graph" + tail,
            without(True),
        ),
        (
            "The sublayers pass no gradient: they were cut off the graph" + tail,
            without(False),
        ),
    ]


def _diagnose(judge: Judge, order: str, x, y, right, parts, run: Callable):
    """Find the wiring whose output the reader's block has."""
    a, m, na, nm = (parts[n] for n in ("attn", "mlp", "attn_norm", "mlp_norm"))
    half = _HALVES[order][0]
    rows = {"x": x}
    words = {"attn": "attention", "mlp": "the MLP"}

    def fail(mechanism: str, sentence: str):
        judge.now = mechanism
        judge.compare(y, right, [(sentence, y.detach().clone())], **rows)

    # One half, or both, are wired otherwise.
    middle = {name: f(x, a, na) for name, (f, _) in _HALVES.items()}
    for (first, (_, say1)), (second, (f2, say2)) in sorted(
        itertools.product(_HALVES.items(), _HALVES.items()),
        key=lambda pair: (pair[0][0] != order) + (pair[1][0] != order),
    ):
        if close(y, f2(middle[first], m, nm), 1e-4):
            if first == second:
                text = say1.format(f="the sublayer")
                fail(
                    "attention's branch", f"In both halves {text}.{_also(order, first)}"
                )
            if second == order:
                text = say1.format(f=words["attn"])
                fail(
                    "attention's branch",
                    f"In attention's half {text}. The MLP's half is right.",
                )
            if first == order:
                text = say2.format(f=words["mlp"])
                fail(
                    "the MLP's branch",
                    f"In the MLP's half {text}. Attention's half is right.",
                )
            one, two = say1.format(f=words["attn"]), say2.format(f=words["mlp"])
            fail(
                "attention's branch",
                f"In attention's half {one}; in the MLP's half {two}.",
            )
    # The parts stand in each other's places, or the halves do not follow each other.
    z = half(x, a, na)
    others = [
        (
            "the order of the two",
            "The MLP comes first and attention second. Attention comes first.",
            half(half(x, m, nm), a, na),
        ),
        (
            "whose norm it is",
            "The two norms are exchanged: `attn_norm` belongs to attention, `mlp_norm` "
            "to the MLP.",
            half(half(x, a, nm), m, na),
        ),
        (
            "whose norm it is",
            "`attn_norm` is used for both halves; the MLP has its own, `mlp_norm`.",
            half(z, m, na),
        ),
        (
            "whose norm it is",
            "`mlp_norm` is used for both halves; attention has its own, `attn_norm`.",
            half(half(x, a, nm), m, nm),
        ),
        (
            "the order of the two",
            "Attention and its norm are right, and the MLP has norm and attention "
            "mixed up: attention is used twice.",
            half(z, a, nm),
        ),
        (
            "the order of the two",
            "The MLP reads the block's input, not the stream that attention has "
            "written to: the two run side by side. Let the second line read the `x` "
            "that the first one made.",
            x + a(na(x)) + m(nm(x)) if order == "pre" else nm(x + m(x)),
        ),
        (
            "the MLP's branch",
            "The second residual adds the block's input, so what attention wrote is "
            "lost. Add the stream after attention.",
            x + m(nm(z)) if order == "pre" else nm(x + m(z)),
        ),
        (
            "the order of the two",
            "Only the MLP's half reaches the output.",
            half(x, m, nm),
        ),
        (
            "the order of the two",
            "There is one residual around both sublayers; each has its own.",
            x + m(nm(a(na(x)))) if order == "pre" else nm(x + m(na(a(x)))),
        ),
        (
            "the MLP's branch",
            "The MLP's half adds the block's input again, beside the stream.",
            half(z, m, nm) + x,
        ),
        (
            "the end of the block",
            "A norm too many stands at the end of the block: `attn_norm`.",
            na(half(z, m, nm)),
        ),
        (
            "attention's branch",
            "x is normalised before the block branches, and that one goes on as the "
            "stream.",
            half(half(na(x), a, nn.Identity()), m, nm),
        ),
        (
            "the order of the two",
            "The sum is normalised once, at the end of both sublayers; each has a "
            "norm.",
            nm(x + a(x) + m(x + a(x))),
        ),
    ]
    for mechanism, sentence, output in others:
        if close(y, output, 1e-4):
            fail(mechanism, sentence)
    # Nothing fits: listen to one half at a time.
    quiet = parts | {"mlp": _Silent()}
    alone = run(x, quiet)
    expected = half(half(x, a, na), _Silent(), nm)
    judge.now = "attention's branch"
    judge.compare(
        alone,
        expected,
        (),
        1e-4,
        "With an MLP that writes nothing, attention's half is wrong.",
        x=x,
    )
    quiet = parts | {"attn": _Silent()}
    judge.now = "the MLP's branch"
    judge.compare(
        run(x, quiet),
        half(half(x, _Silent(), na), m, nm),
        (),
        1e-4,
        "Attention's half is right. With an attention that writes nothing, the MLP's "
        "half is wrong.",
        x=x,
    )
    judge.now = "the order of the two"
    judge.compare(
        y, right, (), 1e-4, "Each half is right alone, together they are not.", x=x
    )


def _also(order: str, found: str) -> str:
    asked = {"pre": "x + f(norm(x))", "post": "norm(x + f(x))"}
    return (
        f" Asked for is {asked[order]}."
        if found in ("pre", "post", "reordered")
        else ""
    )


# The exercises of chapters 5 and 8 ----------------------------------------------------


@judged("Highway")
def highway(judge: Judge, answer):
    """Judge `class Highway(nn.Module)` with `Highway(branch, d_model)`.

    Args:
        answer: y = T(x) * branch(x) + (1 - T(x)) * x, with T a sigmoid of a linear map
            whose bias begins so low that 50 layers return x to 1 part in 10,000.
    """
    signature = "Highway(branch, d_model)"
    answers.wants(judge, answer, signature, plain=False)
    f, x = _Bend(), _x(2, 3, D)

    def make() -> nn.Module:
        return answers.build(judge, answer, signature, branch=f, d_model=D)

    module = make()
    with judge.mechanism("shape"):
        judge.tensor(judge.call(module, x), x.shape, what="your layer")
    own = {id(p) for p in f.parameters()}
    with judge.mechanism("the gate is a linear map"):
        mine = [p for p in module.parameters() if id(p) not in own]
        matrices = [p for p in mine if p.numel() == D * D]
        biases = [p for p in mine if p.numel() == D]
        if len(matrices) != 1 or len(biases) != 1:
            judge.fail(
                "The gate needs a matrix and a bias of its own, `self.gate = "
                "nn.Linear(d_model, d_model)`.",
                [
                    ("expected", f"({D}, {D}) and ({D},)"),
                    ("yours", ", ".join(str(tuple(p.shape)) for p in mine) or "none"),
                ],
            )
    with judge.mechanism("the mix"), torch.no_grad():
        answers.assign(matrices[0], _x(D, D, seed=23) / 2)
        answers.assign(biases[0], torch.tensor([0.5, -1.0, 0.0, 1.0]))
        z = x @ matrices[0].reshape(D, D).T + biases[0].reshape(D)
        t, change = z.sigmoid(), f(x)
        judge.compare(
            judge.tensor(judge.call(module, x), x.shape, what="your layer"),
            t * change + (1 - t) * x,
            [
                (
                    "The gate is on the wrong side: it opens for the branch.",
                    t * x + (1 - t) * change,
                ),
                ("The input is added in full; its share is 1 - T(x).", t * change + x),
                ("The sigmoid is missing.", z * change + (1 - z) * x),
                (
                    "The bend is a tanh; a gate is a sigmoid.",
                    z.tanh() * change + (1 - z.tanh()) * x,
                ),
                ("The input's share is missing: (1 - T(x)) * x.", t * change),
                (
                    "The gate looks at the branch's output; it looks at x.",
                    lambda: (lambda s: s * change + (1 - s) * x)(
                        (
                            change @ matrices[0].reshape(D, D).T + biases[0].reshape(D)
                        ).sigmoid()
                    ),
                ),
            ],
            x=x,
        )
    with judge.mechanism("fifty layers return their input"), torch.no_grad():
        y = x
        for _ in range(50):
            y = judge.call(make(), y)
        if not torch.allclose(y, x, rtol=1e-4, atol=1e-4):
            gap = (y - x).abs().max()
            judge.fail(
                "Fifty fresh layers do not return their input to 1 part in 10,000: "
                f"they are off by {number(gap)}. The gate's bias has to begin lower; "
                "`nn.init.constant_(self.gate.bias, ...)`.",
            )
    _way_back(
        judge,
        module,
        lambda x: (lambda t: t * f(x) + (1 - t) * x)(
            (x @ matrices[0].reshape(D, D).T + biases[0].reshape(D)).sigmoid()
        ),
        [],
    )


@judged("contributions")
def contributions(judge: Judge, answer):
    """Judge `contributions(model, tokens)`: the terms that add up to the last stream.

    Args:
        answer: a function that returns the embedding (B, T, D) and the 2 N updates of a
            `minigpt.depth.Stack` of `ResidualBlock`s, in order.
    """
    from minigpt.depth import Stack
    from minigpt.residual import ResidualBlock

    signature = "contributions(model, tokens)"
    answers.wants(judge, answer, signature, classes=False)
    embed = nn.Embedding(7, D)
    blocks = [ResidualBlock(_Mix(31), _Bend()) for _ in range(3)]
    model = Stack(embed, blocks, nn.Linear(D, 7))
    tokens = torch.tensor([[1, 4, 2], [6, 0, 3]])
    with torch.no_grad():
        right, x = [embed(tokens)], embed(tokens)
        for block in blocks:
            for part in (block.attn, block.mlp):
                right.append(part(x))
                x = x + right[-1]
    found = answers.invoke(judge, answer, signature, model=model, tokens=tokens)
    with judge.mechanism("how many terms"):
        if isinstance(found, Tensor):
            found = list(found)
        if not isinstance(found, (list, tuple)):
            judge.fail("A list of tensors is wanted.")
        if len(found) != len(right):
            why = {
                4: " One update a block is too few: attention and the MLP write "
                "one each.",
                6: " The embedding is a term, too.",
            }.get(len(found), "")
            judge.fail(f"{len(found)} terms; 3 blocks have {len(right)}.{why}")
    stream = torch.stack(right).cumsum(0)
    alone = [right[0], *(p(right[0]) for b in blocks for p in (b.attn, b.mlp))]
    names = [
        "the embedding",
        *(f"{p} of block {i}" for i in range(3) for p in ("attention", "the MLP")),
    ]
    for i, (name, yours) in enumerate(zip(names, found)):
        with judge.mechanism(name):
            yours = judge.tensor(yours, (2, 3, D), what="the term")
            judge.compare(
                yours,
                right[i],
                [
                    (
                        "That is the stream so far; the term is what is added to it.",
                        stream[i],
                    ),
                    (
                        "This part was given the embedding; it reads the stream as it "
                        "is by then.",
                        alone[i],
                    ),
                    (
                        "The MLP was given what attention read; it reads the sum.",
                        blocks[(i - 1) // 2].mlp(stream[i - 2])
                        if i > 2 and i % 2 == 0
                        else None,
                    ),
                ],
            )


@judged("order_of")
def order_of(judge: Judge, answer):
    """Judge `order_of(block)`: the name of a block's order, found by trying it.

    Args:
        answer: a function that returns "plain", "residual", "post", "pre", "sandwich",
            "reordered" or "neither" for a block of width 64 with fresh norms.
    """
    from minigpt.attention import CausalSelfAttention
    from minigpt.block import BLOCKS, Block
    from minigpt.layernorm import LayerNorm
    from minigpt.mlp import MLP

    class _Neither(Block):
        def forward(self, x):
            x = self.attn_norm(x)
            x = x + self.attn(x)
            x = self.mlp_norm(x)
            return x + self.mlp(x)

    answers.wants(judge, answer, "order_of(block)", classes=False)
    kinds = {**BLOCKS, "neither": _Neither}
    for order, kind in kinds.items():
        for seed in (0, 1):
            torch.manual_seed(seed)
            attn, mlp = CausalSelfAttention(64, 4), MLP(64, 256)
            if order == "neither":  # loud, so that its variance is far from 1
                nn.init.normal_(mlp.down.weight, std=0.2)
            block = kind(attn, mlp, LayerNorm(64), LayerNorm(64))
            before = {n: p.detach().clone() for n, p in block.named_parameters()}
            with judge.mechanism(f"a block of the order {order!r}"):
                found = judge.call(
                    answer, block, given=f"a block of the order {order!r}"
                )
                if any(
                    not torch.equal(p, before[n]) for n, p in block.named_parameters()
                ):
                    judge.fail("The block's weights were changed: change a copy of it.")
                if found != order:
                    _wrong_order(judge, order, found, list(kinds))


def _wrong_order(judge: Judge, order: str, found, names: list[str]):
    rows = [("expected", repr(order)), ("yours", repr(found)[:60])]
    if found not in names:
        judge.fail(f"One of these names is wanted: {', '.join(names)}.", rows)
    hints = {
        "plain": "With silent sublayers such a block returns zeros.",
        "residual": "No norm: five times the input changes the update, and so does "
        "five times `attn.out`.",
        "post": "It is silent and normalised, and so is what it returns: variance 1.",
        "pre": "It is the identity when silent, and its update forgets the size of the "
        "input but not that of `attn.out`.",
        "sandwich": "Its update forgets both, the size of the input and of `attn.out`.",
        "reordered": "Its update forgets the size of `attn.out`, not that of the "
        "input.",
        "neither": "When silent it returns normalised tokens, as Post-LN does, but "
        "with sublayers that speak its tokens do not have variance 1.",
    }
    judge.fail(f"The order {order!r} is taken for {found!r}. {hints[order]}", rows)


@judged("compose")
def compose(judge: Judge, answer):
    """Judge `compose(order, attn, mlp, attn_norm, mlp_norm)`: six orders, no class.

    Args:
        answer: a function that returns a module of that order, a key of
            `minigpt.block.BLOCKS`, made of the given parts.
    """
    signature = "compose(order, attn, mlp, attn_norm, mlp_norm)"
    answers.wants(judge, answer, signature, classes=False)
    x = _x(2, 3, D)
    parts = {
        "attn": _Mix(),
        "mlp": _Bend(),
        "attn_norm": _Norm(13),
        "mlp_norm": _Norm(14),
    }
    a, m, na, nm = parts.values()
    names = {
        "plain": "plain",
        "residual": "no norm",
        "post": "post",
        "pre": "pre",
        "sandwich": "sandwich",
        "reordered": "reordered",
    }
    for order, half in names.items():
        with judge.mechanism(f"the order {order!r}"), torch.no_grad():
            module = answers.invoke(judge, answer, signature, order=order, **parts)
            if not callable(module):
                judge.fail("A module is wanted.")
            y = judge.tensor(judge.call(module, x), x.shape, what="the module")
            f = _HALVES[half][0]
            mistakes = [
                (
                    f"What you return for {order!r} is the order {other!r}.",
                    _HALVES[key][0](_HALVES[key][0](x, a, na), m, nm),
                )
                for other, key in names.items()
            ]
            mistakes += [
                ("The two norms are exchanged.", f(f(x, a, nm), m, na)),
                ("The MLP comes before attention.", f(f(x, m, nm), a, na)),
                ("The MLP's half is missing.", f(x, a, na)),
            ]
            judge.compare(y, f(f(x, a, na), m, nm), mistakes, x=x)
