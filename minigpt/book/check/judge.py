"""The judge: tries one mechanism after the other, and stops at the first that fails."""

import contextlib
import dis
import inspect
import io
import linecache
import math
import random
import re
import sysconfig
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator
from functools import wraps
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from minigpt.book.check.result import NOT_WRITTEN, Result

__all__ = ["Judge", "Verdict", "close", "judged", "number", "numbers"]

Mistake = tuple[str, "Tensor | Callable[[], Tensor] | None"]


class Verdict(Exception):
    """Ends a check. Args: mechanism, sentence, rows."""

    def __init__(self, mechanism: str, sentence: str, rows: Iterable = ()):
        super().__init__(sentence)
        self.mechanism, self.sentence, self.rows = mechanism, sentence, tuple(rows)


def judged(part: str) -> Callable:
    """Make a check of `function(judge, answer)`: it takes the answer alone.

    The check runs on the CPU with gradients on and with its own random numbers, catches
    what is printed, and puts everything back afterwards.
    """

    def decorate(function: Callable[["Judge", object], None]) -> Callable:
        @wraps(function)
        def check(answer) -> Result:
            judge = Judge(part)
            with _apart() as printed:
                try:
                    function(judge, answer)
                    verdict = None
                except Verdict as found:
                    verdict = found
                except Exception as error:  # a hole of ours is still no traceback
                    verdict = Verdict(
                        "the check itself",
                        "The check could not judge this answer. It says nothing about "
                        f"your code. What stopped it: {_first_line(error)}",
                    )
            notes = _printed(printed.getvalue())
            if verdict is not None:
                return Result(
                    part,
                    False,
                    verdict.mechanism,
                    verdict.sentence,
                    verdict.rows,
                    () if verdict.mechanism == NOT_WRITTEN else (*judge.notes, *notes),
                )
            sentence = "Tried: " + "; ".join(judge.held) + "."
            return Result(part, True, "all", sentence, (), (*judge.notes, *notes))

        parameter = inspect.Parameter("answer", inspect.Parameter.POSITIONAL_ONLY)
        check.__signature__ = inspect.Signature([parameter], return_annotation=Result)
        return check

    return decorate


@contextlib.contextmanager
def _apart() -> Iterator[io.StringIO]:
    """The reader's session is left as it was; what is printed comes back as text."""
    states = torch.get_rng_state(), random.getstate(), np.random.get_state()
    dtype, printed = torch.get_default_dtype(), io.StringIO()
    try:
        with (
            torch.inference_mode(False),
            torch.enable_grad(),
            torch.device("cpu"),
            warnings.catch_warnings(),
            contextlib.redirect_stdout(printed),
            contextlib.redirect_stderr(io.StringIO()),
        ):
            warnings.simplefilter("ignore")
            torch.set_default_dtype(torch.float32)
            torch.manual_seed(0)
            random.seed(0)
            np.random.seed(0)
            yield printed
    finally:
        torch.set_default_dtype(dtype)
        torch.set_rng_state(states[0])
        random.setstate(states[1])
        np.random.set_state(states[2])


def _printed(text: str) -> tuple[str, ...]:
    lines = [line for line in text.splitlines() if line.strip()]
    if not lines:
        return ()
    first = _scrub(lines[0].strip())[:60].replace("`", "'")
    count = "1 line" if len(lines) == 1 else f"{len(lines)} lines"
    return (f"While it was tried, your code printed {count}, the first: `{first}`",)


