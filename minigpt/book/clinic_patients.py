"""Who is sick with what: the options of each patient, and what they rest on.

Spoilers. Each statement below an option is computed from the recorded runs, of one seed
at a time, and must hold for all; `clinic.evidence` does that, and the tests.
"""

from collections.abc import Callable
from dataclasses import dataclass

from minigpt.block import Block
from minigpt.book import clinic_runs as parts
from minigpt.dropout import Dropout
from minigpt.residual import ResidualBlock

__all__ = ["PATIENTS", "Option", "Patient"]

Runs = dict[str, dict]  # name of the plan or role -> what `clinic_runs.run` found
Statement = tuple[str, Callable[[Runs], bool]]


@dataclass(frozen=True)
class Option:
    """A diagnosis: whether it is right, why, and the statements that show it."""

    text: str
    right: bool
    why: str
    evidence: tuple[Statement, ...]


@dataclass(frozen=True)
class Patient:
    """A sick plan, its repair, and the question.

    Args:
        name: the disease.
        cure: what the repair does, in a sentence or two.
        plan: key of `clinic_runs.PLANS`.
        cured: key of the repaired plan; empty if there is nothing to repair.
        shown: pairs of the wrong and the right part whose sources are compared.
        options: of the question.
        brief: steps of a run that a reader starts.
        verdict: what such runs, "patient" and "repaired", must show.
    """

    name: str
    cure: str
    plan: str
    cured: str
    shown: tuple[tuple, ...]
    options: tuple[Option, ...]
    brief: int
    verdict: Statement


def lab(runs: Runs, plan: str, name: str) -> float:
    """A number of the sheet."""
    return runs[plan]["sheet"][name]


def equal_first_steps(runs: Runs, plan: str, other: str, within: float) -> bool:
    """Whether the first step is as large as that of another plan, within a share."""
    ratio = lab(runs, plan, "first step") / lab(runs, other, "first step")
    return abs(ratio - 1) < within


def end(runs: Runs, plan: str, curve: str = "val") -> float:
    """The last value of a curve."""
    return runs[plan][curve][-1]


def start(runs: Runs, plan: str) -> list[float]:
    """Size of the stream after each block, before any training."""
    return runs[plan]["start"]["signal"]


def share_of_end(runs: Runs, plan: str) -> float:
    """Gradient for the first block's output over that for the last's, at the end."""
    gradient = runs[plan]["end"]["gradient"]
    return gradient[0] / gradient[-1]


EXPLODES = Patient(
    name="Exploding loss: twelve blocks that add and never normalise",
    cure="The repair gives each sublayer a norm before it, and the stream one before "
    "the head. Learning rate, start and batches stay as they were.",
    plan="explodes",
    cured="deep",
    shown=(
        (ResidualBlock.forward, Block.forward),
        (parts.no_norm, parts.last_norm),
    ),
    options=(
        Option(
            "The learning rate is too high",
            False,
            "The loss is above 20 in the very first batch, and the stream has grown "
            "more than twentyfold from the first block to the last, before a single "
            "step was taken. With norms the same rate trains the same twelve blocks.",
            (
                (
                    "patient 1's loss is above 20 before the first step",
                    lambda r: lab(r, "explodes", "first loss") > 20,
                ),
                (
                    "the repaired run ends below 3 nats at the same rate",
                    lambda r: end(r, "deep") < 3,
                ),
            ),
        ),
        Option(
            "Post-LN without warm-up",
            False,
            "After a Post-LN block the stream has size 1, because a norm stands on it. "
            "Here it is larger after each block than after the one before.",
            (
                (
                    "at the start each block of patient 1 makes the stream larger",
                    lambda r: start(r, "explodes") == sorted(start(r, "explodes")),
                ),
            ),
        ),
        Option(
            "Nothing but the norm before the head is missing",
            False,
            "Without that norm alone the loss also begins too high, but between 6 and "
            "10, and it falls. There the blocks add what they read through a norm, so "
            "the stream grows like a sum. Here it grows like a product.",
            (
                (
                    "without the last norm alone the first loss is from 6 to 10",
                    lambda r: 6 < lab(r, "bare end", "first loss") < 10,
                ),
                (
                    "the stream grows less than eightfold there, above 20-fold here",
                    lambda r: (
                        start(r, "bare end")[-1] < 8 * start(r, "bare end")[0]
                        and start(r, "explodes")[-1] > 20 * start(r, "explodes")[0]
                    ),
                ),
            ),
        ),
        Option(
            "There are no norms: each block multiplies the stream",
            True,
            "A block adds a share of what it reads, so twelve blocks multiply: the "
            "stream, and on the way back the gradient. Training makes the factors "
            "larger, until the loss is no number.",
            (
                (
                    "its last block's output is larger at the end than at the start",
                    lambda r: (
                        r["explodes"]["end"]["signal"][-1]
                        > r["explodes"]["start"]["signal"][-1]
                    ),
                ),
                (
                    "patient 1 ends without a number",
                    lambda r: end(r, "explodes") is None,
                ),
                (
                    "its first block's output gets over 20 times its last's gradient",
                    lambda r: (
                        r["explodes"]["start"]["gradient"][0]
                        > 20 * r["explodes"]["start"]["gradient"][-1]
                    ),
                ),
            ),
        ),
    ),
    brief=24,
    verdict=(
        "its first loss is over four times that of the repaired run",
        lambda r: (
            lab(r, "patient", "first loss") > 4 * lab(r, "repaired", "first loss")
        ),
    ),
)

