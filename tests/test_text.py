"""The corpus, tokenizers, windows and batches."""

import hashlib
import itertools
import json
import math
import os
import pickle
import random
import re
import subprocess
import sys
import time
import warnings
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import regex
import tiktoken
import torch

from minigpt import text as module
from minigpt.text import (
    END_OF_TEXT,
    GPT2_PATTERN,
    Batches,
    CharTokenizer,
    Encoding,
    gpt2_encoding,
    split,
    tiny_shakespeare,
    train_bpe,
    windows,
)

ROOT = Path(__file__).resolve().parent.parent
KOREAN = "고양이가 창밖을 보았다"
SPECIAL = "a<|endoftext|>b"


@pytest.fixture(scope="session")
def corpus():
    return tiny_shakespeare()


@pytest.fixture(scope="session")
def chars(corpus):
    return CharTokenizer(corpus)


@pytest.fixture(scope="session")
def bpe(corpus):
    return train_bpe(corpus[:200_000], 512)


@pytest.fixture(scope="session")
def gpt2():
    return gpt2_encoding()


@pytest.fixture(params=["bpe", "gpt2"])
def encoding(request):
    return request.getfixturevalue(request.param)


def unicode_texts(n=200, seed=0):
    """Random text from all of Unicode: any code point that is not a surrogate."""
    rng = random.Random(seed)
    for _ in range(n):
        top = rng.choice([0x7F, 0xFF, 0xD7FF, 0x10FFFF])
        points = [rng.randint(0, top) for _ in range(rng.randint(1, 40))]
        yield "".join(chr(p) for p in points if not 0xD800 <= p <= 0xDFFF)
    yield from (
        KOREAN,
        "a🔥é你",
        "👩‍👩‍👧‍👦 e\u0301",
        "\r\n\t \u3000\x00",
        " \n  \n x  ",
        SPECIAL,
    )


# The corpus


def test_corpus_is_exactly_tiny_shakespeare(corpus):
    assert len(corpus) == 1_115_394
    digest = hashlib.sha256(corpus.encode("utf-8")).hexdigest()
    assert digest == "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed"


def test_split_is_nanogpt_s(corpus):
    """The first int(0.9 n) characters train, so that losses compare."""
    train, val = split(corpus)
    assert (len(train), len(val)) == (1_003_854, 111_540)
    assert train + val == corpus


@pytest.mark.parametrize("make", [list, tuple, torch.tensor, np.array])
def test_split_keeps_the_type(make):
    train, val = split(make(list(range(10))))
    assert type(train) is type(val) is type(make([1]))
    assert [int(i) for i in train] == list(range(9))
    assert [int(i) for i in val] == [9]


@pytest.mark.parametrize("share", [0, 1, -0.1, 90])
def test_split_refuses_a_share_that_is_none(share):
    with pytest.raises(ValueError, match=f"train={share}"):
        split("text", share)


# Characters


def test_characters_of_the_corpus(corpus, chars):
    start = time.process_time()
    ids = chars.encode(corpus)
    assert chars.decode(ids) == corpus
    assert time.process_time() - start < 1
    assert chars.vocab_size == 65
    assert set(ids) == set(range(65))
    assert chars.decode(torch.tensor(ids[:50])) == corpus[:50]
    assert chars.encode("") == [] and chars.decode([]) == ""


def test_unknown_characters_are_all_named(chars):
    """D05: each once, with a hint, whatever the rest of the text."""
    with pytest.raises(ValueError, match="no id for") as caught:
        chars.encode(f"To be, {KOREAN} or not 7 to be")
    named = re.match(r"no id for '([^']*)'", str(caught.value))[1]
    assert sorted(named) == sorted(set(KOREAN) - {" "} | {"7"})
    assert "train_bpe" in str(caught.value)


@pytest.mark.parametrize("bad", [65, -1, 2**40])
def test_unknown_ids_are_named_with_the_size(chars, bad):
    """D05: -1 is no index from the end."""
    with pytest.raises(ValueError, match=f"id {bad} .*vocab_size is 65"):
        chars.decode([0, bad])


