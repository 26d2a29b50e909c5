"""Chapter 11: the config and its presets. Case numbers are those of the bug reports."""

import dataclasses
import json
import math
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minigpt.block import BLOCKS
from minigpt.gpt import (
    GPT,
    MLPS,
    NORMS,
    POSITIONS,
    PRESETS,
    GPTConfig,
    count_by_formula,
    preset,
)

TINY = GPTConfig(vocab_size=13, context=8, n_layers=2, n_heads=2, d_model=16)
loops = settings(deadline=None, max_examples=25, derandomize=True)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"d_model": 1600, "n_heads": 48}, ["d_model=1600", "n_heads=48"]),
        ({"n_heads": 0}, ["n_heads=0"]),
        ({"n_layers": 0}, ["n_layers=0"]),
        ({"vocab_size": 0}, ["vocab_size=0"]),
        ({"vocab_size": 65.0}, ["vocab_size=65.0"]),
        ({"n_layers": True}, ["n_layers=True"]),
        ({"context": -1}, ["context=-1"]),
        ({"d_model": "wide"}, ["d_model='wide'"]),
        ({"d_ff": 0}, ["d_ff=0"]),
        ({"dropout": -0.1}, ["dropout=-0.1"]),
        ({"dropout": 1.5}, ["dropout=1.5"]),
        ({"dropout": math.nan}, ["dropout=nan"]),
        ({"dropout": "0.1"}, ["dropout='0.1'", "number"]),
        ({"dropout": True}, ["dropout=True"]),
        ({"norm_eps": 0.0}, ["norm_eps=0.0"]),
        ({"norm_eps": None}, ["norm_eps=None"]),
        ({"norm_eps": math.inf}, ["norm_eps=inf"]),
        ({"norm": "batch"}, ["norm='batch'", "layernorm"]),
        ({"mlp": "relu"}, ["mlp='relu'", "gelu"]),
        ({"mlp": ["gelu"]}, ["mlp=['gelu']"]),
        ({"norm": None}, ["norm=None"]),
        ({"order": "sideways"}, ["order='sideways'", "pre", "post"]),
        ({"positions": "sine"}, ["positions='sine'", "learned", "rotary"]),
        (
            {"positions": "rotary", "d_model": 30},
            ["positions='rotary'", "d_model=30", "n_heads=2"],
        ),
        ({"qk_norm": 1}, ["qk_norm=1", "True or False"]),
        ({"shift": "yes"}, ["shift='yes'"]),
        ({"zero_init": None}, ["zero_init=None"]),
        ({"shift": True, "order": "post"}, ["shift=True", "order='post'"]),
        ({"zero_init": True, "order": "plain"}, ["zero_init=True", "order='plain'"]),
    ],
)
def test_b01_a_wrong_config_is_refused_with_field_and_value(wrong, words):
    with pytest.raises(ValueError) as caught:
        replace(TINY, **wrong)
    assert all(word in str(caught.value) for word in words)


def test_config_goes_through_json_and_back():
    config = replace(TINY, dropout=0.1, tie_weights=False)
    assert GPTConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config
    with pytest.raises(ValueError, match="n_embd"):
        GPTConfig.from_dict({"vocab_size": 5, "n_embd": 32})
    assert GPTConfig.from_json(config.to_json()) == config
    for text, said in (
        ("[1, 2]", "JSON object, not list"),
        ("not json", "line 1 column 1"),
        ('{"vocab_size": 5, "n_embd": 32}', "unknown config keys n_embd; known: voc"),
        ('{"d_model": 32}', "the config lacks vocab_size"),
        ('{"vocab_size": 5, "n_heads": 0}', "n_heads=0"),
    ):
        with pytest.raises(ValueError, match=said):
            GPTConfig.from_json(text)


@loops
@given(st.data())
def test_every_valid_config_goes_through_json(data):
    n_heads = data.draw(st.integers(1, 8))
    order = data.draw(st.sampled_from(list(BLOCKS)))
    config = GPTConfig(
        vocab_size=data.draw(st.integers(1, 10**6)),
        context=data.draw(st.integers(1, 10**4)),
        n_layers=data.draw(st.integers(1, 100)),
        n_heads=n_heads,
        d_model=2 * n_heads * data.draw(st.integers(1, 64)),
        dropout=data.draw(st.floats(0, 1)),
        norm_eps=data.draw(st.floats(1e-12, 1e-3)),
        norm=data.draw(st.sampled_from(list(NORMS))),
        mlp=data.draw(st.sampled_from(list(MLPS))),
        positions=data.draw(st.sampled_from(list(POSITIONS))),
        order=order,
        shift=order == "pre" and data.draw(st.booleans()),
        bias=data.draw(st.booleans()),
    )
    assert GPTConfig.from_json(config.to_json()) == config
    assert hash(config) == hash(replace(config))


def test_a_config_is_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        TINY.n_layers = 3


def test_presets_are_valid_and_changes_replace_their_fields():
    assert {"mini", "gpt2", "llama-mini"} <= set(PRESETS)
    for name in PRESETS:
        config = preset(name, 65)
        assert config.vocab_size == 65
        assert GPTConfig.from_json(config.to_json()) == config
    assert preset("gpt2", 65, n_layers=2).n_layers == 2
    sizes = count_by_formula(preset("gpt2", 50257))
    assert sum(sizes.values()) == 124_439_808  # as OpenAI's GPT-2 small
    with pytest.raises(ValueError, match="'gpt3' is unknown; choose mini"):
        preset("gpt3", 65)
    with pytest.raises(ValueError, match="n_embd"):
        preset("mini", 65, n_embd=3)


def test_the_rungs_differ_in_one_choice_each():
    """From pre upwards each rung of the ladder changes the one below in one field."""
    names = ("plain", "residual", "post", "pre", "rmsnorm", "dropout")
    rungs = [preset(name, 65).to_dict() for name in names]
    for below, above in pairwise(rungs):
        assert sum(below[key] != above[key] for key in below) == 1
    gated = preset("swiglu", 65).to_dict()
    changed = [key for key in gated if gated[key] != rungs[4][key]]
    assert sorted(changed) == ["d_ff", "mlp"]


def test_the_mlp_is_four_times_as_wide_unless_it_is_said():
    assert GPTConfig(vocab_size=5, d_model=32).d_ff == 128
    assert GPT(replace(TINY, d_ff=40)).blocks[0].mlp.up.out_features == 40
    gated, plain = GPTConfig(5, d_model=96, mlp="swiglu"), GPTConfig(5, d_model=96)
    assert gated.d_ff == 256
    without = {"bias": False}
    assert (
        count_by_formula(replace(gated, **without))["mlp"]
        == count_by_formula(replace(plain, **without))["mlp"]
    )