LEAK = Patient(
    name="No causal mask: attention sees the characters that it should predict",
    cure="The repair is the mask: attend() calls the same function of torch with "
    "is_causal=True. The loss is far worse then, and true.",
    plan="leak",
    cured="control",
    shown=((parts.OpenAttention.forward, parts.CausalSelfAttention.forward),),
    options=(
        Option(
            "It overfits",
            False,
            "Who overfits is better on the text that is trained on. Here training and "
            "validation loss lie within 0.1 nats, and no character was read twice.",
            (
                (
                    "patient 2's losses differ by less than 0.1 nats",
                    lambda r: abs(end(r, "leak") - end(r, "leak", "train")) < 0.1,
                ),
                (
                    "no run of 240 steps reads a character twice",
                    lambda r: parts.read(240) < 1,
                ),
            ),
        ),
        Option(
            "The targets are not shifted",
            False,
            "Then the last place of a window would be as easy as the others, for its "
            "answer is in the input, too. Here it is the one place that is hard.",
            (
                (
                    "with unshifted targets the last place costs below 0.1 nats",
                    lambda r: lab(r, "unshifted", "last place") < 0.1,
                ),
                (
                    "patient 2 pays above 2 nats there, below 0.2 elsewhere",
                    lambda r: (
                        lab(r, "leak", "last place") > 2
                        and lab(r, "leak", "other places") < 0.2
                    ),
                ),
            ),
        ),
        Option(
            "It sees what it should predict",
            True,
            "Early logits move when nothing but later characters change. At every "
            "place but the last, the next character is in sight. When the model "
            "writes, it always stands at the last place: there it is worse than the "
            "control.",
            (
                (
                    "its early logits depend on later characters, the control's do not",
                    lambda r: (
                        lab(r, "leak", "later") > 0.1
                        and lab(r, "control", "later") == 0
                    ),
                ),
                (
                    "at the last place it is worse than the control",
                    lambda r: (
                        lab(r, "leak", "last place") > lab(r, "control", "last place")
                    ),
                ),
            ),
        ),
        Option(
            "Nothing: it is a good model",
            False,
            "The control has the same size and read the same batches, and ends above 2 "
            "nats. A loss near 0 would mean that Shakespeare's next letter is certain.",
            (
                (
                    "the control ends above 2 nats, patient 2 below 0.3",
                    lambda r: end(r, "control") > 2 and end(r, "leak") < 0.3,
                ),
            ),
        ),
    ),
    brief=24,
    verdict=(
        "its early logits depend on later characters, the repaired run's do not",
        lambda r: (
            lab(r, "patient", "later") > 1e-3 and lab(r, "repaired", "later") == 0
        ),
    ),
)

