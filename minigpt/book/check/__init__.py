"""Checks of the reader's code: each says what holds, or which mistake it looks like.

    from minigpt.book import check

    check.rmsnorm(RMSNorm)  # displays itself; has .passed, .mechanism and .message

A check is named after the part, takes the reader's class or function as the exercise's
signature says, and returns a `Result`. It tries one mechanism after the other, in the
order in which a reader would build them, and stops at the first that does not hold. The
reader's output is compared with the right one, then with the outputs that known
mistakes have on the same input; the one that fits gives the sentence. Nothing of the
reader's session is changed: random numbers, default dtype and gradient mode are put
back, and what the code prints is caught and reported.

How a new check is added
------------------------
1. Choose the file by subject, or begin one. Its name is not that of a check, or the
   module would hide the function. Export the function here.
2. Write the function of the judge and of the answer, decorated with what is judged:

       @judged("Doubling")
       def doubling(judge, answer):
           \"""Judge `double(x)`: every number twice.\"""
           answers.wants(judge, answer, "double(x)", classes=False)
           x = torch.tensor([1.0, -2.0, 3.0])
           with judge.mechanism("the factor"):
               y = answers.invoke(judge, answer, "double(x)", x=x)
               y = judge.tensor(y, x.shape, what="your function")
               judge.compare(
                   y, 2 * x, [("That is x squared; `2 * x` is wanted.", x * x)], x=x
               )

   Call the reader's code through `answers.invoke`, `answers.build` and `judge.call`
   alone: they match arguments by name or by place, turn errors into words, know
   `raise NotImplementedError`, and see whether an input was changed. `judge.tensor`
   judges what came back, `judge.compare` its numbers, `judge.fail` says the rest.
3. Choose small inputs on which the right output and those of all mistakes differ, a few
   numbers that a reader can follow. Isolate: a gain of 1 and an eps of nothing while
   the formula is judged, then a large eps, then a gain with a negative number. A
   sentence says what the code does, then what it should do. It is not sure to be the
   cause, so it does not say "error".
4. Set the parameters of a class by what they are (`answers.by_name`, then shape, then
   the number they begin with), never by one name alone. Say so where it cannot be done.
5. In `tests/check/`, give it right answers in several styles, and a mutant for each
   sentence, with a word that the message must hold. `python tests/check/table.py`
   prints all mutants and messages.
"""

from minigpt.book.check.attentions import attention, last_token
from minigpt.book.check.drops import drop_connect, dropout, stochastic_depth
from minigpt.book.check.norms import (
    layer_norm_backward,
    layernorm,
    on_the_sphere,
    partial_rms_norm,
    plus_one_norm,
    rmsnorm,
)
from minigpt.book.check.result import Result
from minigpt.book.check.sampling import (
    filter_logits,
    min_p_filter,
    sample,
    top_k,
    top_p,
)
from minigpt.book.check.small import (
    crop,
    encode_word,
    flattery,
    gain,
    hold,
    sees_the_future,
    sign_flips,
)
from minigpt.book.check.swiglus import fold, from_fused, swiglu, way_back
from minigpt.book.check.wiring import (
    compose,
    contributions,
    highway,
    order_of,
    post_block,
    pre_block,
    residual,
)

__all__ = [
    "Result",
    "attention",
    "compose",
    "contributions",
    "crop",
    "drop_connect",
    "dropout",
    "encode_word",
    "filter_logits",
    "flattery",
    "fold",
    "from_fused",
    "gain",
    "highway",
    "hold",
    "last_token",
    "layer_norm_backward",
    "layernorm",
    "min_p_filter",
    "on_the_sphere",
    "order_of",
    "partial_rms_norm",
    "plus_one_norm",
    "post_block",
    "pre_block",
    "residual",
    "rmsnorm",
    "sample",
    "sees_the_future",
    "sign_flips",
    "stochastic_depth",
    "swiglu",
    "top_k",
    "top_p",
    "way_back",
]