class Judge:
    """What a check works with: it calls the reader's code and compares.

    Args:
        part: what is judged.
    """

    def __init__(self, part: str):
        self.part, self.now = part, "the answer"
        self.held: list[str] = []
        self.notes: list[str] = []

    @contextlib.contextmanager
    def mechanism(self, name: str) -> Iterator[None]:
        """All that fails inside fails under this name."""
        self.now = name
        yield
        if name not in self.held:
            self.held.append(name)

    def fail(self, sentence: str, rows: Iterable = (), mechanism: str | None = None):
        """End the check. Raises: Verdict."""
        raise Verdict(mechanism or self.now, sentence, rows)

    def not_written(self):
        """End the check calmly. Raises: Verdict."""
        raise Verdict(
            NOT_WRITTEN,
            "Replace `raise NotImplementedError` by your code, run that cell, then "
            "this one.",
        )

    def call(self, function: Callable, *args, given: str | None = None, **kwargs):
        """Call the reader's code; what goes wrong there ends the check in words."""
        inputs = [v for v in (*args, *kwargs.values()) if isinstance(v, Tensor)]
        before = [value.detach().clone() for value in inputs]
        given = _describe(args, kwargs) if given is None else given
        try:
            value = function(*args, **kwargs)
        except Verdict:
            raise
        except (Exception, SystemExit) as error:
            self._error(error, given)
        if value is None and _is_stub(function):
            self.not_written()
        for number_, (now, old) in enumerate(zip(inputs, before)):
            if not torch.equal(now.detach(), old):
                self._changed(number_, now, old)
        return value

    def _changed(self, number_: int, now: Tensor, old: Tensor):
        same = now.shape == old.shape
        rows = [
            ("before", numbers(_first_row(old))),
            ("after", numbers(_first_row(now.detach()))),
        ]
        self.fail(
            "Your code changes the tensor that it was given, and the caller still "
            "needs it. Something writes in place: `x += ...`, `x[...] = ...` or a "
            "method that ends in `_`. Write into a new tensor: `x = x + ...`.",
            rows if same else (),
            "the input is left alone",
        )

    def _error(self, error: BaseException, given: str):
        """Say what went wrong in the reader's code, in which line, with what input."""
        frames = traceback.extract_tb(error.__traceback__)
        theirs = [frame for frame in frames if not _is_library(frame.filename)]
        if isinstance(error, NotImplementedError):
            if frames and frames[-1].name == "_forward_unimplemented":
                self.fail(
                    "Your class has no method `forward`. Is it spelled so, and "
                    "indented so that it stands inside the class?",
                )
            if theirs and theirs[-1] is frames[-1]:
                self.not_written()
        rows = [("error", _first_line(error))]
        if theirs:
            frame = theirs[-1]
            line = (
                frame.line or linecache.getline(frame.filename, frame.lineno or 0)
            ).strip()
            where = f"line {frame.lineno}"
            rows.append((where, line or f"of {frame.name}"))
        if given:
            rows.append(("called with", given))
        start = "Your code stops with an error" if theirs else "The call fails"
        hint = _hint(error)
        self.fail(f"{start}. {hint}" if hint else f"{start}.", rows)

    def tensor(
        self,
        value,
        shape: tuple[int, ...],
        dtype: torch.dtype | None = None,
        what: str = "your code",
    ) -> Tensor:
        """Return the value if it is a tensor as expected; else end the check."""
        if value is None:
            self.fail(f"{_cap(what)} returns None. Is a `return` missing?")
        if isinstance(value, (tuple, list)):
            kind = "tuple" if isinstance(value, tuple) else "list"
            self.fail(
                f"{_cap(what)} returns a {kind} of {len(value)}, and one tensor is "
                "wanted. Is there a comma too many after `return`, or a second result?"
            )
        if isinstance(value, type) or (
            callable(value) and not isinstance(value, Tensor)
        ):
            self.fail(
                f"{_cap(what)} returns something that is still to be called, "
                f"{_kind(value)}, and a tensor is wanted."
            )
        if not isinstance(value, Tensor):
            self.fail(
                f"{_cap(what)} returns {_kind(value)}, and a torch tensor is wanted: "
                "stay in torch, without `.item()`, `.numpy()` or `float()`."
            )
        if tuple(value.shape) != tuple(shape):
            self.fail(
                f"{_cap(what)} returns the shape {_shape(value.shape)}, and "
                f"{_shape(shape)} is wanted.{_shape_hint(value.shape, shape)}",
            )
        if dtype is not None and value.dtype != dtype:
            self.fail(
                f"{_cap(what)} returns {_dtype(value.dtype)}, and {_dtype(dtype)} is "
                "wanted."
            )
        return value

    def compare(
        self,
        yours: Tensor,
        expected: Tensor,
        mistakes: Iterable[Mistake] = (),
        tolerance: float = 1e-4,
        fallback: str = "",
        **given,
    ):
        """Compare with the right output, then with the outputs of known mistakes.

        Args:
            yours: the reader's output.
            expected: the right output, of the same shape.
            mistakes: sentence, and the output it leads to (or a function of nothing
                that returns it). `{yours}` and `{expected}` in a sentence become the
                first numbers that differ. A mistake whose output is right by accident
                is skipped.
            tolerance: relative to the size of the output.
            fallback: said when no mistake fits; the relation is described anyway.
            given: the input, shown by name.

        Raises:
            Verdict: if they differ.
        """
        yours, expected = yours.detach().double(), expected.detach().double()
        if close(yours, expected, tolerance):
            return
        at = _first_difference(yours, expected, tolerance)
        given = {**given, "expected": expected, "yours": yours}
        rows = [
            (_label(name, v, expected.shape, at), _shown(v, expected.shape, at))
            for name, v in given.items()
        ]
        rows = [(label, text) for label, text in rows if text]
        values = {"yours": number(yours[at]), "expected": number(expected[at])}
        best, nearest = None, math.inf
        for sentence, wrong in mistakes:
            output = _evaluate(wrong)
            if output is None or output.shape != yours.shape:
                continue
            output = output.detach().double()
            if close(output, expected, tolerance):
                continue
            if close(yours, output, max(tolerance, 1e-4), equal_nan=True):
                gap = (yours - output).abs().nan_to_num(0.0, 0.0).max().item()
                if gap < nearest:
                    best, nearest = sentence, gap
        if best is not None:
            self.fail(_fill(best, values), rows)
        parts = [_fill(fallback, values), _relation(yours, expected, tolerance)]
        if fallback and not yours.isfinite().all():
            parts = parts[:1]  # it says what the general remark would guess at
        self.fail(" ".join(part for part in parts if part), rows)