STUCK = Patient(
    name="Dropout stays on in evaluation",
    cure="The repair asks for the mode. It changes what is measured more than what is "
    "learned: the weights were about as good all the time.",
    plan="stuck dropout",
    cured="dropout",
    shown=((parts.AlwaysDropout.forward, Dropout.forward),),
    options=(
        Option(
            "It overfits",
            False,
            "The validation loss does not leave the training loss: they end within 0.1 "
            "nats of each other.",
            (
                (
                    "patient 3's losses end within 0.1 nats",
                    lambda r: (
                        abs(end(r, "stuck dropout") - end(r, "stuck dropout", "train"))
                        < 0.1
                    ),
                ),
            ),
        ),
        Option(
            "The validation text changes from one look to the next",
            False,
            "A good idea, since the same weights give two losses. But both were taken "
            "on the same text, one right after the other. The chance is in the model.",
            (
                (
                    "the same weights give two validation losses in patient 3 alone",
                    lambda r: (
                        [plan for plan in r if lab(r, plan, "again") not in (0, None)]
                        == ["stuck dropout"]
                    ),
                ),
            ),
        ),
        Option(
            "The learning rate is too high",
            False,
            "The first step changed the weights as much as the control's, and the "
            "repaired run has the same rate.",
            (
                (
                    "the first step is as large as the control's within a tenth",
                    lambda r: equal_first_steps(
                        r, "stuck dropout", "control", within=0.1
                    ),
                ),
            ),
        ),
        Option(
            "Dropout is on while it is evaluated",
            True,
            "The same weights on the same text give two different losses, so something "
            "is drawn at random in evaluation. The loss shown is too high: without "
            "dropout a model that was trained alike is better in validation.",
            (
                (
                    "its validation loss is not the same twice, the repaired run's is",
                    lambda r: (
                        lab(r, "stuck dropout", "again") > 0
                        and lab(r, "dropout", "again") == 0
                    ),
                ),
                (
                    "the repaired run ends lower in validation by 0.02 to 0.2 nats",
                    lambda r: 0.02 < end(r, "stuck dropout") - end(r, "dropout") < 0.2,
                ),
                (
                    "up to the first look both trained alike, loss for loss",
                    lambda r: r["stuck dropout"]["first"] == r["dropout"]["first"],
                ),
            ),
        ),
    ),
    brief=24,
    verdict=(
        "its validation loss is not the same twice, the repaired run's is",
        lambda r: lab(r, "patient", "again") > 0 and lab(r, "repaired", "again") == 0,
    ),
)

POST = Patient(
    name="Post-LN without warm-up",
    cure="The repair raises the rate to the same value over 100 steps. Norms on the "
    "branches (Pre-LN) would have done, too: the control has them and no warm-up.",
    plan="post",
    cured="post warmed up",
    shown=((parts.steady, parts.warmed_up),),
    options=(
        Option(
            "The learning rate is too high",
            False,
            "Near, but it says too much. The repaired run keeps this rate for most of "
            "its steps and learns, and the control has it from the first step on. Too "
            "high is the rate for this order of norms in its first steps.",
            (
                (
                    "warmed up, the same model ends over 0.4 nats lower",
                    lambda r: end(r, "post") - end(r, "post warmed up") > 0.4,
                ),
                (
                    "the control learns at the rate of patient 4, without warm-up",
                    lambda r: end(r, "control") < 2.7,
                ),
            ),
        ),
        Option(
            "Post-LN, and no warm-up",
            True,
            "Before training, the stream has size 1 after each block: a norm stands on "
            "it. In the first steps all tokens became alike, and the gradient no "
            "longer reaches the first blocks. What is left knows how often letters "
            "come.",
            (
                (
                    "at the start the stream has size 1 after each block, within 1%",
                    lambda r: all(abs(s - 1) < 0.01 for s in start(r, "post")),
                ),
                (
                    "at the end two tokens have a cosine above 0.99",
                    lambda r: lab(r, "post", "alike") > 0.99,
                ),
                (
                    "the first block's output gets below 1/50 of the last's gradient",
                    lambda r: share_of_end(r, "post") < 1 / 50,
                ),
                (
                    "patient 4 ends within 0.1 nats of letter counts",
                    lambda r: abs(end(r, "post") - parts.unigram()) < 0.1,
                ),
            ),
        ),
        Option(
            "Exploding loss: there are no norms",
            False,
            "The first loss is what it is for the control, and the stream does not "
            "grow from block to block.",
            (
                (
                    "patient 4's first loss is within 1 nat of the control's",
                    lambda r: (
                        abs(
                            lab(r, "post", "first loss")
                            - lab(r, "control", "first loss")
                        )
                        < 1
                    ),
                ),
            ),
        ),
        Option(
            "The neurons of the MLP are dead",
            False,
            "Some fire for no token, because all tokens have become alike. Most do "
            "fire. It is a consequence: the repaired run has next to none.",
            (
                (
                    "less than 60% of the neurons are silent, below 5% when repaired",
                    lambda r: (
                        lab(r, "post", "dead") < 0.6
                        and lab(r, "post warmed up", "dead") < 0.05
                    ),
                ),
            ),
        ),
    ),
    brief=96,
    verdict=(
        "it stays within 0.15 nats of letter counts or above, the repaired run does "
        "not",
        lambda r: (
            end(r, "patient") > parts.unigram() - 0.15
            and end(r, "repaired") < parts.unigram() - 0.15
        ),
    ),
)

