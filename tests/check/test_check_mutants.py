"""Every planted mistake is refused, with a message of its own; right answers pass."""

import functools
import random
import time

import numpy as np
import pytest
import table
import torch

from minigpt.book import check

MUTANTS, RIGHT = table.mutants(), table.right()
LEAST = {
    "layernorm": 8,
    "rmsnorm": 8,
    "residual": 6,
    "pre_block": 6,
    "post_block": 6,
    "dropout": 6,
    "swiglu": 6,
    "attention": 8,
    "sample": 8,
}


@functools.cache
def verdict(name: str, mutant):
    """A mutant's result; several tests look at it."""
    return getattr(check, name)(mutant.answer)


def cases(groups: dict, names=lambda item: item.name):
    return [
        pytest.param(name, item, id=f"{name}: {names(item)}")
        for name, items in groups.items()
        for item in items
    ]


@pytest.mark.parametrize("name, mutant", cases(MUTANTS))
def test_refused_with_the_diagnosis(name, mutant):
    result = verdict(name, mutant)
    assert not result.passed
    assert mutant.word.lower() in result.sentence.lower(), result.message
    assert result.mechanism not in ("the check itself", "not written"), result.message


@pytest.mark.parametrize("name", MUTANTS)
def test_messages_differ(name):
    said = {}
    for mutant in MUTANTS[name]:
        sentence = verdict(name, mutant).sentence
        assert sentence not in said, f"{mutant.name} and {said[sentence]}: {sentence}"
        said[sentence] = mutant.name


@pytest.mark.parametrize(
    "name, style, answer",
    [
        pytest.param(name, style, answer, id=f"{name}: {style}")
        for name, styles in RIGHT.items()
        for style, answer in styles.items()
    ],
)
def test_right_answers_pass(name, style, answer):
    result = getattr(check, name)(answer)
    assert result.passed and result.mechanism == "all", result.message
    assert not result.notes, result.notes


def test_the_lists_are_long_enough():
    for name, least in LEAST.items():
        assert len(MUTANTS[name]) >= least, name
        assert len(RIGHT[name]) >= 4, name
    assert set(check.__all__) - {"Result"} == set(MUTANTS) == set(RIGHT)


@pytest.mark.parametrize("name", LEAST)
def test_within_two_seconds_and_the_session_untouched(name):
    answer = next(iter(RIGHT[name].values()))
    getattr(check, name)(answer)  # the first call of all also loads parts of torch
    torch.manual_seed(5), random.seed(5), np.random.seed(5)
    torch.set_default_dtype(torch.float64)
    try:
        states = torch.get_rng_state(), random.getstate(), np.random.get_state()[1]
        with torch.no_grad():
            start = time.process_time()
            result = getattr(check, name)(answer)
            assert time.process_time() - start < 2
            assert not torch.is_grad_enabled()
        assert result.passed, result.message
        assert torch.equal(torch.get_rng_state(), states[0])
        assert random.getstate() == states[1]
        assert (np.random.get_state()[1] == states[2]).all()
        assert torch.get_default_dtype() == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize(
    "name, mutant, module",
    [
        pytest.param(name, mutant, module, id=f"{name}: {mutant.name}")
        for name, pairs in table.as_modules().items()
        for mutant, module in pairs
    ],
)
def test_the_same_mistake_in_a_module(name, mutant, module):
    result = getattr(check, name)(module)
    assert not result.passed
    assert mutant.word.lower() in result.sentence.lower(), result.message