def _evaluate(wrong) -> Tensor | None:
    try:
        return wrong() if callable(wrong) else wrong
    except (RuntimeError, IndexError, ValueError):  # a mistake that has no output here
        return None


def _fill(sentence: str, values: dict[str, str]) -> str:
    for name, value in values.items():
        sentence = sentence.replace("{" + name + "}", value)
    return sentence


def close(
    a: Tensor, b: Tensor, tolerance: float = 1e-4, equal_nan: bool = False
) -> bool:
    """Whether two tensors of one shape agree, relative to the size of the second."""
    if a.shape != b.shape:
        return False
    a, b = a.detach().double(), b.detach().double()
    finite = b[b.isfinite()].abs()
    size = max(finite.max().item() if finite.numel() else 0.0, 1e-6)
    return torch.allclose(a, b, rtol=0, atol=tolerance * size, equal_nan=equal_nan)


def _relation(yours: Tensor, expected: Tensor, tolerance: float) -> str:
    """What can be said of two outputs that differ when no mistake is recognised."""
    bad = ~yours.isfinite() & expected.isfinite()
    if bad.any():
        what = "nan" if yours[bad].isnan().any() else "infinite"
        count = (
            "every place" if bad.all() else f"{int(bad.sum())} of {bad.numel()} places"
        )
        return (
            f"Your output is {what} in {count}. Look for a division by zero, the root "
            "or logarithm of a number below zero, or a power that overflows."
        )
    if not yours.any():
        return "Your output is zero everywhere."
    if close(yours, -expected, tolerance):
        return "Your output has the wrong sign, and is right otherwise."
    solid = expected.abs() > 0.05 * expected[expected.isfinite()].abs().max()
    ratio = (yours / expected)[solid]
    if ratio.numel() > 1 and (ratio - ratio[0]).abs().max() < 1e-3 * ratio[0].abs():
        return f"Every number is {number(ratio[0])} times what it should be."
    gap = (yours - expected).flatten()
    if gap.numel() > 1 and (gap - gap[0]).abs().max() < 1e-4 * max(1, gap[0].abs()):
        return f"Every number is off by the same amount, {number(gap[0])}."
    if close(
        yours.flatten().sort().values, expected.flatten().sort().values, tolerance
    ):
        return "The numbers are right and stand in the wrong places."
    size = max(expected[expected.isfinite()].abs().max().item(), 1e-6)
    wrong = (yours - expected).abs() > tolerance * size
    if yours.ndim > 1:
        rows = wrong.reshape(-1, yours.shape[-1]).any(-1)
        if rows.any() and not rows.all():
            return (
                f"{int(rows.sum())} of {rows.numel()} rows are wrong, the others right."
            )
    return f"{int(wrong.sum())} of {wrong.numel()} numbers are wrong."


def _first_difference(yours: Tensor, expected: Tensor, tolerance: float) -> tuple:
    finite = expected[expected.isfinite()].abs()
    size = max(finite.max().item() if finite.numel() else 0.0, 1e-6)
    same = ((yours - expected).abs() <= tolerance * size) | (yours == expected)
    place = (~same).flatten().nonzero()
    flat = int(place[0]) if len(place) else 0
    return tuple(int(i) for i in np.unravel_index(flat, expected.shape or (1,)))[
        : expected.ndim
    ]