HEALTHY = Patient(
    name="Healthy: a run with dropout",
    cure="There is nothing to repair. Dropout of one half is too much for a text that "
    "is not even read once, as the control shows; but that is a choice, no fault.",
    plan="dropout",
    cured="",
    shown=(),
    options=(
        Option(
            "It sees what it should predict: validation is better than training",
            False,
            "No later character moves an early logit, and the losses are not low.",
            (
                (
                    "patient 5's early logits do not depend on later characters",
                    lambda r: lab(r, "dropout", "later") == 0,
                ),
                (
                    "it ends above the control",
                    lambda r: end(r, "dropout") > end(r, "control"),
                ),
            ),
        ),
        Option(
            "Dropout is on while it is evaluated",
            False,
            "The same weights give exactly the same validation loss twice. Nothing is "
            "drawn at random.",
            (
                (
                    "patient 5's validation loss is the same twice, exactly",
                    lambda r: lab(r, "dropout", "again") == 0,
                ),
            ),
        ),
        Option(
            "The training loss is not divided by the number of pieces",
            False,
            "Then it would be a multiple of the validation loss. Here it lies above it "
            "by less than a tenth.",
            (
                (
                    "patient 5's training loss is below 1.1 times its validation loss",
                    lambda r: end(r, "dropout", "train") < 1.1 * end(r, "dropout"),
                ),
            ),
        ),
        Option(
            "Nothing",
            True,
            "The training loss is measured with dropout on, the validation loss with "
            "it off. So the second may be lower. It also comes later: the training "
            "loss is a mean over the steps before. Every other test is as it should "
            "be.",
            (
                (
                    "at every look patient 5's validation loss is the lower one",
                    lambda r: all(
                        v < t
                        for v, t in zip(r["dropout"]["val"], r["dropout"]["train"])
                    ),
                ),
                (
                    "no norm of patient 5 gives zeros, below 5% of neurons are silent",
                    lambda r: (
                        lab(r, "dropout", "silent") == 0
                        and lab(r, "dropout", "zeros") == 0
                        and lab(r, "dropout", "dead") < 0.05
                    ),
                ),
            ),
        ),
    ),
    brief=24,
    verdict=(
        "its validation loss is the same twice, and no later character is seen",
        lambda r: lab(r, "patient", "again") == lab(r, "patient", "later") == 0,
    ),
)

HASTY = Patient(
    name="The learning rate is too high",
    cure="The repair divides the rate by 33. Nothing else was wrong.",
    plan="hasty",
    cured="control",
    shown=((parts.hasty, parts.steady),),
    options=(
        Option(
            "Exploding loss: there are no norms",
            False,
            "Before training all is as in the control: the first loss and the size of "
            "the stream are the same. The stream became large by training.",
            (
                (
                    "patient 6 and the control have the same first loss",
                    lambda r: (
                        lab(r, "hasty", "first loss") == lab(r, "control", "first loss")
                    ),
                ),
            ),
        ),
        Option(
            "The steps are too large",
            True,
            "The first step alone changed the weights by more than half of their size; "
            "the control's by a fortieth or so. The stream became far larger than the "
            "control's, and attention looks at next to single characters.",
            (
                (
                    "the first step changes the weights by over 50%, control below 3%",
                    lambda r: (
                        lab(r, "hasty", "first step") > 0.5
                        and lab(r, "control", "first step") < 0.03
                    ),
                ),
                (
                    "its stream gets over 20 times as large as the control's",
                    lambda r: (
                        lab(r, "hasty", "largest") > 20 * lab(r, "control", "largest")
                    ),
                ),
                (
                    "its attention has an evenness below 0.4, the control's above",
                    lambda r: (
                        lab(r, "hasty", "evenness")
                        < 0.4
                        < lab(r, "control", "evenness")
                    ),
                ),
                (
                    "it ends over 0.5 nats above the control",
                    lambda r: end(r, "hasty") > end(r, "control") + 0.5,
                ),
            ),
        ),
        Option(
            "Post-LN, and no warm-up",
            False,
            "In Post-LN the stream has size 1 after each block. Here it grows from the "
            "start, and a block whose sublayers write zeros returns what it was given: "
            "no norm stands on the stream.",
            (
                (
                    "patient 6's silenced blocks return their input, exactly",
                    lambda r: lab(r, "hasty", "silent") == 0,
                ),
                (
                    "at the start its stream grows at every block",
                    lambda r: start(r, "hasty") == sorted(start(r, "hasty")),
                ),
            ),
        ),
        Option(
            "A norm overflows in half precision",
            False,
            "The stream is large enough for that. But no norm turns a token into "
            "zeros.",
            (
                (
                    "no norm of patient 6 returns zeros",
                    lambda r: lab(r, "hasty", "zeros") == 0,
                ),
            ),
        ),
    ),
    brief=48,
    verdict=(
        "its first step is over ten times as large, and it ends higher",
        lambda r: (
            lab(r, "patient", "first step") > 10 * lab(r, "repaired", "first step")
            and end(r, "patient") > end(r, "repaired")
        ),
    ),
)

