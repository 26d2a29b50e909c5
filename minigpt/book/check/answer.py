"""The reader's answer, whatever its names: arguments placed, weights found."""

import functools
import inspect
from collections.abc import Callable

import torch
from torch import Tensor, nn

from minigpt.book.check.judge import Judge, _kind

__all__ = ["ALIASES", "MISSING", "build", "by_name", "invoke", "is_class", "wants"]

MISSING = object()  # an argument that is left out where the reader takes none

# Other names under which an argument or a parameter of a part goes.
ALIASES = {
    "x": ("x", "input", "inputs", "inp", "hidden_states", "h", "t"),
    "size": (
        "size",
        "dim",
        "d_model",
        "d",
        "width",
        "features",
        "normalized_shape",
        "n_embd",
        "hidden_size",
        "ndim",
        "n",
    ),
    "eps": ("eps", "epsilon", "e", "variance_epsilon", "layer_norm_eps"),
    "weight": ("weight", "gain", "gamma", "g", "w", "scale", "a_2", "alpha"),
    "bias": ("bias", "shift", "beta", "b", "b_2", "offset"),
    "d_model": (
        "d_model",
        "dim",
        "n_embd",
        "embed_dim",
        "d",
        "size",
        "hidden_size",
        "c",
        "width",
    ),
    "d_ff": (
        "d_ff",
        "hidden_dim",
        "hidden",
        "ffn_hidden",
        "intermediate_size",
        "hidden_size",
        "inner",
        "f",
    ),
    "n_heads": ("n_heads", "num_heads", "n_head", "heads", "nhead", "h"),
    "branch": ("branch", "f", "fn", "sublayer", "layer", "module", "block", "net"),
    "attn": ("attn", "attention", "self_attn", "sa", "mha", "attention_layer"),
    "mlp": ("mlp", "ffn", "ffwd", "feed_forward", "ff", "feedforward"),
    "attn_norm": ("attn_norm", "norm1", "ln1", "ln_1", "norm_attn", "attention_norm"),
    "mlp_norm": ("mlp_norm", "norm2", "ln2", "ln_2", "norm_mlp", "ffn_norm"),
    "p": ("p", "prob", "rate", "drop", "drop_prob", "dropout", "dropout_p"),
    "training": ("training", "train", "is_training", "train_mode"),
    "gate": ("gate", "w_gate", "gate_proj", "w1", "wg", "gate_weight"),
    "up": ("up", "w_up", "up_proj", "w3", "wu", "up_weight"),
    "down": ("down", "w_down", "down_proj", "w2", "wd", "down_weight"),
    "q": ("q", "query", "queries"),
    "k": ("k", "key", "keys", "top_k"),
    "v": ("v", "value", "values"),
    "p_top": ("p", "top_p"),
    "logits": ("logits", "x", "scores", "z"),
    "temperature": ("temperature", "temp", "t", "tau"),
    "top_k": ("top_k", "k", "topk"),
    "top_p": ("top_p", "p", "topp"),
    "generator": ("generator", "gen", "g", "rng"),
    "context": (
        "context",
        "block_size",
        "max_len",
        "max_seq_len",
        "seq_len",
        "context_length",
    ),
}


def is_class(answer) -> bool:
    """Whether the answer makes objects: a class, or a partial of one."""
    while isinstance(answer, functools.partial):
        answer = answer.func
    return isinstance(answer, type)


def wants(
    judge: Judge, answer, signature: str, classes: bool = True, plain: bool = True
):
    """Refuse what is neither a function nor a class as the signature says.

    Args:
        judge: ends the check.
        answer: what the reader gave.
        signature: as the exercise has it.
        classes: whether a class will do.
        plain: whether a function will do.
    """
    given = "what the check is given"
    if isinstance(answer, nn.Module) or not callable(answer):
        what = "an object that is already made" if callable(answer) else _kind(answer)
        kind = "class" if not plain else "function or class" if classes else "function"
        judge.fail(
            f"The check got {what}. Give it the {kind} itself, without calling it: no "
            "brackets behind the name.",
            [("signature", signature)],
            given,
        )
    if is_class(answer) and not classes:
        judge.fail(
            "The check got a class, and the exercise asks for a function.",
            [("signature", signature)],
            given,
        )
    if not is_class(answer) and not plain:
        judge.fail(
            "The check got a function, and the exercise asks for a class.",
            [("signature", signature)],
            given,
        )


def _parameters(function) -> list[inspect.Parameter] | None:
    try:
        return list(inspect.signature(function).parameters.values())
    except (ValueError, TypeError):
        return None


def accepts(function, name: str) -> bool:
    """Whether a function or class has a place for an argument, by any of its names."""
    parameters = _parameters(function)
    if parameters is None:
        return True
    kinds = {p.kind for p in parameters}
    if inspect.Parameter.VAR_KEYWORD in kinds:
        return True
    names = {p.name.lower() for p in parameters}
    return bool(names & set(ALIASES.get(name, (name,))))