def test_characters_survive_json(chars):
    again = CharTokenizer.from_dict(json.loads(json.dumps(chars.to_dict())))
    assert again == chars and hash(again) == hash(chars)
    assert again != CharTokenizer("other") and again != 65
    assert again.encode("ROMEO:") == chars.encode("ROMEO:")
    assert CharTokenizer(KOREAN).decode(CharTokenizer(KOREAN).encode(KOREAN)) == KOREAN
    for wrong in ({}, {"kind": "bpe", "characters": "ab"}, {"kind": "characters"}):
        with pytest.raises(ValueError, match="CharTokenizer"):
            CharTokenizer.from_dict(wrong)


def test_characters_of_no_text():
    with pytest.raises(ValueError, match="empty"):
        CharTokenizer("")


# Byte pairs


def learn_slowly(text, vocab_size):
    """The definition: count all pairs anew for each merge."""
    words = [
        tuple(bytes([b]) for b in w.encode()) for w in regex.findall(GPT2_PATTERN, text)
    ]
    ranks = {bytes([b]): b for b in range(256)}
    while len(ranks) < vocab_size:
        counts = Counter(pair for word in words for pair in itertools.pairwise(word))
        best = max(counts, key=lambda pair: (counts[pair], pair), default=None)
        if counts[best] < 2:
            break
        ranks[best[0] + best[1]] = len(ranks)
        words = [join(word, best) for word in words]
    return ranks


def join(word, pair):
    out = []
    for part in word:
        if out and (out[-1], part) == pair and not getattr(out[-1], "joined", False):
            out[-1] = Joined(out[-1] + part)
        else:
            out.append(part)
    return tuple(bytes(part) for part in out)


class Joined(bytes):
    joined = True


def encode_slowly(text, ranks):
    """The definition of encoding: the neighbours of lowest rank are joined first."""
    ids = []
    for word in regex.findall(GPT2_PATTERN, text):
        parts = [bytes([b]) for b in word.encode()]
        while len(parts) > 1:
            joined = [a + b for a, b in itertools.pairwise(parts)]
            at = min(range(len(joined)), key=lambda i: ranks.get(joined[i], math.inf))
            if joined[at] not in ranks:
                break
            parts[at : at + 2] = [joined[at]]
        ids += [ranks[part] for part in parts]
    return ids


@pytest.mark.parametrize("sample", ["corpus", "unicode", "repeats"])
def test_training_follows_the_definition(corpus, sample):
    text = {
        "corpus": corpus[5000:9000],
        "unicode": "".join(unicode_texts(60, seed=3)) * 2,
        "repeats": "aaaa aaaaa abababa bbbb " * 3,
    }[sample]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        learned = train_bpe(text, 340)
    ranks = learn_slowly(text, 340)
    assert learned._mergeable_ranks == ranks
    assert learned.encode(text) == encode_slowly(text, ranks)


def test_training_is_fast_and_real(corpus):
    start = time.process_time()
    learned = train_bpe(corpus, 512)
    assert time.process_time() - start < 5
    assert isinstance(learned, tiktoken.Encoding)
    assert learned.n_vocab == 513
    assert learned.encode(END_OF_TEXT, allowed_special={END_OF_TEXT}) == [512]
    assert learned.eot_token == 512
    ids = learned.encode(corpus)
    assert max(ids) < 512
    assert learned.decode(ids) == corpus
    assert 1.9 < len(corpus) / len(ids) < 2.0


def test_training_depends_on_the_text_alone(corpus):
    """Ties are broken by the bytes, not by the order in which words were met."""
    words = regex.findall(GPT2_PATTERN, corpus[:30_000])
    counts = Counter(words)
    shuffled = random.Random(1).sample(list(counts), len(counts))
    results = []
    for order in (counts, shuffled):
        parts = [[bytes([b]) for b in word.encode()] for word in order]
        merges = module._merges(parts, [counts[word] for word in order])
        results.append(list(itertools.islice(merges, 400)))
    assert results[0] == results[1]


def test_smaller_vocabulary_is_the_beginning_of_the_larger(corpus):
    small, large = (train_bpe(corpus[:20_000], size) for size in (300, 400))
    assert list(large._mergeable_ranks.items())[:300] == list(
        small._mergeable_ranks.items()
    )


def test_training_refuses_nothing_and_too_little():
    """D06."""
    with pytest.raises(ValueError, match="empty"):
        train_bpe("", 300)
    for size in (0, 100, 255):
        with pytest.raises(ValueError, match=f"vocab_size={size} .*256"):
            train_bpe("text", size)