def _label(name: str, value, shape: tuple, at: tuple) -> str:
    """The name, and which row of it is shown if it has several."""
    many = math.prod(shape[:-1]) > 1 and isinstance(value, Tensor)
    if not many or value.ndim != len(shape) or value.shape[:-1] != shape[:-1]:
        return name
    return f"{name}[{', '.join(map(str, at[:-1]))}]"


def _shown(value, shape: tuple, at: tuple) -> str:
    """A short text of an input or output, at the row where the outputs differ."""
    if isinstance(value, Tensor):
        if value.ndim == 0:
            return number(value)
        row = value
        while row.ndim > 1:
            depth = value.ndim - row.ndim
            same = value.ndim == len(shape) and value.shape[depth] == shape[depth]
            row = row[at[depth] if same else 0]
        return numbers(row)
    return str(value)


def _first_row(value: Tensor) -> Tensor:
    return value.reshape(-1, value.shape[-1])[0] if value.ndim else value.reshape(1)


def number(value) -> str:
    """Four digits, for reading."""
    return f"{float(value) + 0.0:.4g}"  # adding zero makes -0 a plain 0


def numbers(row: Tensor, most: int = 6) -> str:
    """The first numbers of a row, in one line."""
    texts = [number(v) for v in row.flatten()[:most].tolist()]
    return "  ".join(texts) + ("  ..." if row.numel() > most else "")


def _describe(args: tuple, kwargs: dict) -> str:
    parts = [_brief(a) for a in args] + [f"{k}={_brief(v)}" for k, v in kwargs.items()]
    return ", ".join(parts)


def _brief(value) -> str:
    if isinstance(value, Tensor):
        return f"a {_dtype(value.dtype)} tensor {_shape(value.shape)}"
    if value is None or isinstance(value, (int, float, str)):
        return repr(value)
    return _kind(value)


def _kind(value) -> str:
    if isinstance(value, type):
        return f"the class {value.__name__}"
    if isinstance(value, np.ndarray):
        return "a NumPy array"
    if inspect.isroutine(value):
        return "a function"
    name = type(value).__name__
    return f"{'an' if name[:1] in 'aeiouAEIOU' else 'a'} {name}"


def _cap(text: str) -> str:
    return text[:1].upper() + text[1:]


def _shape(shape) -> str:
    return str(tuple(shape)).replace(",)", ",)")


