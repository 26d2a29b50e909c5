"""Checks of chapters 3 and 10: SwiGLU, and what the exercises on MLPs ask."""

import itertools
import os
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from minigpt.book.check import answer as answers
from minigpt.book.check.judge import Judge, close, judged

__all__ = ["fold", "from_fused", "swiglu", "way_back"]

_SIGNATURES = ("SwiGLU(d_model, d_ff)", "swiglu(x, gate, up, down)")
D, WIDTH = 4, 6

# What can be made of gate and up, a and b, before `down`; and how to say it.
_INNER: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "SiLU stands on the wrong one: gate and up are swapped. It is "
    "`silu(gate(x)) * up(x)`.": lambda a, b: a * F.silu(b),
    "A sigmoid stands where SiLU belongs: that is the first GLU. SiLU is the gate "
    "times its own sigmoid.": lambda a, b: a.sigmoid() * b,
    "A GELU stands where SiLU belongs: that is GEGLU.": lambda a, b: F.gelu(a) * b,
    "A GELU in its tanh form stands where SiLU belongs.": lambda a, b: (
        F.gelu(a, approximate="tanh") * b
    ),
    "A ReLU stands where SiLU belongs: that is ReGLU.": lambda a, b: a.relu() * b,
    "A tanh stands where SiLU belongs.": lambda a, b: a.tanh() * b,
    "The gate is not bent: SiLU is missing.": lambda a, b: a * b,
    "SiLU is taken of the product; it belongs to the gate alone.": lambda a, b: F.silu(
        a * b
    ),
    "SiLU is taken of both; `up` stays as it is.": lambda a, b: F.silu(a) * F.silu(b),
    "SiLU is taken twice.": lambda a, b: F.silu(F.silu(a)) * b,
    "Gate and up are added; they are multiplied.": lambda a, b: F.silu(a) + b,
    "`up` is not used: the output is down(silu(gate(x))).": lambda a, b: F.silu(a),
    "The gate is not used: the output is down(up(x)).": lambda a, b: b,
    "The gate is used for both factors; the second is `up`.": lambda a, b: (
        F.silu(a) * a
    ),
    "`up` is used for both factors; the bent one is the gate.": lambda a, b: (
        F.silu(b) * b
    ),
    "SiLU has the wrong sign inside: a * sigmoid(-a).": lambda a, b: (
        a * (-a).sigmoid() * b
    ),
    "SiLU is gate times sigmoid(gate); this is gate plus sigmoid(gate).": lambda a, b: (
        (a + a.sigmoid()) * b
    ),
    "A softmax stands where SiLU belongs.": lambda a, b: a.softmax(-1) * b,
    "The input of SiLU is scaled by 1.702: that is an approximate GELU.": lambda a, b: (
        a * (1.702 * a).sigmoid() * b
    ),
}