@pytest.mark.parametrize(
    ("text", "size"), [("ab", 256), ("   ", 257), ("a", 256), ("abab", 257)]
)
def test_training_on_short_text_stops_and_says_so(text, size):
    """D06: the size reached is in the warning, and n_vocab is one more."""
    with pytest.warns(UserWarning, match=f"{size} tokens, not 300"):
        learned = train_bpe(text, 300)
    assert learned.n_vocab == size + 1
    assert learned.decode(learned.encode(text)) == text


def test_bytes_alone_are_a_vocabulary():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        learned = train_bpe("text", 256)
    assert learned.encode(KOREAN) == list(KOREAN.encode())


def test_words_are_gpt2_s():
    """The pattern in tiktoken's spelling cuts as the one published with GPT-2."""
    published = (
        r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
    )
    samples = [*unicode_texts(), "it's  we'll 'tis\n\n  x1y2!?  ", "   "]
    for sample in samples:
        words = regex.findall(GPT2_PATTERN, sample)
        assert words == regex.findall(published, sample)
        assert "".join(words) == sample


@pytest.mark.parametrize("run", ["a" * 100_000, "^" * 100_000, " " * 100_000])
def test_long_runs_of_one_character(encoding, chars, run):
    """D06: within five seconds, and unchanged."""
    start = time.process_time()
    assert encoding.decode(encoding.encode(run)) == run
    if set(run) <= set(chars.characters):
        assert chars.decode(chars.encode(run)) == run
    assert time.process_time() - start < 5


def test_training_on_a_long_run():
    start = time.process_time()
    with pytest.warns(UserWarning, match="no pair occurs twice"):
        train_bpe("a" * 100_000, 300)
    assert time.process_time() - start < 5


# Both byte-pair encodings


def test_round_trips_on_any_unicode(encoding):
    for sample in unicode_texts():
        assert encoding.decode(encoding.encode(sample)) == sample
    assert encoding.encode("") == [] and encoding.decode([]) == ""


def test_byte_lengths_of_tokens_add_up(encoding):
    """D03: to the length in UTF-8, and any beginning can be decoded."""
    for sample in unicode_texts(50):
        ids = encoding.encode(sample)
        lengths = [len(b) for b in encoding.decode_tokens_bytes(ids)]
        assert sum(lengths) == len(sample.encode("utf-8"))
        for end in range(len(ids)):
            encoding.decode(ids[:end])


def test_special_strings_in_text_are_text(encoding, corpus):
    """D02: no crash, no special id, exact round trip; special only where allowed."""
    special = encoding.eot_token
    ids = encoding.encode(SPECIAL)
    assert special not in ids and encoding.decode(ids) == SPECIAL
    assert ids == encoding.encode_ordinary(SPECIAL)
    assert encoding.encode_batch([SPECIAL, "ab"]) == [ids, encoding.encode("ab")]
    allowed = encoding.encode(SPECIAL, allowed_special={END_OF_TEXT})
    assert allowed == [*encoding.encode("a"), special, *encoding.encode("b")]
    assert encoding.encode(SPECIAL, allowed_special="all") == allowed
    with pytest.raises(ValueError, match="disallowed special token"):
        encoding.encode(SPECIAL, disallowed_special="all")


def test_book_s_own_text_can_be_prepared(encoding):
    """D02: this chapter and this test hold the marker."""
    for path in (ROOT / "chapters" / "01_text.ipynb", Path(__file__)):
        source = path.read_text(encoding="utf-8")
        assert END_OF_TEXT in source
        ids = encoding.encode(source)
        assert encoding.eot_token not in ids
        assert encoding.decode(ids) == source


def test_training_on_text_with_the_marker():
    """D02: the marker's string is learned like any other, apart from its id."""
    with pytest.warns(UserWarning):
        learned = train_bpe(SPECIAL * 50, 400)
    ids = learned.encode(SPECIAL)
    assert learned.eot_token not in ids
    assert learned.decode(ids) == SPECIAL


