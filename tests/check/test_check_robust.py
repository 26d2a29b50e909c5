"""Whatever the reader gives or does, a check answers calmly and leaves no trace."""

import re
import sys

import pytest
import table
import torch
import torch.nn.functional as F
from mutants_norms import rms
from test_check_learner import typed
from torch import nn

from minigpt.book import check
from minigpt.book.check import norms
from minigpt.book.check.judge import Judge, close
from minigpt.book.check.result import Result

ALL = [getattr(check, name) for name in check.__all__ if name != "Result"]


def named(function):
    return function.__name__


# Not written yet ----------------------------------------------------------------------


def raises(*args, **kwargs):
    """A docstring."""
    raise NotImplementedError


def empty(*args, **kwargs):
    """A docstring."""


def dots(*args, **kwargs): ...


class InForward(nn.Module):
    def __init__(self, *args, **kwargs):
        super().__init__()

    def forward(self, x):
        raise NotImplementedError("write me")


class InInit(nn.Module):
    def __init__(self, *args, **kwargs):
        super().__init__()
        raise NotImplementedError


PLAIN = [check.highway, check.plus_one_norm, check.stochastic_depth]  # classes only


@pytest.mark.parametrize("judge", ALL, ids=named)
def test_not_written_yet(judge):
    stubs = [InForward, InInit] if judge in PLAIN else [raises, empty, dots]
    if named(judge) in ("rmsnorm", "layernorm", "residual", "dropout", "attention"):
        stubs += [InForward, InInit]
    for stub in stubs:
        result = judge(stub)
        assert not result.passed and not result
        assert result.mechanism == "not written", (stub, result)
        assert repr(result).splitlines()[0] == f"{result.part}: not written yet."
        assert "Error" not in repr(result).replace("NotImplementedError", "")


# What is given ------------------------------------------------------------------------

GIVEN = [
    (5, "an int"),
    (None, "a NoneType"),
    ("rms_norm", "a str"),
    (torch.ones(3), "a Tensor"),
    (nn.Linear(2, 2), "already made"),
]


@pytest.mark.parametrize("judge", ALL, ids=named)
@pytest.mark.parametrize("answer, word", GIVEN, ids=[word for _, word in GIVEN])
def test_neither_function_nor_class(judge, answer, word):
    result = judge(answer)
    assert not result.passed and result.mechanism == "what the check is given"
    assert word in result.sentence and "without calling it" in result.sentence


@pytest.mark.parametrize("judge", ALL, ids=named)
def test_any_callable_is_answered_in_words(judge):
    """A wrong kind, no argument, too many, another result: never an error of ours."""

    class Plain:
        def __init__(self, *args, **kwargs):
            pass

        def __call__(self, x):
            return x

    def recursive(*args, **kwargs):
        return recursive(*args, **kwargs)

    def leaves(*args, **kwargs):
        sys.exit(3)

    answers = [
        lambda: None,
        lambda x: x,
        lambda a, b, c, d, e, f, g, h: a,
        lambda *args, **kwargs: 3.0,
        lambda *args, **kwargs: "text",
        lambda *args, **kwargs: (torch.ones(1), torch.ones(1)),
        lambda *args, **kwargs: torch.full((2, 3, 4), torch.nan),
        lambda *args, **kwargs: torch.zeros(0),
        lambda *args, **kwargs: nn.Linear,
        lambda *args, **kwargs: 1 / 0,
        Plain,
        nn.Identity,
        nn.Linear,
        dict,
        print,
        torch.add,
        recursive,
        leaves,
    ]
    for answer in answers:
        result = judge(answer)
        assert isinstance(result, Result) and not result.passed
        assert result.mechanism != "the check itself", (answer, result)


def test_the_readers_error_is_shown_with_its_line_and_input():
    source = (
        "def rms_norm(x, weight, eps):\n    scale = x.pow(2).mean(-1, keepdim=True)\n  "
        "  return x / scale * undefined_name\n"
    )
    result = check.rmsnorm(typed(source, 99)["rms_norm"])
    rows = dict(result.rows)
    assert rows["line 3"] == "return x / scale * undefined_name"
    assert rows["error"] == "NameError: name 'undefined_name' is not defined"
    assert "x: a float32 tensor (2, 3, 4)" in rows["called with"]
    assert "Traceback" not in repr(result) and "import missing" in result.sentence


def test_an_error_of_ours_is_no_traceback(monkeypatch):
    monkeypatch.setattr(norms, "_rms", lambda *args: 1 / 0)
    result = check.rmsnorm(rms)
    assert not result.passed and result.mechanism == "the check itself"
    assert "nothing about your code" in result.sentence