class _Maps:
    """Three matrices in the reader's module, found by name, else by shape."""

    def __init__(self, judge: Judge, module: nn.Module):
        self.judge, self.named = judge, True
        linear = {n: m for n, m in module.named_modules() if isinstance(m, nn.Linear)}
        wide = [n for n, m in linear.items() if tuple(m.weight.shape) == (WIDTH, D)]
        fused = [
            n for n, m in linear.items() if tuple(m.weight.shape) == (2 * WIDTH, D)
        ]
        back = [n for n, m in linear.items() if tuple(m.weight.shape) == (D, WIDTH)]
        self.maps = [linear[n] for n in (*wide, *fused, *back)]
        if len(back) == 1 and len(wide) == 2:
            keyed = dict.fromkeys(wide)
            gate, up = (answers.by_name(keyed, role) for role in ("gate", "up"))
            self.named = len(gate) == 1 or len(up) == 1
            if self.named:
                first = gate[0] if gate else next(n for n in wide if n != up[0])
                wide = [first, next(n for n in wide if n != first)]
            self.gate, self.up = (
                (lambda x: linear[wide[0]](x)),
                (lambda x: linear[wide[1]](x)),
            )
        elif len(back) == 1 and len(fused) == 1:
            self.named = False
            both = linear[fused[0]]
            self.gate = lambda x: both(x).chunk(2, -1)[0]
            self.up = lambda x: both(x).chunk(2, -1)[1]
        else:
            self._lost(module, linear)
        self.down = lambda h: linear[back[0]](h)

    def _lost(self, module: nn.Module, linear: dict):
        found = [
            f"{n}: Linear({m.in_features}, {m.out_features})" for n, m in linear.items()
        ]
        rows = [
            ("wanted", f"two Linear({D}, {WIDTH}) and one Linear({WIDTH}, {D})"),
            ("yours", ", ".join(found) or "no nn.Linear"),
        ]
        plain = answers.plain_tensors(module)
        lists = [
            n
            for n, v in vars(module).items()
            if isinstance(v, (list, dict)) and not n.startswith("_") and v
        ]
        if plain:
            text = f"`self.{plain[0]}` is a plain tensor that no optimizer finds."
        elif lists:
            text = (
                f"`self.{lists[0]}` hides its layers from torch: use `nn.ModuleList`."
            )
        elif len(linear) == 2:
            text = "A matrix is missing: SwiGLU has three, `gate`, `up` and `down`."
        else:
            text = "The check cannot find your three matrices, `gate`, `up` and `down`."
        self.judge.fail(text + " For SwiGLU(4, 6):", rows)