UNSHIFTED = Patient(
    name="The targets are not shifted: it learns to repeat its input",
    cure="The repair moves the targets on by one character.",
    plan="unshifted",
    cured="control",
    shown=((parts.unshifted, parts.shifted),),
    options=(
        Option(
            "No causal mask",
            False,
            "Later characters change nothing in early logits. Nobody looks ahead.",
            (
                (
                    "patient 7's early logits do not depend on later characters",
                    lambda r: lab(r, "unshifted", "later") == 0,
                ),
            ),
        ),
        Option(
            "It learned the text by heart",
            False,
            "The validation text is not in the training text, and the run did not read "
            "its own text even once.",
            (
                (
                    "patient 7's validation loss is below 0.05 nats",
                    lambda r: end(r, "unshifted") < 0.05,
                ),
                (
                    "a run of 240 steps reads less than a fifth of the text",
                    lambda r: parts.read(240) < 0.2,
                ),
            ),
        ),
        Option(
            "Its targets are its inputs",
            True,
            "Every place is easy, the last one too, though nothing later is in sight. "
            "So the answer is in what it may see: the character itself.",
            (
                (
                    "patient 7 pays below 0.05 nats at the last place",
                    lambda r: lab(r, "unshifted", "last place") < 0.05,
                ),
                (
                    "the control pays above 2 nats there",
                    lambda r: lab(r, "control", "last place") > 2,
                ),
            ),
        ),
        Option(
            "Nothing: small models learn fast",
            False,
            "The control is the same model on the same text and ends above 2 nats.",
            (
                (
                    "the control ends over 2 nats higher",
                    lambda r: end(r, "control") > end(r, "unshifted") + 2,
                ),
            ),
        ),
    ),
    brief=48,
    verdict=(
        "it ends below 1 nat, the repaired run above 2",
        lambda r: end(r, "patient") < 1 and end(r, "repaired") > 2,
    ),
)