def _dtype(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _shape_hint(found, wanted) -> str:
    found, wanted = tuple(found), tuple(wanted)
    if found == wanted[:-1] or found == (*wanted[:-1], 1):
        return (
            " Each row came back as one number. Is a mean or sum returned itself, or "
            "was `@` written for `*`?"
        )
    if sorted(found) == sorted(wanted):
        return (
            " The same sizes stand in another order: a transpose too many or too few."
        )
    if found == ():
        return " Everything was reduced to one number: give the reduction a `dim`."
    if len(found) > len(wanted):
        return " There is a dimension too many."
    return ""


def _is_stub(function) -> bool:
    """Whether a function has a body of docstring, `pass` or `...` only."""
    if isinstance(function, nn.Module):
        function = type(function).forward
    code = getattr(function, "__code__", None)
    if code is None:
        return False
    empty = {
        "RESUME",
        "NOP",
        "LOAD_CONST",
        "RETURN_VALUE",
        "RETURN_CONST",
        "COPY_FREE_VARS",
    }
    return all(step.opname in empty for step in dis.get_instructions(code))


_LIBRARIES = [
    str(Path(torch.__file__).parent),
    sysconfig.get_path("stdlib"),
    sysconfig.get_path("purelib"),
    str(Path(__file__).parents[2]),  # minigpt itself
]


def _is_library(filename: str) -> bool:
    return filename.startswith("<frozen") or filename.startswith(tuple(_LIBRARIES))


def _scrub(text: str) -> str:
    return re.sub(r" at 0x[0-9a-fA-F]+|0x[0-9a-fA-F]+", "", text)


def _first_line(error: BaseException) -> str:
    text = str(error).strip().splitlines()
    line = _scrub(text[0]) if text else ""
    line = line if len(line) <= 150 else line[:147] + "..."
    return f"{type(error).__name__}: {line}" if line else type(error).__name__


_HINTS: list[tuple[str, str]] = [
    (
        r"before Module\.__init__|no attribute '_(parameters|modules|buffers|"
        r"forward_hooks|backward_hooks|forward_pre_hooks|global_)",
        "`super().__init__()` has to be the first line of your `__init__`: it prepares "
        "the places where parameters and submodules are kept.",
    ),
    (
        r"takes (\d+) positional arguments? but (\d+) (was|were) given",
        "A method or function got more arguments than it takes. Is `self` missing in "
        "its first line, or is an argument of the exercise's signature missing?",
    ),
    (
        r"missing \d+ required (positional|keyword-only) argument",
        "A call lacks an argument that the called function has no default for.",
    ),
    (r"unexpected keyword argument", "The call names an argument that is not taken."),
    (
        r"name '(\w+)' is not defined",
        "That name is not known where the line runs. Is an import missing, the cell "
        "that defines it not run, or `self.` forgotten?",
    ),
    (
        r"has no attribute '(\w+)'",
        "Is that attribute spelled as in `__init__`, and set there with `self.`?",
    ),
    (
        r"The size of tensor a \(\d+\) must match the size of tensor b|"
        r"shape '.*' is invalid|not broadcastable|Expected size for first two",
        "Two shapes do not fit: print both. (A mean or sum of each row has to be kept "
        "as a column, `keepdim=True`, to fit the rows again.)",
    ),
    (
        r"shapes cannot be multiplied|size mismatch|must match the size|"
        r"batch1 must be a 3D|expected .* to have .* dimensions?",
        "A matrix product's inner sizes do not fit. Write both shapes beside it: does "
        "one side want a transpose?",
    ),
    (
        r"leaf Variable that requires grad|is a view .* being used in an in-place|"
        r"modified by an inplace operation|is a view and is being modified inplace",
        "Something writes in place into a tensor whose gradient is wanted: `+=`, "
        "`x[...] = ...` or a method that ends in `_`.",
    ),
    (
        r"view size is not compatible",
        "The input is not contiguous in memory, as after a transpose. `reshape` copes "
        "with that, `view` does not.",
    ),
    (
        r"must be Tensor, not (float|int)",
        "A torch function got a plain number. For numbers use `math.sqrt` or `** 0.5`.",
    ),
    (
        r"must be real number, not Tensor|only (one element|integer) tensors|"
        r"only one element tensors|a Tensor with \d+ elements cannot be converted",
        "A tensor of many numbers was used as one number. Use torch's functions, "
        "`torch.sqrt` for `math.sqrt` say.",
    ),
    (
        r"Boolean value of Tensor",
        "`if` and `max` cannot decide for a whole tensor: use `torch.where`, a mask, "
        "or torch's own functions.",
    ),
    (
        r"expected scalar type|to have the same dtype|expected m1 and m2|"
        r"must have the same dtype|mixed dtype",
        "Two types of numbers meet, float16 and float32 say. Bring both to one type "
        "first.",
    ),
    (
        r"[Ii]nput dtype (must|should) be either|not implemented for '(Int|Long|Bool)'|"
        r"Only Tensors of floating point",
        "Whole numbers came where fractions are needed.",
    ),
    (
        r"Can't call numpy\(\)|can't convert .* to numpy|unsupported ScalarType|numpy",
        "Stay in torch: NumPy knows neither gradients nor bfloat16.",
    ),
    (
        r"Dimension out of range",
        "That many dimensions are not always there: count from the end, `dim=-1`.",
    ),
    (
        r"probability tensor contains",
        "What was drawn from are no probabilities: nan, infinite or below zero. Was "
        "something divided by 0, or every token of a row taken away?",
    ),
    (
        r"index k is out of range|selected index k out of range",
        "`topk` was asked for more numbers than there are: take at most `min(k, V)`.",
    ),
    (
        r"NoneType",
        "None came where a value is needed. Did a function lack its `return`, or does "
        "None mean that something is off? Ask `is not None` first.",
    ),
    (r"maximum recursion", "The function calls itself without end."),
    (
        r"object is not callable",
        "Something that is no function is called with `()`. Tensors and parameters are "
        "multiplied with `*`.",
    ),
    (r"__init__\(\) should return None", "`__init__` returns nothing: no `return`."),
    (
        r"not enough values to unpack|too many values to unpack",
        "A shape is unpacked into a fixed number of names, and the input has another "
        "number of dimensions.",
    ),
]


def _hint(error: BaseException) -> str:
    text = f"{type(error).__name__}: {error}"
    return next((hint for pattern, hint in _HINTS if re.search(pattern, text)), "")
