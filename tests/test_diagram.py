"""Diagrams: they show what the code does, nothing overlaps, one colour for a part."""

import itertools
import re

import pytest
import torch

from minigpt import book
from minigpt.block import BLOCKS
from minigpt.book import COLORS, diagram
from minigpt.book.canvas import KINDS, SMALLEST
from minigpt.book.figures import PAPER, VARIABLES
from minigpt.gpt import GPT, NORMS, GPTConfig
from minigpt.swiglu import GATES


def config(**words) -> GPTConfig:
    sizes = {"vocab_size": 11, "context": 8, "n_layers": 2, "n_heads": 2, "d_model": 8}
    return GPTConfig(**sizes | words)


def all_kinds() -> dict[str, book.Diagram]:
    """One of each, with the longest words that it may hold."""
    full = {"norm": "layernorm", "mlp": "swiglu", "dropout": True}
    found = {f"block {order}": diagram.block(order, **full) for order in BLOCKS}
    found |= {f"rung {order}": diagram.rung(order, **full) for order in BLOCKS}
    for order, positions in itertools.product(BLOCKS, ("learned", "rotary")):
        made = config(order=order, positions=positions, dropout=0.1)
        found[f"gpt {order} {positions}"] = diagram.gpt(made, code=True)
    found |= {f"norm {kind}": diagram.norm(kind) for kind in NORMS}
    for kind in ("gelu", "gelu_tanh", *GATES):
        found[f"mlp {kind}"] = diagram.mlp(kind, dropout=True)
    found |= {"head": diagram.attention_head(dropout=True), "orders": diagram.orders()}
    found["pale"] = diagram.block("sandwich", **full, highlight="norm")
    found["chain"] = diagram.chain(
        [("matrix", "Linear 64 → 64"), ("step", "ReLU"), ("norm", "LayerNorm")],
        "A layer of three parts.",
        times="× 32 layers",
    )
    return found


@pytest.fixture(scope="module")
def drawn() -> dict[str, book.Diagram]:
    return all_kinds()


NAMES = list(all_kinds())
BODIES = {*KINDS, "plus", "times"}


def holds(mark, x: float, y: float) -> bool:
    return mark.x <= x <= mark.x + mark.width and mark.y <= y <= mark.y + mark.height


def overlap(a, b) -> bool:
    return (
        a.x < b.x + b.width
        and b.x < a.x + a.width
        and a.y < b.y + b.height
        and b.y < a.y + a.height
    )


def home(text, bodies):
    """The box in whose middle the words stand, if there is one."""
    middle = (text.x + text.width / 2, text.y + text.height / 2)
    return next((body for body in bodies if holds(body, *middle)), None)


@pytest.mark.parametrize("name", NAMES)
def test_nothing_overlaps(drawn, name):
    bodies = [mark for mark in drawn[name].marks if mark.kind in BODIES]
    texts = [mark for mark in drawn[name].marks if mark.kind == "text"]
    assert bodies
    for a, b in itertools.combinations(bodies, 2):
        assert not overlap(a, b), f"{a.name} lies on {b.name}"
    for a, b in itertools.combinations(texts, 2):
        assert not overlap(a, b), f"{a.name!r} lies on {b.name!r}"
    for text in texts:
        for body in bodies:
            if body is not home(text, bodies):
                assert not overlap(text, body), f"{text.name!r} lies on {body.name}"


@pytest.mark.parametrize("name", NAMES)
def test_words_fit_their_box_and_everything_fits_the_drawing(drawn, name):
    figure = drawn[name]
    bodies = [mark for mark in figure.marks if mark.kind in BODIES]
    left, top, width, height = figure.view
    for mark in figure.marks:
        assert left <= mark.x and mark.x + mark.width <= left + width, mark
        assert top <= mark.y and mark.y + mark.height <= top + height, mark
        box = home(mark, bodies) if mark.kind == "text" else None
        if box:
            assert box.x + 3 < mark.x and mark.width < box.width - 6, mark