BARE_END = Patient(
    name="The norm before the head is missing",
    cure="The repair is one norm. At this size it costs little to do without: both "
    "runs learn, and end within a quarter of a nat of each other.",
    plan="bare end",
    cured="deep",
    shown=((parts.no_norm, parts.last_norm),),
    options=(
        Option(
            "Nothing: it learns",
            False,
            "It does, and ends within 0.25 nats of the repaired run. But it began over "
            "1.5 nats above a model that gives every character the same chance.",
            (
                (
                    "patient 8 ends within 0.25 nats of the repaired run",
                    lambda r: abs(end(r, "bare end") - end(r, "deep")) < 0.25,
                ),
                (
                    "its first loss is over 1.5 nats above that of a uniform guess",
                    lambda r: lab(r, "bare end", "first loss") > parts.uniform() + 1.5,
                ),
            ),
        ),
        Option(
            "Exploding loss: there are no norms",
            False,
            "The stream grows from block to block, but like a sum: less than eightfold "
            "over twelve blocks. And the loss falls.",
            (
                (
                    "patient 8's stream grows less than eightfold",
                    lambda r: start(r, "bare end")[-1] < 8 * start(r, "bare end")[0],
                ),
                (
                    "its loss falls by over 3 nats",
                    lambda r: end(r, "bare end") < lab(r, "bare end", "first loss") - 3,
                ),
            ),
        ),
        Option(
            "No norm stands before the head",
            True,
            "A Pre-LN stream is a sum and leaves the last block over twice as large as "
            "a norm would make it. The head turns that into logits which are sure of "
            "something before anything was learned, and gradients are longer, too.",
            (
                (
                    "before training the stream leaves the last block with size over 2",
                    lambda r: start(r, "bare end")[-1] > 2,
                ),
                (
                    "the repaired run starts over 1.5 nats lower",
                    lambda r: (
                        lab(r, "deep", "first loss")
                        < lab(r, "bare end", "first loss") - 1.5
                    ),
                ),
                (
                    "the gradient is over three times as long as the repaired run's",
                    lambda r: r["bare end"]["length"][0] > 3 * r["deep"]["length"][0],
                ),
            ),
        ),
        Option(
            "The learning rate is too high",
            False,
            "The first loss is too high before the first step, so no rate can be the "
            "cause. The repaired run has the same.",
            (
                (
                    "the first step is as large as the repaired run's within 1%",
                    lambda r: equal_first_steps(r, "bare end", "deep", within=0.01),
                ),
            ),
        ),
    ),
    brief=24,
    verdict=(
        "it starts over 1 nat above the repaired run",
        lambda r: (
            lab(r, "patient", "first loss") > lab(r, "repaired", "first loss") + 1
        ),
    ),
)

CLOSED = Patient(
    name="Dead neurons: ReLU with a bias that no input overcomes",
    cure="The repair starts the biases at 0. A start of -4 is right for a gate that "
    "should begin closed; on a ReLU it closes the way for the gradient as well.",
    plan="closed",
    cured="open",
    shown=((parts.closed_start, parts.open_start),),
    options=(
        Option(
            "The model is too small",
            False,
            "The repaired run has as many parameters and does better. Here the larger "
            "part of them does nothing.",
            (
                (
                    "repaired, it ends over 0.03 nats lower at the same size",
                    lambda r: end(r, "open") < end(r, "closed") - 0.03,
                ),
            ),
        ),
        Option(
            "The MLPs are dead, attention does all the work",
            True,
            "No neuron fires for any token. ReLU is flat there, so no gradient comes "
            "back that could change it. The curve hides it: attention alone learns "
            "nearly as much here, and only the sheet tells.",
            (
                (
                    "over 99% of patient 9's neurons fire for no token",
                    lambda r: lab(r, "closed", "dead") > 0.99,
                ),
                (
                    "below 10% of the repaired run's",
                    lambda r: lab(r, "open", "dead") < 0.1,
                ),
                (
                    "the two end within 0.3 nats of each other",
                    lambda r: abs(end(r, "closed") - end(r, "open")) < 0.3,
                ),
            ),
        ),
        Option(
            "Attention is dead: it looks everywhere alike",
            False,
            "Its weights are no more even than the repaired run's.",
            (
                (
                    "attention is less even than 0.9, and not above the repaired + 0.1",
                    lambda r: (
                        lab(r, "closed", "evenness") < 0.9
                        and lab(r, "closed", "evenness")
                        < lab(r, "open", "evenness") + 0.1
                    ),
                ),
            ),
        ),
        Option(
            "Nothing",
            False,
            "The losses look it. But a model in which no neuron fires has MLPs for "
            "nothing.",
            (
                (
                    "the control's neurons fire, all but 5% of them at most",
                    lambda r: lab(r, "control", "dead") < 0.05,
                ),
            ),
        ),
    ),
    brief=60,
    verdict=(
        "over 99% of its neurons never fire, below 30% of the repaired run's",
        lambda r: lab(r, "patient", "dead") > 0.99 and lab(r, "repaired", "dead") < 0.3,
    ),
)