def test_keyboard_interrupt_passes():
    def stop(*args):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        check.rmsnorm(stop)


# What is returned ---------------------------------------------------------------------

RETURNED = [
    (lambda x, weight, eps: [x].append(eps), "returns None"),
    (lambda x, weight, eps: (rms(x, weight, eps), 1), "a tuple of 2"),
    (lambda x, weight, eps: rms(x, weight, eps).numpy(), "a NumPy array"),
    (lambda x, weight, eps: 0.5, "a float"),
    (lambda x, weight, eps: nn.Identity(), "still to be called"),
    (lambda x, weight, eps: rms(x, weight, eps)[0], "shape (3, 4)"),
    (lambda x, weight, eps: rms(x, weight, eps).mT, "another order"),
    (lambda x, weight, eps: rms(x, weight, eps).sum(), "one number"),
    (lambda x, weight, eps: rms(x, weight, eps)[None], "dimension too many"),
    (lambda x, weight, eps: rms(x, weight, eps).double(), "fixed type"),
    (lambda x, weight, eps: rms(x, weight, eps) / 0, "infinite"),
    (lambda x, weight, eps: rms(x, weight, eps) * torch.nan, "nan in every place"),
    (lambda x, weight, eps: -rms(x, weight, eps), "wrong sign"),
    (lambda x, weight, eps: rms(x, weight, eps) * 1.7, "1.7 times"),
    (lambda x, weight, eps: rms(x, weight, eps) + 0.3, "off by the same amount, 0.3"),
    (lambda x, weight, eps: rms(x, weight, eps).flip(-1), "in the wrong places"),
    (lambda x, weight, eps: 0 * x, "zero everywhere"),
    (lambda x, weight, eps: rms(x, weight, eps) + torch.randn_like(x), "is random"),
    (lambda x, weight: x, "no place for `eps`"),
    (lambda x, weight, eps, extra: x, "wants `extra`"),
]


@pytest.mark.parametrize("answer, word", RETURNED, ids=[word for _, word in RETURNED])
def test_wrong_results_are_described(answer, word):
    result = check.rmsnorm(answer)
    assert not result.passed and word in result.sentence, result.message


# Signatures ---------------------------------------------------------------------------


class KeywordOnly(nn.Module):
    def __init__(self, *, epsilon=1e-6, dim):
        super().__init__()
        self.epsilon, self.gain = epsilon, nn.Parameter(torch.ones(dim))

    def forward(self, hidden_states):
        return rms(hidden_states, self.gain, self.epsilon)


class AnyArguments(nn.RMSNorm):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)


SIGNATURES = [
    lambda w, x, eps=1e-6: rms(x, w, eps),  # by name, in another order
    lambda inp, g, e: rms(inp, g, e),
    lambda eps, gamma, input: rms(input, gamma, eps),
    lambda a, b, c: rms(a, b, c),  # by place
    lambda *args: rms(*args),
    lambda x, weight, eps, unused=None: rms(x, weight, eps),
    KeywordOnly,
    AnyArguments,
]


@pytest.mark.parametrize("number", range(len(SIGNATURES)))
def test_arguments_are_matched_by_name_or_place(number):
    result = check.rmsnorm(SIGNATURES[number])
    assert result.passed, result.message


def test_positional_only():
    def rms_norm(x, weight, eps, /):
        return rms(x, weight, eps)

    assert check.rmsnorm(rms_norm).passed


# No trace -----------------------------------------------------------------------------


def test_prints_are_caught_and_reported(capsys):
    def chatty(x, weight, eps):
        print("x is", x.shape, file=sys.stdout)
        print("warning", file=sys.stderr)
        return rms(x, weight, eps)

    result = check.rmsnorm(chatty)
    captured = capsys.readouterr()
    assert captured.out == captured.err == ""
    assert result.passed and re.search(
        r"printed \d+ lines, the first: `x is", result.message
    )


def test_what_the_reader_switches_is_switched_back():
    def vandal(x, weight, eps):
        torch.set_default_dtype(torch.float64)
        torch.set_grad_enabled(False)
        torch.manual_seed(1234)
        return x

    torch.manual_seed(7)
    state = torch.get_rng_state()
    check.rmsnorm(vandal)
    assert torch.get_default_dtype() == torch.float32
    assert torch.is_grad_enabled()
    assert torch.equal(state, torch.get_rng_state())