@judged("SwiGLU")
def swiglu(judge: Judge, answer):
    """Judge `class SwiGLU(nn.Module)` with `SwiGLU(d_model, d_ff)`, or a function.

    Args:
        answer: a class whose objects compute down(silu(gate(x)) * up(x)) with three
            `nn.Linear` (or gate and up in one), under any names; or a function
            `swiglu(x, gate, up, down)` of matrices (F, D), (F, D) and (D, F), as
            `nn.Linear` keeps them.
    """
    answers.wants(judge, answer, " or ".join(_SIGNATURES))
    parameters = answers._parameters(answer) or []
    few = [p for p in parameters if p.default is p.empty]
    made = answers.is_class(answer) or len(few) == 2
    generator = torch.Generator().manual_seed(51)
    weights = [
        torch.randn(*shape, generator=generator)
        for shape in ((WIDTH, D), (WIDTH, D), (D, WIDTH))
    ]
    x = torch.randn(2, 3, D, generator=generator)

    def module() -> nn.Module:
        return answers.build(
            judge, answer, _SIGNATURES[0], d_model=D, d_ff=WIDTH
        ).eval()

    maps = None
    if made:
        reader = module()
        with judge.mechanism("shape"):
            value = judge.call(reader, x, given=f"x: {answers._text(x)}")
            judge.tensor(value, x.shape, what="your SwiGLU")
        with judge.mechanism("three matrices"):
            maps = _Maps(judge, reader)
        with torch.no_grad():
            for linear in maps.maps:
                for parameter in linear.parameters():
                    parameter.copy_(torch.randn(parameter.shape, generator=generator))
        gate, up, down = maps.gate, maps.up, maps.down

        def run(x: Tensor) -> Tensor:
            value = judge.call(reader.to(x.dtype), x, given=f"x: {answers._text(x)}")
            return judge.tensor(value, x.shape, what="your SwiGLU")

    else:

        def gate(x: Tensor) -> Tensor:
            return F.linear(x, weights[0].to(x.dtype))

        def up(x: Tensor) -> Tensor:
            return F.linear(x, weights[1].to(x.dtype))

        def down(h: Tensor) -> Tensor:
            return F.linear(h, weights[2].to(h.dtype))

        def run(x: Tensor) -> Tensor:
            names = dict(zip(("gate", "up", "down"), (w.to(x.dtype) for w in weights)))
            value = answers.invoke(judge, answer, _SIGNATURES[1], x=x, **names)
            return judge.tensor(value, x.shape, what="your SwiGLU")

        with judge.mechanism("shape"):
            run(x)

    def right(x: Tensor) -> Tensor:
        return down(F.silu(gate(x)) * up(x))

    with judge.mechanism("gate and up"):
        y = run(x)
        orders = (
            [(gate, up)] if maps is None or maps.named else [(gate, up), (up, gate)]
        )
        fits = [close(y, down(F.silu(a(x)) * b(x)), 1e-4) for a, b in orders]
        if not any(fits):
            with torch.no_grad():
                a, b = gate(x), up(x)
                mistakes = [
                    (text, down(inner(first, second)))
                    for first, second in ((a, b), (b, a))[: len(orders)]
                    for text, inner in _INNER.items()
                ]
                mistakes += [
                    (
                        "The input is added: the residual belongs to the block.",
                        x + right(x),
                    ),
                    ("SiLU comes once more at the end.", F.silu(right(x))),
                ]
                judge.compare(
                    y,
                    right(x),
                    mistakes,
                    fallback="The output is not down(silu(gate(x)) * up(x)).",
                    x=x,
                    **{"gate(x)": a[0, 0], "up(x)": b[0, 0]},
                )
        elif not fits[0]:
            gate, up = orders[1]
    with judge.mechanism("large numbers"), torch.no_grad():
        big = 60 * x
        judge.compare(
            run(big),
            right(big),
            (),
            1e-4,
            "For large numbers SiLU goes wrong: e to a large power is infinite. `a * "
            "torch.sigmoid(a)` and `F.silu` are safe.",
            **{"x": big, "gate(x)": gate(big)[0, 0]},
        )
    shapes = {"a batch of one": (1, 1, D), "one vector": (D,), "two dimensions": (3, D)}
    for name, shape in shapes.items():
        with judge.mechanism(name), torch.no_grad():
            small = torch.randn(*shape, generator=generator)
            judge.compare(run(small), right(small), x=small)
    with judge.mechanism("input that is not contiguous"), torch.no_grad():
        gaps = torch.randn(D, 3, 2, generator=generator).permute(2, 1, 0)
        judge.compare(run(gaps), right(gaps), x=gaps)
    with judge.mechanism("numbers never seen before"), torch.no_grad():
        seed = int.from_bytes(os.urandom(4), "little")
        new = torch.randn(3, 5, D, generator=torch.Generator().manual_seed(seed))
        if not close(run(new), right(new), 1e-3):
            judge.fail(
                "All inputs tried so far came out right, a new one does not. Are "
                "results or sizes written into the code?"
            )
    with judge.mechanism("the gradient"):
        xs, g = x.clone().requires_grad_(), torch.randn(2, 3, D, generator=generator)
        y = run(xs)
        if not y.requires_grad:
            judge.fail(
                "No gradient passes your SwiGLU. Something cuts it: `.detach()`, "
                "`.data`, `torch.tensor(...)` or `torch.no_grad()`."
            )
        (found,) = torch.autograd.grad(y, xs, g)

        def gradient(function) -> Tensor:
            t = x.clone().requires_grad_()
            return torch.autograd.grad(function(t), t, g)[0]

        judge.compare(
            found,
            gradient(right),
            [
                (
                    "The gate passes no gradient: it was cut off the graph.",
                    gradient(lambda t: down(F.silu(gate(t)).detach() * up(t))),
                ),
                (
                    "`up` passes no gradient: it was cut off the graph.",
                    gradient(lambda t: down(F.silu(gate(t)) * up(t).detach())),
                ),
            ],
            1e-3,
            "The output is right and its gradient is not.",
            x=x,
        )
    with judge.mechanism("the type of the output"), torch.no_grad():
        for dtype in (torch.bfloat16, torch.float64):
            y = run(x.to(dtype))
            name, got = (str(t).removeprefix("torch.") for t in (dtype, y.dtype))
            if y.dtype != dtype:
                judge.fail(
                    f"The input is {name}, and your output is {got}.",
                    [("expected", name), ("yours", got)],
                )