UNDIVIDED = Patient(
    name="Accumulated pieces are not divided by their number",
    cure="The repair divides each piece's loss by the number of pieces. Adam had "
    "hidden the fault: it divides each gradient by its own size. What it spoils is the "
    "loss that is shown, and clipping, which now shortens every gradient.",
    plan="undivided",
    cured="divided",
    shown=((parts.accumulate_undivided, parts.accumulate),),
    options=(
        Option(
            "Dropout is on in training",
            False,
            "Dropout lifts the training loss by less than a tenth, even with one half "
            "of all values gone. Here it is four times the validation loss.",
            (
                (
                    "with dropout the training loss is below 1.1 times the other",
                    lambda r: end(r, "dropout", "train") < 1.1 * end(r, "dropout"),
                ),
            ),
        ),
        Option(
            "Exploding loss: there are no norms",
            False,
            "The validation loss is as good as the control's, and so is the stream's "
            "size. Only what is reported of training is large.",
            (
                (
                    "patient 10 ends within 0.1 nats of the control in validation",
                    lambda r: abs(end(r, "undivided") - end(r, "control")) < 0.1,
                ),
            ),
        ),
        Option(
            "The learning rate is four times too high",
            False,
            "With plain gradient descent it would be. Adam divides the gradient by its "
            "own size, so its step is as large as the control's.",
            (
                (
                    "the first step is as large as the control's within 1%",
                    lambda r: equal_first_steps(r, "undivided", "control", within=0.01),
                ),
            ),
        ),
        Option(
            "The loss of four pieces is added, not averaged",
            True,
            "The first loss is four times the repaired run's, the gradient about four "
            "times as long, and the validation loss is as it should be.",
            (
                (
                    "the first loss is 4 times the repaired run's, within 0.1%",
                    lambda r: (
                        abs(
                            lab(r, "undivided", "first loss")
                            / lab(r, "divided", "first loss")
                            - 4
                        )
                        < 0.004
                    ),
                ),
                (
                    "its gradient is 3 to 5 times as long at every look",
                    lambda r: all(
                        3 < a / b < 5
                        for a, b in zip(
                            r["undivided"]["length"], r["divided"]["length"]
                        )
                    ),
                ),
                (
                    "on average it is over the clip of 1 at every look; repaired, at "
                    "none",
                    lambda r: (
                        min(r["undivided"]["length"]) > 1
                        and max(r["divided"]["length"]) < 1
                    ),
                ),
                (
                    "repaired, it ends within 0.1 nats in validation",
                    lambda r: abs(end(r, "undivided") - end(r, "divided")) < 0.1,
                ),
            ),
        ),
    ),
    brief=24,
    verdict=(
        "its training loss is over three times its validation loss, repaired below 1.5",
        lambda r: (
            end(r, "patient", "train") > 3 * end(r, "patient")
            and end(r, "repaired", "train") < 1.5 * end(r, "repaired")
        ),
    ),
)

NORMED_STREAM = Patient(
    name="The residual is taken after the norm",
    cure="The repair keeps x and gives the norm's output to the sublayer only. With "
    "four blocks the fault does no harm here, and even ends lower: what fails is "
    "depth.",
    plan="normed stream",
    cured="eight blocks",
    shown=((parts.NormedStreamBlock.forward, Block.forward),),
    options=(
        Option(
            "Post-LN, and no warm-up",
            False,
            "A near relative: norms stand on the stream here, too, and it fails alike. "
            "But Post-LN's norm is a block's last act, and the stream would have size "
            "1 after it. Here something is added to it: it is larger in every block.",
            (
                (
                    "at the start patient 11's stream is over 1.03 after every block",
                    lambda r: min(start(r, "normed stream")) > 1.03,
                ),
                (
                    "Post-LN's is 1, within 1%",
                    lambda r: all(abs(s - 1) < 0.01 for s in start(r, "post")),
                ),
            ),
        ),
        Option(
            "There is no residual path at all",
            False,
            "Then a block whose sublayers write zeros would return zeros: a change of "
            "exactly 100%.",
            (
                (
                    "patient 11's silenced blocks do not change the stream by 100%",
                    lambda r: abs(lab(r, "normed stream", "silent") - 1) > 0.01,
                ),
            ),
        ),
        Option(
            "The residual is taken after the norm",
            True,
            "A block whose sublayers write nothing should return what it was given. "
            "This one changes it. The stream does not grow as a sum does, tokens have "
            "become alike, and the gradient no longer reaches the first blocks.",
            (
                (
                    "silenced, its blocks change the stream by over 20%, repaired by 0",
                    lambda r: (
                        lab(r, "normed stream", "silent") > 0.2
                        and lab(r, "eight blocks", "silent") == 0
                    ),
                ),
                (
                    "at the end two of its tokens have a cosine above 0.99",
                    lambda r: lab(r, "normed stream", "alike") > 0.99,
                ),
                (
                    "its first block's output gets below 1/50 of the last's gradient",
                    lambda r: share_of_end(r, "normed stream") < 1 / 50,
                ),
                (
                    "at the start its stream grows by below 30%, repaired over twofold",
                    lambda r: (
                        start(r, "normed stream")[-1]
                        < 1.3 * start(r, "normed stream")[0]
                        and start(r, "eight blocks")[-1]
                        > 2 * start(r, "eight blocks")[0]
                    ),
                ),
                (
                    "repaired, it ends over 0.4 nats lower",
                    lambda r: end(r, "eight blocks") < end(r, "normed stream") - 0.4,
                ),
                (
                    "with four blocks, the same fault ends no worse than the control",
                    lambda r: (
                        end(r, "normed stream, four blocks") < end(r, "control") + 0.03
                    ),
                ),
            ),
        ),
        Option(
            "The learning rate is too high",
            False,
            "The first step is as large as the control's within a fifth, and the "
            "repaired run has eight blocks and the same rate, too.",
            (
                (
                    "the first step is as large as the control's within a fifth",
                    lambda r: equal_first_steps(
                        r, "normed stream", "control", within=0.2
                    ),
                ),
            ),
        ),
    ),
    brief=24,
    verdict=(
        "its silenced blocks change the stream, the repaired run's do not",
        lambda r: (
            lab(r, "patient", "silent") > 0.1 and lab(r, "repaired", "silent") == 0
        ),
    ),
)

