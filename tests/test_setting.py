"""book.seeds and book.setting: defaults, overrides from outside, clear refusals."""

import pytest
import torch

from minigpt import book

SMALL, LARGE = {"blocks": 6, "steps": 300}, {"blocks": 24, "steps": 3000}


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch):
    monkeypatch.delenv("MINIGPT_SEEDS", raising=False)
    monkeypatch.delenv("MINIGPT_SIZE", raising=False)


def test_seeds_count_from_zero():
    assert book.seeds() == (0, 1, 2)
    assert book.seeds(5) == (0, 1, 2, 3, 4)


def test_seeds_from_outside_replace_them_all(monkeypatch):
    monkeypatch.setenv("MINIGPT_SEEDS", "101, 102")
    assert book.seeds() == book.seeds(5) == (101, 102)


@pytest.mark.parametrize("given", ["7", "seven,8", "1.5,2", ","])
def test_seeds_refuse_what_shows_no_spread(monkeypatch, given):
    monkeypatch.setenv("MINIGPT_SEEDS", given)
    with pytest.raises(ValueError, match=r"MINIGPT_SEEDS=.*two or more whole numbers"):
        book.seeds()


@pytest.mark.parametrize("gpu", [False, True])
def test_setting_follows_the_device_and_says_so(monkeypatch, capsys, gpu):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpu)
    device, chosen = book.setting(SMALL, LARGE)
    assert device.type == ("cuda" if gpu else "cpu")
    assert chosen == (LARGE if gpu else SMALL)
    said = capsys.readouterr().out
    assert said == (
        "large setting on cuda: blocks 24, steps 3000\n"
        if gpu
        else "small setting on cpu: blocks 6, steps 300\n"
    )


def test_setting_can_be_asked_for(monkeypatch):
    monkeypatch.setenv("MINIGPT_SIZE", "large")
    assert book.setting(SMALL, LARGE)[1] == LARGE
    monkeypatch.setenv("MINIGPT_SIZE", "huge")
    with pytest.raises(ValueError, match="MINIGPT_SIZE='huge' must be small or large"):
        book.setting(SMALL, LARGE)


def test_setting_refuses_sizes_that_do_not_match():
    with pytest.raises(ValueError, match=r"small has \['blocks', 'steps'\]"):
        book.setting(SMALL, {"blocks": 24})