# The exercises of chapters 3 and 10 ---------------------------------------------------


@judged("fold")
def fold(judge: Judge, answer):
    """Judge `fold(up, down)`: two linear layers in one, with or without biases.

    Args:
        answer: a function of two `nn.Linear` that returns one.
    """
    answers.wants(judge, answer, "fold(up, down)", classes=False)
    generator = torch.Generator().manual_seed(52)
    z = torch.randn(5, 8, generator=generator)
    for first, second in itertools.product((False, True), repeat=2):
        up, down = nn.Linear(8, 12, bias=first), nn.Linear(12, 6, bias=second)
        case = (
            f"{'a' if first else 'no'} bias in up, {'a' if second else 'none'} in down"
        )
        before = [p.detach().clone() for m in (up, down) for p in m.parameters()]
        with judge.mechanism(case):
            one = answers.invoke(judge, answer, "fold(up, down)", up=up, down=down)
            if any(
                not torch.equal(p, old)
                for p, old in zip(
                    [p for m in (up, down) for p in m.parameters()], before
                )
            ):
                judge.fail("The given layers were changed; make a new one.")
            if not isinstance(one, nn.Linear):
                kind = type(one).__name__
                judge.fail(
                    f"One `nn.Linear` is wanted, and a {kind} came."
                    + (
                        " Two layers in a row are what you were given."
                        if kind == "Sequential"
                        else ""
                    )
                )
            if tuple(one.weight.shape) != (6, 8):
                judge.fail(
                    "The folded weight has the wrong shape: `down.weight @ up.weight`, "
                    "as `nn.Linear` multiplies by the transpose.",
                    [("expected", "(6, 8)"), ("yours", str(tuple(one.weight.shape)))],
                )
            with torch.no_grad():
                y = judge.tensor(judge.call(one, z), (5, 6), what="the folded layer")
                zero = torch.zeros(6)
                bend = up.bias if first else torch.zeros(12)
                last = down.bias if second else zero
                middle = down.weight @ bend
                product = z @ up.weight.T @ down.weight.T
                mistakes = [
                    (
                        "The bias of `up` is forgotten; it has to pass through `down`: "
                        "`down.weight @ up.bias`.",
                        product + last,
                    ),
                    ("The bias of `down` is forgotten.", product + middle),
                    (
                        "Both biases are forgotten.",
                        product if first and second else None,
                    ),
                    (
                        "The folded layer's own fresh bias is left in it: set it to "
                        "zero, or make the layer with `bias=False`.",
                        product + one.bias if one.bias is not None else None,
                    ),
                    (
                        "The folded layer's own fresh weight is left in it.",
                        z @ one.weight.T + middle + last
                        if not close(z @ one.weight.T, product)
                        else None,
                    ),
                ]
                judge.compare(y, down(up(z)), mistakes, z=z)