def test_in_inference_mode_and_without_gradients():
    for mode in (torch.inference_mode, torch.no_grad):
        with mode():
            assert check.rmsnorm(rms).passed
            assert check.attention(F.scaled_dot_product_attention).passed is False


@pytest.mark.parametrize("judge", ALL, ids=named)
def test_a_vandal_leaves_the_next_answer_unharmed(judge):
    """Inputs are made anew: writing into one spoils nothing for the next check."""

    def spoil(*args, **kwargs):
        for value in (*args, *kwargs.values()):
            if isinstance(value, torch.Tensor) and value.is_floating_point():
                value.data.fill_(torch.inf)
        return args[0] if args else None

    judge(spoil)
    style, answer = next(iter(table.right()[named(judge)].items()))
    assert judge(answer).passed, style


# Not fooled ---------------------------------------------------------------------------

FUNCTIONS = {
    "rmsnorm": "function",
    "layernorm": "function",
    "residual": "function",
    "pre_block": "function",
    "post_block": "function",
    "swiglu": "function",
    "attention": "function",
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_recorded_outputs_do_not_pass(name):
    """An answer that knows by heart all that it was ever asked is still refused."""
    right = table.right()[name][FUNCTIONS[name]]
    known, recording = {}, True

    def key(args, kwargs):
        tensors = [a for a in (*args, *kwargs.values()) if isinstance(a, torch.Tensor)]
        rest = [a for a in (*args, *kwargs.values()) if isinstance(a, float)]
        return str([t.double().tolist() for t in tensors] + rest)

    def answer(*args, **kwargs):
        value = right(*args, **kwargs)
        if recording:
            known[key(args, kwargs)] = True
        return value if key(args, kwargs) in known else 0.5 * value

    # The same signature, so that arguments are placed alike.
    answer.__signature__ = __import__("inspect").signature(right)
    judge = getattr(check, name)
    assert judge(answer).passed
    recording = False
    result = judge(answer)
    assert not result.passed and result.mechanism == "numbers never seen before", result


def test_constant_outputs_do_not_pass():
    for judge in ALL:
        assert not judge(lambda *args, **kwargs: torch.ones(2, 3, 4)).passed


# What is displayed --------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["rmsnorm", "pre_block", "dropout", "attention", "sample"]
)
def test_the_text_is_the_same_every_time(name):
    for mutant in table.mutants()[name][:12]:
        one, two = (getattr(check, name)(mutant.answer) for _ in range(2))
        assert repr(one) == repr(two) and one._repr_html_() == two._repr_html_()
        assert not re.search(r"0x[0-9a-f]{6}|/tmp|/home|\.py", repr(one))
        assert all(len(line) <= 200 for line in repr(one).splitlines())


def test_the_page_gets_plain_accessible_html():
    result = Result(
        "A <b>",
        False,
        "the mechanism",
        "Use `a < b` & more.",
        (("x", "1 < 2"),),
        ("n",),
    )
    page = result._repr_html_()
    assert "<b>" not in page and "A &lt;b&gt;" in page
    assert "<code>a &lt; b</code> &amp; more." in page
    assert '<th scope="row"' in page and 'role="region"' in page and "tabindex" in page
    assert "aria-label" in page and "color:inherit" in page
    assert not re.search(r"<script|<style|http|background", page)


def test_passed_names_what_was_tried():
    result = check.rmsnorm(rms)
    assert result and result.mechanism == "all"
    for mechanism in ("where epsilon stands", "half precision", "the gradient"):
        assert mechanism in result.message
    assert repr(result).startswith("RMSNorm: right.\nTried: shape; ")


# The checks' own inputs ---------------------------------------------------------------


@pytest.mark.parametrize("judge", ALL, ids=named)
def test_no_two_sentences_stand_for_one_output(judge, monkeypatch):
    """A mistake is recognised by its output, so every sentence has one of its own."""
    compare = Judge.compare

    def looked_at(self, yours, expected, mistakes=(), *args, **kwargs):
        mistakes = list(mistakes)
        seen = []
        for sentence, wrong in mistakes:
            output = wrong() if callable(wrong) else wrong
            if output is None or output.shape != expected.shape:
                continue
            if close(output, expected, 1e-4):
                continue
            for other, text in seen:
                same = close(output, other, 1e-7, equal_nan=True)
                assert not same or text == sentence, f"{text} = {sentence}"
            seen.append((output, sentence))
        return compare(self, yours, expected, mistakes, *args, **kwargs)

    monkeypatch.setattr(Judge, "compare", looked_at)
    for answer in table.right()[named(judge)].values():
        result = judge(answer)
        assert result.mechanism == "all", result