@pytest.mark.parametrize("bad", [50300, -1, 2**40])
def test_ids_without_a_token_are_named(encoding, bad):
    """D05: one kind of error, with the id and the size of the vocabulary."""
    for decode in (encoding.decode, encoding.decode_bytes):
        with pytest.raises(ValueError, match=f"id {bad} .*{encoding.n_vocab} ids"):
            decode([0, bad])
    assert encoding.decode(torch.tensor(encoding.encode("To be"))) == "To be"


def test_encodings_can_be_pickled(encoding):
    again = pickle.loads(pickle.dumps(encoding))
    assert isinstance(again, Encoding)
    assert again.encode(SPECIAL) == encoding.encode(SPECIAL)


# GPT-2


def test_gpt2_is_gpt2(gpt2, corpus):
    assert gpt2.n_vocab == 50_257 and gpt2.eot_token == 50_256
    expected = [
        15496,
        995,
        0,
        23821,
        243,
        230,
        167,
        227,
        243,
        47991,
        246,
        168,
        226,
        116,
    ]
    expected += [168, 248, 242, 256, 1134, 30001, 318, 1049, 0]
    assert gpt2.encode("Hello world! 안녕하세요 tiktoken is great!") == expected
    train, val = split(corpus)  # the numbers that nanoGPT prints
    assert (len(gpt2.encode(train)), len(gpt2.encode(val))) == (301_966, 36_059)


def test_korean_costs_what_the_chapter_says(bpe, gpt2):
    assert len(KOREAN.encode()) == len(bpe.encode(KOREAN)) == 32
    assert len(gpt2.encode(KOREAN)) == 27
    assert len(gpt2.encode("The cat looked out of the window")) == 7


OFFLINE = r"""
import hashlib, pathlib, socket, tempfile, warnings

# torch and regex ask for the platform's encoding, too; here it is about this package.
warnings.simplefilter("ignore", EncodingWarning)
warnings.filterwarnings("error", category=EncodingWarning, module="minigpt")

def refuse(*args, **kwargs):
    raise AssertionError("the network was used")

socket.getaddrinfo = socket.socket.connect = socket.create_connection = refuse
from minigpt.text import (
    CharTokenizer, Encoding, gpt2_encoding, tiny_shakespeare, train_bpe
)
text = tiny_shakespeare()
bpe = train_bpe(text[:5000] + "caf\u00e9 caf\u00e9", 300)
ids = [CharTokenizer(text).encode(text), bpe.encode(text), gpt2_encoding().encode(text)]

from minigpt import _sources
with tempfile.TemporaryDirectory() as folder:  # what is read out of the plays
    for name in _sources.PLAYS:
        path = pathlib.Path(folder, name + ".md")
        path.parent.mkdir(exist_ok=True)
        path.write_bytes("**A**\r\ncaf\u00e9".encode())
    ids.append(_sources.convert(pathlib.Path(folder)))
print(hashlib.sha256(repr(ids).encode()).hexdigest())
"""