@judged("from_fused")
def from_fused(judge: Judge, answer):
    """Judge `from_fused(gate_up, down)`: a `SwiGLU` with weights of a checkpoint.

    Args:
        answer: a function of matrices (2F, D), the gate's rows first, and (D, F).
    """
    signature = "from_fused(gate_up, down)"
    answers.wants(judge, answer, signature, classes=False)
    generator = torch.Generator().manual_seed(53)
    gate_up = torch.randn(12, D, generator=generator)
    down = torch.randn(D, 6, generator=generator)
    z = torch.randn(5, D, generator=generator)
    a, b = (z @ gate_up.T).chunk(2, -1)
    odd, even = z @ gate_up[::2].T, z @ gate_up[1::2].T
    with judge.mechanism("the weights"):
        mlp = answers.invoke(judge, answer, signature, gate_up=gate_up, down=down)
        if not callable(mlp):
            judge.fail("A `SwiGLU` is wanted.")
        y = judge.tensor(judge.call(mlp, z), z.shape, what="the module")
        judge.compare(
            y,
            (F.silu(a) * b) @ down.T,
            [
                (
                    "Gate and up are swapped: the gate's rows come first.",
                    (F.silu(b) * a) @ down.T,
                ),
                (
                    "The rows are read as alternating; here the first half is the "
                    "gate.",
                    (F.silu(odd) * even) @ down.T,
                ),
                (
                    "The rows are read as alternating, and up as first.",
                    (F.silu(even) * odd) @ down.T,
                ),
                ("The gate's rows are used for both.", (F.silu(a) * a) @ down.T),
            ],
            fallback="Are all three weights copied?",
            z=z,
        )
    with judge.mechanism("a copy"), torch.no_grad():
        before = gate_up.clone(), down.clone()
        for parameter in mlp.parameters():
            parameter.add_(1.0)
        if not (torch.equal(gate_up, before[0]) and torch.equal(down, before[1])):
            judge.fail(
                "The module shares memory with the given matrices: training it would "
                "change them. Copy, `parameter.copy_(...)` under `torch.no_grad()`."
            )
    with judge.mechanism("trainable"):
        if not all(p.requires_grad for p in mlp.parameters()):
            judge.fail("The module's weights do not ask for a gradient.")


@judged("way_back")
def way_back(judge: Judge, answer):
    """Judge `way_back(a, b, grad_h)`: the gradients of h = SiLU(a) b for a and b.

    Args:
        answer: a function of three tensors of one shape that returns two, made
            without autograd.
    """
    signature = "way_back(a, b, grad_h)"
    answers.wants(judge, answer, signature, classes=False)
    generator = torch.Generator().manual_seed(54)
    a, b, g = 2 * torch.randn(3, 8, generator=generator, dtype=torch.float64)
    leaf_a, leaf_b = a.clone().requires_grad_(), b.clone().requires_grad_()
    right = torch.autograd.grad(F.silu(leaf_a) * leaf_b, (leaf_a, leaf_b), g)
    found = answers.invoke(judge, answer, signature, a=a, b=b, grad_h=g)
    with judge.mechanism("two gradients"):
        if not isinstance(found, (tuple, list)) or len(found) != 2:
            judge.fail("Two tensors are wanted, the gradients for a and for b.")
        for value in found:
            judge.tensor(value, a.shape, what="your function")
    s = a.sigmoid()
    given = {"a": a, "b": b, "grad_h": g}
    with judge.mechanism("the gradient for b"):
        judge.compare(
            found[1],
            right[1],
            [
                (
                    "The two are returned in the wrong order: first for a, then for b.",
                    right[0],
                ),
                ("`grad_h` is missing in it.", F.silu(a)),
                ("b was multiplied by SiLU(a), and this is a.", a * g),
                ("b was multiplied by SiLU(a), and this is its sigmoid.", s * g),
                ("SiLU(a) is missing: it is what b was multiplied by.", b * g),
            ],
            **given,
        )
    with judge.mechanism("the gradient for a"):
        slope = s * (1 + a * (1 - s))
        judge.compare(
            found[0],
            right[0],
            [
                ("SiLU is a product, too: its sigmoid also depends on a.", s * b * g),
                ("That is the slope of the sigmoid, not of SiLU.", s * (1 - s) * b * g),
                (
                    "That is half of the product rule: a times the sigmoid's slope. "
                    "The other half is the sigmoid itself.",
                    a * s * (1 - s) * b * g,
                ),
                ("`b` is missing: it is what SiLU(a) was multiplied by.", slope * g),
                ("`grad_h` is missing.", slope * b),
                (
                    "That is SiLU(a) times b; the slope of SiLU is wanted.",
                    F.silu(a) * b * g,
                ),
            ],
            **given,
        )