@pytest.mark.parametrize("name", NAMES)
def test_words_are_as_large_on_a_phone(drawn, name):
    """A phone of 360 px leaves 308 for a figure: 11.5 becomes 11 there."""
    sizes = re.findall(r"font-size:([\d.]+)px", drawn[name].svg())
    assert drawn[name].view[2] <= 320 and SMALLEST * 308 / 320 > 11
    assert all(float(size) >= SMALLEST for size in sizes)
    assert sizes or name.startswith("rung")


@pytest.mark.parametrize("name", NAMES)
def test_colours_are_the_books_own(drawn, name):
    svg = drawn[name].svg()
    used = re.findall(r"(?:fill|stroke):([^;\"]+)", svg)
    assert used and set(used) <= {*VARIABLES.values(), "none"}
    assert not re.search(r'(fill|stroke)="', svg)
    assert {VARIABLES[PAPER]} < set(used)


@pytest.mark.parametrize("name", NAMES)
def test_it_is_one_labelled_svg_with_nothing_foreign(drawn, name):
    markup = drawn[name]._repr_html_()
    assert markup.count("<svg") == 1 and 'role="img" aria-label="' in markup
    assert len(drawn[name].alt.split()) > 3
    assert " id=" not in markup and "href" not in markup


def test_it_is_drawn_the_same_twice():
    again = all_kinds()
    assert {n: d._repr_html_() for n, d in all_kinds().items()} == {
        n: d._repr_html_() for n, d in again.items()
    }


def calls(order: str) -> tuple[list[str], dict[str, torch.Tensor], torch.Tensor]:
    """Which parts a real block calls, in order, what each is given, and the input."""
    block = GPT(config(order=order)).blocks[0].eval()
    names, given = [], {}
    for name, part in block.named_children():

        def note(module, args, output, name=name):
            names.append(name)
            given[name] = (args[0], output)

        part.register_forward_hook(note)
    x = torch.randn(1, 4, 8, generator=torch.Generator().manual_seed(1))
    block(x)
    return names, given, x


@pytest.mark.parametrize("order", list(BLOCKS))
def test_drawn_order_is_the_order_of_calls(order):
    names, _, _ = calls(order)
    assert diagram.block(order).parts == names
    marks = [m for m in diagram.block(order).marks if m.kind in KINDS]
    assert [m.name for m in sorted(marks, key=lambda m: m.y)] == names
    marks = [m for m in diagram.rung(order).marks if m.kind in KINDS]
    assert [m.name for m in sorted(marks, key=lambda m: m.x)] == names


@pytest.mark.parametrize("order", list(BLOCKS))
def test_plus_stands_where_the_block_adds(order):
    """What a part is given, once computed: with the addition before it or without."""
    names, given, x = calls(order)
    marks = sorted(diagram.block(order).marks, key=lambda m: m.y)
    flow = [m.name for m in marks if m.kind in BODIES]
    stream, branch, on_branch = x, x, {m.name: m.x > 0 for m in marks}
    for here in flow:
        if here == "plus":
            stream = branch = stream + branch
            continue
        torch.testing.assert_close(given[here][0], branch)
        branch = given[here][1]
        if not on_branch[here]:
            stream = branch
    assert [name for name in flow if name != "plus"] == names


@pytest.mark.parametrize("order", list(BLOCKS))
def test_code_beside_the_drawing_is_the_blocks_own(order):
    """Of the drawing's words, the code is what begins with x = and what goes on."""
    words = [m.name for m in diagram.block(order).marks if m.kind == "text"]
    lines = "".join(w.strip() for w in words if w.startswith(("x = ", "    ")))
    want = diagram.code_lines(order)
    assert len(want) == 2 and lines == "".join(want)
    for name in calls(order)[0]:
        assert f"{name}(" in lines