def test_offline_and_the_same_under_any_encoding():
    """D01, D07: with the caches filled no step needs a network; no file is opened in
    the platform's encoding, and the ids do not depend on it."""
    settings = [{"PYTHONUTF8": "0", "LC_ALL": "C"}, {"PYTHONUTF8": "1"}]
    command = [sys.executable, "-X", "warn_default_encoding"]
    command += ["-c", OFFLINE]
    running = [
        subprocess.Popen(
            command,
            env=os.environ | setting | {"PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
        )
        for setting in settings
    ]
    results = [process.communicate(timeout=120) for process in running]
    assert [error for _, error in results] == ["", ""]
    assert len(results[0][0]) == 65 and results[0] == results[1]


# Windows


@pytest.mark.parametrize(
    ("n", "context", "stride", "starts"),
    [
        (10, 4, 1, [0, 1, 2, 3, 4, 5]),
        (5, 4, 1, [0]),
        (5, 4, None, [0]),
        (9, 4, None, [0, 4]),
        (10, 4, None, [0, 4, 5]),
        (10, 4, 2, [0, 2, 4, 5]),
        (10, 4, 100, [0, 5]),
        (2, 1, 1, [0]),
    ],
)
def test_windows_start_where_they_should(n, context, stride, starts):
    """D08: context + 1 tokens make one window, and none is lost at the end."""
    x, y = windows(torch.arange(n) * 3, context, stride)
    assert x.dtype == y.dtype == torch.int64
    assert (x[:, 0] // 3).tolist() == starts
    assert x.shape == y.shape == (len(starts), context)
    assert torch.equal(y, x + 3)
    assert y[-1, -1] == 3 * (n - 1)


@pytest.mark.parametrize("stride", [1, 2, 3, 5, 7, None])
def test_windows_ask_for_every_token(stride):
    """As long as the stride is at most the context, which is 7."""
    for n in range(8, 40):
        x, y = windows(range(n), 7, stride)
        assert set(y.flatten().tolist()) == set(range(1, n))
        assert x.is_contiguous() and y.is_contiguous()


@pytest.mark.parametrize("make", [windows, lambda i, c: Batches(i, 2, c)])
@pytest.mark.parametrize("ids", [[], [1], [1, 2, 3, 4]])
def test_text_shorter_than_the_context_names_both_numbers(make, ids):
    """D08: never padded."""
    message = f"context \\+ 1 = 5 tokens, got {len(ids)}"
    with pytest.raises(ValueError, match=message):
        make(ids, 4)


@pytest.mark.parametrize("make", [windows, lambda i, c: Batches(i, 2, c)])
@pytest.mark.parametrize(
    ("ids", "context", "message"),
    [
        ([1.0] * 9, 4, "integers.*float"),
        ([True] * 9, 4, "integers.*bool"),
        (torch.zeros(9, dtype=torch.complex64), 4, "integers.*complex"),
        ([[1] * 9] * 9, 4, r"shape \(9, 9\)"),
        (torch.tensor(3), 4, r"shape \(\)"),
        ("a text is no list of ids", 4, "encode it first"),
        ([1] * 9, 0, "context=0"),
        ([1] * 9, -4, "context=-4"),
    ],
)
def test_what_is_not_a_row_of_ids_is_refused(make, ids, context, message):
    with pytest.raises(ValueError, match=message):
        make(ids, context)


@pytest.mark.parametrize("stride", [0, -1])
def test_stride_must_be_positive(stride):
    with pytest.raises(ValueError, match=f"stride={stride}"):
        windows([1] * 9, 4, stride)


@pytest.mark.parametrize(
    "make",
    [
        list,
        tuple,
        lambda r: r,
        lambda r: np.array(r, dtype=np.uint16),
        lambda r: torch.tensor(r, dtype=torch.int32),
        lambda r: torch.tensor(r, dtype=torch.uint8),
    ],
)
def test_ids_come_in_many_types(make):
    x, y = windows(make(range(9)), 4)
    assert x.tolist() == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert y.dtype == torch.int64
    assert next(Batches(make(range(9)), 1, 4))[0].dtype == torch.int64


# Batches


def epochs(batches, n):
    """The starts of the windows in the first n epochs, one list for each."""
    found = [[] for _ in range(n)]
    while True:
        before, position = batches.epoch, batches.position
        remaining = len(batches.starts) - position
        x, _ = next(batches)
        for i, start in enumerate(x[:, 0].tolist()):
            epoch = before if i < remaining else before + 1
            if epoch == n:
                return found
            found[epoch].append(start)


def test_batch_is_windows_of_the_text():
    ids = torch.randint(0, 65, (500,), generator=torch.Generator().manual_seed(0))
    batches = Batches(ids, batch_size=3, context=8)
    everything = {tuple(row.tolist()) for row in ids.unfold(0, 9, 1)}
    for x, y in itertools.islice(batches, 60):
        assert x.shape == y.shape == (3, 8)
        assert x.dtype == y.dtype == torch.int64
        assert x.is_contiguous() and y.is_contiguous()
        for a, b in zip(x.tolist(), y.tolist()):
            assert (*a, b[-1]) in everything and a[1:] == b[:-1]
    before = ids.clone()
    x.zero_()
    assert torch.equal(ids, before)


def test_epoch_visits_every_window_once():
    """E07: each epoch tiles the text from its own offset, in its own order."""
    n, context = 1000, 9
    offsets = set()
    orders = epochs(Batches(torch.arange(n), 4, context, seed=3), 30)
    for starts in orders:
        offset = min(starts)
        offsets.add(offset)
        assert offset < context
        assert sorted(starts) == list(range(offset, n - context, context))
        assert starts != sorted(starts)
    assert len(offsets) > 5
    assert orders[0] != orders[1]


def test_every_start_occurs():
    """D08: 10 tokens, context 4, so 6 windows; after many draws each has come."""
    batches = Batches(torch.arange(10), 2, 4)
    seen = {s for x, _ in itertools.islice(batches, 100) for s in x[:, 0].tolist()}
    assert seen == set(range(6))


def test_batch_may_be_larger_than_an_epoch():
    x, y = next(Batches(torch.arange(5), batch_size=7, context=4))
    assert x.tolist() == [[0, 1, 2, 3]] * 7
    assert y.tolist() == [[1, 2, 3, 4]] * 7


@pytest.mark.parametrize("stop", [0, 1, 17, 25, 26, 51, 77])
def test_resumed_batches_equal_the_uninterrupted_ones(stop):
    """E07: also at the border of an epoch, and in all later epochs."""
    ids = torch.arange(1001)  # about 100 windows of 10, so about 25 batches an epoch
    whole = [x for x, _ in itertools.islice(Batches(ids, 4, 10, seed=5), 120)]
    first = Batches(ids, 4, 10, seed=5)
    for _ in range(stop):
        next(first)
    state = json.loads(json.dumps(first.state_dict()))
    second = Batches(ids, 4, 10, seed=99)
    next(second)
    second.load_state_dict(state)
    rest = [x for x, _ in itertools.islice(second, 120 - stop)]
    assert all(torch.equal(a, b) for a, b in zip(whole[stop:], rest))
    assert second.epoch >= 4


def test_position_of_other_data_is_refused():
    state = Batches(torch.arange(100), 4, 10).state_dict()
    for n, context, message in (
        (99, 10, "tokens=100.* 99"),
        (100, 9, "context=10.* 9"),
    ):
        with pytest.raises(ValueError, match=message):
            Batches(torch.arange(n), 4, context).load_state_dict(state)


def test_seed_alone_decides_and_global_randomness_is_untouched():
    def some(seed):
        batches = Batches(torch.arange(500), 4, 8, seed=seed)
        return torch.stack([x for x, _ in itertools.islice(batches, 40)])

    torch.manual_seed(0)
    state = torch.get_rng_state()
    a = some(1)
    assert torch.equal(torch.get_rng_state(), state)
    torch.rand(3)
    assert torch.equal(a, some(1))
    assert not torch.equal(a, some(2))
    for seed in (-1, 2**62, 10**30):
        some(seed)


@pytest.mark.parametrize("batch_size", [0, -3])
def test_batch_size_must_be_positive(batch_size):
    with pytest.raises(ValueError, match=f"batch_size={batch_size}"):
        Batches([1] * 20, batch_size, 4)


def test_batches_are_made_on_their_device():
    batches = Batches(list(range(100)), 4, 8, device="cpu")
    assert batches.to("cpu") is batches
    if torch.cuda.is_available():
        moved = Batches(list(range(100)), 4, 8, device="cuda")
        for (x, _), (other, _) in itertools.islice(zip(batches, moved), 30):
            assert other.device.type == "cuda"
            assert torch.equal(x, other.cpu())


def test_batch_takes_less_than_a_twentieth_of_a_millisecond():
    """Against a training step of 50 ms it costs nothing; the best of five rounds."""
    batches = Batches(torch.zeros(1_003_854, dtype=torch.int64), 12, 64)
    seconds = []
    for _ in range(5):
        start = time.process_time()
        for _ in range(400):
            next(batches)
        seconds.append((time.process_time() - start) / 400)
    assert min(seconds) < 0.05e-3


def test_package_imports_from_the_module():
    """`make train` and later chapters rely on these names."""
    expected = {"tiny_shakespeare", "CharTokenizer", "train_bpe", "gpt2_encoding"}
    assert expected | {"windows", "Batches", "split"} <= set(module.__all__)
    documented = [getattr(module, name) for name in module.__all__]
    assert all(item.__doc__ for item in documented if callable(item))


def test_windows_of_ten_tokens():
    """quiz: 1"""
    x, _ = windows(torch.arange(10), 4, stride=1)
    assert len(x) == 6 == 10 - 5 + 1


def test_perplexity_of_two_nats():
    """quiz: 2"""
    assert round(math.exp(2.08), 1) == 8.0 and 2**2 == 4