HALF = Patient(
    name="A norm is computed in half precision and overflows",
    cure="The repair does the norm's arithmetic in float32. The MLPs square their "
    "neurons and the rate is brisk in both runs, so the stream grows; only the half "
    "norm minds.",
    plan="half",
    cured="wide",
    shown=((parts.HalfNorm.forward, parts.WideNorm.forward),),
    options=(
        Option(
            "A norm overflows in half precision",
            True,
            "Float16 ends at 65,504, just below 256 squared. Where a token has a "
            "larger number than that, its mean square is infinite, and the norm "
            "returns zeros: the token is gone. It begins when the stream has grown, "
            "not at the start.",
            (
                (
                    "the largest number on patient 12's stream is above 256",
                    lambda r: lab(r, "half", "largest") > 256,
                ),
                (
                    "over 5% of its tokens are turned into zeros, repaired none",
                    lambda r: (
                        lab(r, "half", "zeros") > 0.05 and lab(r, "wide", "zeros") == 0
                    ),
                ),
                (
                    "at the first look both are within 0.1 nats, at the end over 0.2",
                    lambda r: (
                        abs(r["half"]["val"][0] - r["wide"]["val"][0]) < 0.1
                        and end(r, "half") > end(r, "wide") + 0.2
                    ),
                ),
            ),
        ),
        Option(
            "The learning rate is too high",
            False,
            "It is three times the control's. But the repaired run has the same rate, "
            "and its loss falls without a jump.",
            (
                (
                    "repaired, it ends below 2.8 nats at the same rate",
                    lambda r: end(r, "wide") < 2.8,
                ),
                (
                    "the first steps of both are equal, within 1%",
                    lambda r: equal_first_steps(r, "half", "wide", within=0.01),
                ),
            ),
        ),
        Option(
            "The neurons of the MLP are dead",
            False,
            "Less than a fifth of them fire for no token.",
            (
                (
                    "below 20% of patient 12's neurons are silent",
                    lambda r: lab(r, "half", "dead") < 0.2,
                ),
            ),
        ),
        Option(
            "Exploding loss: there are no norms",
            False,
            "First loss and stream are as in the control before training, and every "
            "loss is a number.",
            (
                (
                    "every loss of patient 12 is a number, and below 6",
                    lambda r: all(
                        v is not None and v < 6
                        for v in r["half"]["val"] + r["half"]["train"]
                    ),
                ),
            ),
        ),
    ),
    brief=48,
    verdict=(
        "some of its tokens become zeros in a norm, none of the repaired run's",
        lambda r: lab(r, "patient", "zeros") > 0 and lab(r, "repaired", "zeros") == 0,
    ),
)

PATIENTS = (
    EXPLODES,
    LEAK,
    STUCK,
    POST,
    HEALTHY,
    HASTY,
    UNSHIFTED,
    BARE_END,
    CLOSED,
    UNDIVIDED,
    NORMED_STREAM,
    HALF,
)