def test_whole_gpt_has_the_parts_of_the_module():
    for order in BLOCKS:
        made = config(order=order, dropout=0.1, norm="rmsnorm")
        parts = [part for part in diagram.gpt(made).parts if part != "dropout"]
        model = GPT(made)
        inner = [f for f in parts if hasattr(model.blocks[0], f)]
        assert inner == calls(order)[0]
        outer = [part for part in parts if part not in inner]
        has_norm = not isinstance(model.final_norm, torch.nn.Identity)
        assert outer == ["tok_emb", "pos_emb", "drop"] + ["final_norm"] * has_norm + [
            "head"
        ]
    rotary = diagram.gpt(config(positions="rotary"))
    assert "pos_emb" not in rotary.parts and "drop" not in rotary.parts


def test_highlight_is_strong_and_the_rest_pale():
    figure = diagram.block("pre", highlight="norm", dropout=True)
    for mark in figure.marks:
        if mark.kind in KINDS:
            assert mark.strong == (mark.kind == "norm"), mark
    assert figure.svg().count("font-weight:700") == 2
    assert all(m.strong for m in diagram.block().marks if m.kind in KINDS)
    both = diagram.block(highlight=("norm", "attention"))
    strong = {m.kind for m in both.marks if m.kind in KINDS and m.strong}
    assert strong == {"norm", "attention"}


def test_one_step_of_attention_is_strong():
    figure = diagram.attention_head(dropout=True, highlight="dropout")
    parts = [mark for mark in figure.marks if mark.kind in KINDS]
    assert [mark.name for mark in parts if mark.strong] == ["dropout"] and parts[1:]


def test_each_of_several_orders_stands_close_below_its_name():
    figure = diagram.orders("plain", "residual", "pre")
    for name in ("Plain", "Residual", "Pre-LN"):
        (word,) = (m for m in figure.marks if m.kind == "text" and m.name == name)
        below = [m.y for m in figure.marks if m.kind in KINDS and m.y > word.y]
        assert 0 < min(below) - (word.y + word.height) < 16, name


def test_dropout_ends_each_sublayer():
    parts = diagram.block("reordered", dropout=True).parts
    assert parts == ["attn", "dropout", "attn_norm", "mlp", "dropout", "mlp_norm"]


def test_alt_text_says_the_order():
    pre, post = (diagram.block(order, norm="rmsnorm").alt for order in ("pre", "post"))
    assert pre.index("RMSNorm") < pre.index("attention") < pre.index("added")
    assert post.index("attention") < post.index("added") < post.index("RMSNorm")


def test_what_rmsnorm_leaves_out_is_pale():
    marks = {m.name: m.strong for m in diagram.norm("rmsnorm").marks if m.kind in KINDS}
    assert [name for name, strong in marks.items() if not strong] == [
        "− mean",
        "+ shift",
    ]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (
            lambda: diagram.block("middle"),
            "order='middle' is unknown; choose one of pl",
        ),
        (lambda: diagram.block(norm="batch"), "norm='batch' is unknown; choose one of"),
        (
            lambda: diagram.block(mlp="relu"),
            "mlp='relu' is unknown; choose one of gelu",
        ),
        (lambda: diagram.rung("middle"), "order='middle'"),
        (lambda: diagram.block(highlight="all"), "highlight='all'"),
        (lambda: diagram.mlp("elu"), "kind='elu'"),
        (lambda: diagram.norm("batch"), "kind='batch'"),
        (lambda: diagram.chain([], "Nothing at all here.", of="ink"), "of='ink'"),
        (lambda: diagram.chain([("box", "a")], "One box."), "kind='box'"),
    ],
)
def test_unknown_words_are_refused_by_name(call, words):
    with pytest.raises(ValueError, match=re.escape(words)):
        call()


def test_it_may_be_a_frame_of_an_explorable():
    shown = book.Explorable(
        lambda order: diagram.block(order), "Choose an order.", order=list(BLOCKS)
    )
    assert "<svg" in shown._repr_html_()
    assert [figure.parts for figure in shown.figures] == [
        diagram.block(order).parts for order in BLOCKS
    ]


def test_one_colour_for_each_part():
    for part in ("attention", "mlp", "norm", "stream"):
        assert KINDS[part] == part and part in COLORS