def place(judge: Judge, function, signature: str, values: dict) -> tuple[list, dict]:
    """Match arguments with the reader's parameters: by name, else by place.

    Args:
        judge: ends the check where the reader has no place for an argument.
        function: the reader's.
        signature: as the exercise has it, for the message.
        values: by documented name, in documented order; wrap in a tuple
            `(MISSING, value)` what may be left out.
    """
    parameters = _parameters(function)
    optional = {
        n for n, v in values.items() if isinstance(v, tuple) and v[:1] == (MISSING,)
    }
    values = {n: v[1] if n in optional else v for n, v in values.items()}
    if parameters is None:
        return list(values.values()), {}
    kinds = {p.kind for p in parameters}
    if inspect.Parameter.VAR_POSITIONAL in kinds and len(parameters) <= 2:
        return [v for n, v in values.items() if n not in optional], {}
    open_ = [
        p
        for p in parameters
        if p.kind
        not in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    ]
    found: dict[str, object] = {}
    left = dict(values)
    for exact in (True, False):
        for name in list(left):
            names = (name,) if exact else ALIASES.get(name, (name,))
            hit = next((p for p in open_ if p.name.lower() in names), None)
            if hit is not None:
                found[hit.name] = left.pop(name)
                open_.remove(hit)
    for name in list(left):  # by place: required ones first
        required = [p for p in open_ if p.default is inspect.Parameter.empty]
        free = required or ([] if name in optional else open_)
        if free:
            found[free[0].name] = left.pop(name)
            open_.remove(free[0])
    required = [p.name for p in open_ if p.default is inspect.Parameter.empty]
    for name in list(required):
        if name.lower() in ALIASES["context"]:
            found[name] = 16
            required.remove(name)
    lost = [n for n in left if n not in optional]
    if lost or required:
        yours = f"{_name(function)}({', '.join(str(p) for p in parameters)})"
        if lost:
            text = (
                f"Your code has no place for `{lost[0]}`, and the check needs to set "
                "it."
            )
        else:
            text = (
                f"Your code wants `{required[0]}`, which the exercise's signature "
                "lacks."
            )
        judge.fail(text, [("wanted", signature), ("yours", yours)], "the signature")
    positional, keywords = [], {}
    by_place = True
    for p in parameters:
        if p.name not in found:
            by_place = by_place and p.kind is not inspect.Parameter.POSITIONAL_ONLY
            by_place = False
            continue
        if p.kind is inspect.Parameter.POSITIONAL_ONLY or (
            by_place and p.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD
        ):
            positional.append(found[p.name])
        else:
            keywords[p.name] = found[p.name]
    return positional, keywords


def _name(function) -> str:
    while isinstance(function, functools.partial):
        function = function.func
    name = getattr(function, "__name__", type(function).__name__)
    return "lambda" if name == "<lambda>" else name


def invoke(judge: Judge, function: Callable, signature: str, **values):
    """Call the reader's function with arguments by documented name."""
    positional, keywords = place(judge, function, signature, values)
    given = ", ".join(
        f"{name}: {_text(value[1] if isinstance(value, tuple) else value)}"
        for name, value in values.items()
    )
    return judge.call(function, *positional, given=given, **keywords)


def _text(value) -> str:
    from minigpt.book.check.judge import _brief

    return _brief(value)


def build(judge: Judge, answer: type, signature: str, **values) -> nn.Module:
    """Make an object of the reader's class; refuse one that is no module."""
    own = answer
    while isinstance(own, functools.partial):
        own = own.func
    module_class = isinstance(own, type) and issubclass(own, nn.Module)
    if module_class and own.__init__ is nn.Module.__init__:
        judge.fail(
            "Your class has no `__init__`, so it cannot be given its arguments. Is it "
            "spelled with two underscores on both sides?",
            [("wanted", signature)],
            "the signature",
        )
    module = invoke(judge, answer, signature, **values)
    if not isinstance(module, nn.Module):
        judge.fail(
            "Your class is no `nn.Module`. Derive it, `class ...(nn.Module):`, so that "
            "a model finds its parameters.",
            (),
            "a module",
        )
    return module


def by_name(named: dict[str, Tensor], role: str) -> list[str]:
    """The names whose last part is the role or one of its aliases."""
    return [n for n in named if n.split(".")[-1].lower() in ALIASES[role]]


@torch.no_grad()
def assign(parameter: Tensor, value: Tensor):
    """Set a parameter to a value of as many numbers."""
    parameter.copy_(value.reshape(parameter.shape).to(parameter.dtype))


def plain_tensors(module: nn.Module) -> list[str]:
    """Names of attributes that are tensors and neither parameters nor buffers."""
    return [
        name
        for part in module.modules()
        for name, value in vars(part).items()
        if isinstance(value, Tensor)
    ]
