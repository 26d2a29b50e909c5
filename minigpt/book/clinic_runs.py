"""What the clinic's patients are made of, and how they are examined.

A `Plan` is the list of the parts of a training run. In a sick plan one part is wrong,
and the page shows the difference of its source from the right one's. `run` trains a
plan and examines the model; `tools/record_clinic.py` keeps what it finds.
"""

import functools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import islice

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from minigpt.attention import CausalSelfAttention
from minigpt.block import Block, PostNormBlock
from minigpt.depth import Stack, TokenEmbedding, initialise, loss_of, record
from minigpt.dropout import Dropout, dropout
from minigpt.layernorm import LayerNorm
from minigpt.mlp import MLP
from minigpt.residual import ResidualBlock
from minigpt.rmsnorm import RMSNorm
from minigpt.text import Batches, CharTokenizer, split, tiny_shakespeare, windows

CONTEXT, BATCH, HEADS = 32, 16, 4
LOOKS = 12  # times that the validation loss is taken, and means of the training loss
HELD_OUT = 160  # validation windows
PROBE = 32  # of them for the examination
CURVES = ("train", "val", "length")


# --- Parts ----------------------------------------------------------------------------
# A wrong part stands above the right one, unless the right one is the package's own.


def bare_residual(attn, mlp, attn_norm, mlp_norm) -> nn.Module:
    return ResidualBlock(attn, mlp)


class NormedStreamBlock(Block):
    """A block that forgets the stream: the norm's output takes its place."""

    def forward(self, x: Tensor) -> Tensor:
        x = self.attn_norm(x)
        x = x + self.attn(x)
        x = self.mlp_norm(x)
        x = x + self.mlp(x)
        return x


class OpenAttention(CausalSelfAttention):
    """Attention to every place, also to those that come later."""

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.queries_keys_values(x)  # (B, H, T, K) each
        y = F.scaled_dot_product_attention(q, k, v)
        y = y.transpose(1, 2).reshape(x.shape)  # (B, T, H, K) -> (B, T, D)
        return F.dropout(self.out(y), self.dropout, self.training)


class HalfNorm(RMSNorm):
    """RMSNorm whose arithmetic is done in float16."""

    def forward(self, x: Tensor) -> Tensor:
        wide = x.to(torch.float16)
        mean_square = wide.square().mean(-1, keepdim=True)
        y = wide * torch.rsqrt(mean_square + self.eps)
        return y.to(x.dtype) * self.weight


class WideNorm(RMSNorm):
    """RMSNorm whose arithmetic is done in float32."""

    def forward(self, x: Tensor) -> Tensor:
        wide = x.to(torch.float32)
        mean_square = wide.square().mean(-1, keepdim=True)
        y = wide * torch.rsqrt(mean_square + self.eps)
        return y.to(x.dtype) * self.weight


class AlwaysDropout(Dropout):
    """Dropout that does not ask in which mode the model is."""

    def forward(self, x: Tensor) -> Tensor:
        return dropout(x, self.p, True)


class ReluMLP(MLP):
    """The MLP as the first transformer had it."""

    bend = staticmethod(F.relu)


class SquareMLP(MLP):
    """An MLP whose neurons answer with the square of what ReLU lets through."""

    bend = staticmethod(lambda z: F.relu(z).square())


def no_norm(size: int) -> nn.Module | None:
    return None


def last_norm(size: int) -> nn.Module | None:
    return LayerNorm(size)


def no_dropout() -> nn.Module:
    return nn.Identity()


def some_dropout() -> nn.Module:
    return Dropout(0.5)


def stuck_dropout() -> nn.Module:
    return AlwaysDropout(0.5)


def xavier(model: Stack) -> None:
    initialise(model, "xavier")


def closed_start(model: Stack) -> None:
    initialise(model, "xavier")
    for block in model.blocks:
        nn.init.constant_(mlp_of(block).up.bias, -4.0)


def open_start(model: Stack) -> None:
    initialise(model, "xavier")
    for block in model.blocks:
        nn.init.constant_(mlp_of(block).up.bias, 0.0)


def shifted(rows: Tensor) -> tuple[Tensor, Tensor]:
    return rows[:, :-1], rows[:, 1:]


def unshifted(rows: Tensor) -> tuple[Tensor, Tensor]:
    return rows[:, :-1], rows[:, :-1]


def accumulate(model: nn.Module, pieces: list[tuple[Tensor, Tensor]]) -> float:
    total = 0.0
    for piece in pieces:
        loss = loss_of(model, piece) / len(pieces)
        loss.backward()
        total += loss.item()
    return total


def accumulate_undivided(model: nn.Module, pieces: list[tuple[Tensor, Tensor]]):
    total = 0.0
    for piece in pieces:
        loss = loss_of(model, piece)
        loss.backward()
        total += loss.item()
    return total


def brisk(step: int) -> float:
    return 1e-2


def steady(step: int) -> float:
    return 3e-3


def hasty(step: int) -> float:
    return 0.1


def warmed_up(step: int) -> float:
    return 3e-3 * min(1.0, step / 100)


def mlp_of(block: nn.Module) -> MLP:
    return next(module for module in block.modules() if isinstance(module, MLP))


# --- A run ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Plan:
    """What a run is made of."""

    block: Callable[..., nn.Module] = Block
    attention: Callable[..., nn.Module] = CausalSelfAttention
    mlp: Callable[..., nn.Module] = MLP
    norm: Callable[[int], nn.Module] = LayerNorm
    final_norm: Callable[[int], nn.Module | None] = last_norm
    dropout: Callable[[], nn.Module] = no_dropout
    start: Callable[[Stack], None] = xavier
    pairs: Callable[[Tensor], tuple[Tensor, Tensor]] = shifted
    gradient: Callable[[nn.Module, list], float] = accumulate
    rate: Callable[[int], float] = steady
    pieces: int = 1
    clip: float | None = None
    n_layers: int = 4
    d_model: int = 48
    steps: int = 240


DEEP = Plan(n_layers=12, steps=120)
SQUARE = Plan(mlp=SquareMLP, norm=WideNorm, final_norm=WideNorm, rate=brisk)
POST = Plan(block=PostNormBlock, final_norm=no_norm, n_layers=6, d_model=64)
PIECES = Plan(pieces=4, clip=1.0)
RELU = Plan(mlp=ReluMLP, start=open_start)

PLANS = {
    "control": Plan(),
    "explodes": replace(DEEP, block=bare_residual, final_norm=no_norm),
    "deep": DEEP,
    "bare end": replace(DEEP, final_norm=no_norm),
    "leak": Plan(attention=OpenAttention),
    "dropout": Plan(dropout=some_dropout),
    "stuck dropout": Plan(dropout=stuck_dropout),
    "post": POST,
    "post warmed up": replace(POST, rate=warmed_up),
    "hasty": Plan(rate=hasty),
    "unshifted": Plan(pairs=unshifted),
    "closed": replace(RELU, start=closed_start),
    "open": RELU,
    "undivided": replace(PIECES, gradient=accumulate_undivided),
    "divided": PIECES,
    "normed stream": Plan(block=NormedStreamBlock, n_layers=8, steps=180),
    "eight blocks": Plan(n_layers=8, steps=180),
    "normed stream, four blocks": Plan(block=NormedStreamBlock),
    "half": replace(SQUARE, norm=HalfNorm, final_norm=HalfNorm),
    "wide": SQUARE,
}


@functools.cache
def text() -> tuple[Tensor, Tensor, int]:
    """Ids of the training text, rows (W, T + 1) of the validation text, and V."""
    corpus = tiny_shakespeare()
    tokenizer = CharTokenizer(corpus)
    train, val = (torch.tensor(tokenizer.encode(part)) for part in split(corpus))
    x, y = windows(val[: HELD_OUT * CONTEXT + 1], CONTEXT)
    return train, torch.cat((x, y[:, -1:]), 1), tokenizer.vocab_size


def unigram() -> float:
    """Loss of who knows how often each character comes, and nothing else, in nats."""
    targets = text()[1][:, 1:].flatten()
    share = torch.bincount(targets).double() / len(targets)
    share = share[share > 0]
    return -(share * share.log()).sum().item()


def uniform() -> float:
    """Loss of who gives every character the same chance, in nats."""
    return math.log(text()[2])


def read(steps: int) -> float:
    """How many times a run of so many steps reads the training text."""
    return steps * BATCH * CONTEXT / len(text()[0])


def build(plan: Plan, seed: int) -> Stack:
    """The model of a plan, with its first weights."""
    torch.manual_seed(seed)
    D, vocab_size = plan.d_model, text()[2]
    blocks = [
        plan.block(
            attn=nn.Sequential(plan.attention(D, HEADS), plan.dropout()),
            mlp=nn.Sequential(plan.mlp(D, 4 * D), plan.dropout()),
            attn_norm=plan.norm(D),
            mlp_norm=plan.norm(D),
        )
        for _ in range(plan.n_layers)
    ]
    embed = TokenEmbedding(vocab_size, CONTEXT, D)
    model = Stack(embed, blocks, nn.Linear(D, vocab_size), plan.final_norm(D))
    plan.start(model)
    return model


def batches(plan: Plan, seed: int) -> Iterator[list[tuple[Tensor, Tensor]]]:
    """Batches of training text, each as the plan's number of pieces."""
    for x, y in Batches(text()[0], BATCH, CONTEXT, seed=seed):
        rows = torch.cat((x, y[:, -1:]), 1)
        yield [plan.pairs(piece) for piece in rows.chunk(plan.pieces)]


def train(model: Stack, plan: Plan, seed: int) -> Iterator[tuple[float, float]]:
    """Train in place with Adam; yield each step's loss and its gradient's length.

    Ends before the step whose loss or gradient is no number.
    """
    optimizer = torch.optim.Adam(model.parameters(), fused=True)
    limit = math.inf if plan.clip is None else plan.clip
    for step, pieces in enumerate(batches(plan, seed), 1):
        for group in optimizer.param_groups:
            group["lr"] = plan.rate(step)
        optimizer.zero_grad()
        loss = plan.gradient(model, pieces)
        length = nn.utils.clip_grad_norm_(model.parameters(), limit).item()
        if not math.isfinite(loss + length):
            return
        optimizer.step()
        yield loss, length


def run(plan: Plan, seed: int, steps: int | None = None, looks: int = LOOKS) -> dict:
    """Train a plan and examine what has become of the model.

    A run whose loss is no longer a number ends there; what is missing is None.

    Args:
        plan: the run's parts.
        seed: of the first weights, the batches and dropout.
        steps: the plan's own number, if not given; no fewer than `looks`.
        looks: how many times the run is looked at.

    Returns:
        "first": the losses of the first five steps. "steps": when the run was looked
        at; at each look "train", the mean training loss since the last, "val", and
        "length", the mean length of the gradient before clipping. "start" and "end":
        size of each block's output ("signal") and of its gradient. "sheet": see
        `examine`; and "first loss", "first step", the length of the first step's change
        over that of all matrices, and "growth", their length at the end over that at
        the start.
    """
    steps = steps or plan.steps
    if not 1 <= looks <= steps:
        raise ValueError(f"steps={steps} are too few to look {looks} times")
    every = steps // looks
    model = build(plan, seed)
    matrices = [p for p in model.parameters() if p.ndim == 2]
    begun = [matrix.detach().clone() for matrix in matrices]
    found = {"first": [], "steps": list(range(every, every * looks + 1, every))}
    found |= {name: [] for name in CURVES}
    found["start"] = layers(model, plan)
    losses, lengths, first_step = [], [], math.nan
    training = islice(train(model, plan, seed), every * looks)
    for step, (loss, length) in enumerate(training, 1):
        losses.append(loss)
        lengths.append(length)
        if step == 1:
            change = [after - before for after, before in zip(matrices, begun)]
            first_step = size(change) / size(begun)
        if step % every == 0:
            found["train"].append(mean(losses[-every:]))
            found["length"].append(mean(lengths[-every:]))
            found["val"].append(held_out(model, plan).mean().item())
    found["first"] = losses[:5]
    for name in CURVES:
        found[name] += [math.nan] * (looks - len(found[name]))
    found["end"] = layers(model, plan)
    found["sheet"] = examine(model, plan)
    found["sheet"] |= {"first loss": (losses or [math.nan])[0]}
    found["sheet"]["first step"] = first_step
    found["sheet"]["growth"] = size(matrices) / size(begun)
    return rounded(found)


def mean(values: list[float]) -> float:
    return sum(values) / len(values)


def rounded(found):
    """Numbers with four significant digits, and None for what is no number."""
    if isinstance(found, dict):
        return {name: rounded(value) for name, value in found.items()}
    if isinstance(found, list):
        return [rounded(value) for value in found]
    if isinstance(found, float):
        return float(f"{found:.4g}") if math.isfinite(found) else None
    return found


@torch.no_grad()
def size(tensors: list[Tensor]) -> float:
    """Length of all numbers as one vector."""
    return math.sqrt(sum(t.double().square().sum().item() for t in tensors))


@torch.no_grad()
def held_out(model: nn.Module, plan: Plan) -> Tensor:
    """Validation loss of each target, (W, T), in evaluation mode."""
    model.eval()
    found = []
    for rows in text()[1].split(40):
        inputs, targets = plan.pairs(rows)
        logits = model(inputs).transpose(1, 2)  # (B, V, T)
        found.append(F.cross_entropy(logits, targets, reduction="none"))
    model.train()
    return torch.cat(found)


def layers(model: nn.Module, plan: Plan) -> dict[str, list[float]]:
    """Size of what each block returns, and of the loss's gradient for it."""
    model.eval()
    found = record(model, plan.pairs(text()[1][:PROBE]))
    model.train()
    return {"signal": found.signal, "gradient": found.gradient}


# --- The examination ------------------------------------------------------------------


class Silent(nn.Module):
    """A sublayer that has nothing to say."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.zeros_like(x)


@torch.no_grad()
def examine(model: Stack, plan: Plan) -> dict[str, float]:
    """The tests of the clinic's sheet, in evaluation mode on validation text.

    Returns:
        "again": how far two validation losses with the same weights lie apart.
        "last place" and "other places": loss at the last place of a window, where no
        later character is in sight, and elsewhere. "later": how much logits move when
        only later characters change, over their own spread. "silent": how much a block
        changes the stream, relative to it, when its sublayers write zeros. "largest":
        largest number on the stream. "zeros": share of tokens that some norm turns into
        zeros. "dead": share of MLP neurons that fire for no token. "evenness": entropy
        of attention's weights over the largest possible. "alike": cosine of two tokens
        after the last block.
    """
    place = held_out(model, plan).mean(0)
    found = {"again": abs((held_out(model, plan).mean(0) - place).mean().item())}
    found |= {"last place": place[-1].item(), "other places": place[:-1].mean().item()}
    model.eval()
    inputs, _ = plan.pairs(text()[1][:PROBE])
    found["later"] = later(model, inputs)
    seen = watch(model, inputs)
    found["silent"] = mean(
        [silenced(block, x) for block, x in zip(model.blocks, seen["block"])]
    )
    streams = torch.stack([*seen["block"], seen["last"]])
    found["largest"] = streams.abs().max().item()
    zeros = [(out == 0).all(-1) for out in seen["norm"]] or [torch.zeros(1)]
    found["zeros"] = torch.stack(zeros).any(0).double().mean().item()
    fires = [(z.flatten(0, -2) > 0).any(0) for z in seen["up"]]
    found["dead"] = 1 - torch.cat(fires).double().mean().item()
    found["evenness"] = mean([evenness(attn, x) for attn, x in seen["attention"]])
    unit = F.normalize(seen["last"].double(), dim=-1)
    n = unit.shape[1]
    found["alike"] = ((unit.sum(1).square().sum(-1) - n) / (n * (n - 1))).mean().item()
    model.train()
    return found


def later(model: nn.Module, inputs: Tensor) -> float:
    half = inputs.shape[1] // 2
    other = inputs.clone()
    other[:, half:] = inputs.roll(1, 0)[:, half:]
    logits = []
    for tokens in (inputs, other):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)  # the same dropout, if there is any
            logits.append(model(tokens)[:, :half])
    return ((logits[1] - logits[0]).std() / logits[0].std()).item()


def silenced(block: nn.Module, x: Tensor) -> float:
    attn, mlp = block.attn, block.mlp
    block.attn = block.mlp = Silent()
    try:
        return ((block(x) - x).square().mean() / x.square().mean()).sqrt().item()
    finally:
        block.attn, block.mlp = attn, mlp


def watch(model: Stack, inputs: Tensor) -> dict[str, list]:
    """What goes into blocks and attention, and what norms and first layers return."""
    seen: dict = {"block": [], "norm": [], "up": [], "attention": []}
    hooks = []
    for block in model.blocks:
        hooks.append(
            block.register_forward_pre_hook(lambda _, args: seen["block"].append(*args))
        )
    for module in model.modules():
        if isinstance(module, LayerNorm | RMSNorm):
            hooks.append(
                module.register_forward_hook(
                    lambda _, args, out: seen["norm"].append(out)
                )
            )
        if isinstance(module, MLP):
            hooks.append(
                module.up.register_forward_hook(
                    lambda _, args, out: seen["up"].append(out)
                )
            )
        if isinstance(module, CausalSelfAttention):
            hooks.append(
                module.register_forward_hook(
                    lambda attn, args, out: seen["attention"].append((attn, *args))
                )
            )
    last = model.blocks[-1].register_forward_hook(
        lambda _, args, out: seen.update(last=out)
    )
    try:
        model(inputs)
    finally:
        for hook in [*hooks, last]:
            hook.remove()
    return seen


def evenness(attn: CausalSelfAttention, x: Tensor) -> float:
    """Entropy of the weights over that of equal ones; the first place has no choice."""
    q, k, _ = attn.queries_keys_values(x)
    scores = q @ k.mT / math.sqrt(q.shape[-1])  # (B, H, T, T)
    T = scores.shape[-1]
    visible = torch.arange(1, T + 1).float()
    if isinstance(attn, OpenAttention):
        visible = torch.full((T,), float(T))
    else:
        hidden = torch.ones(T, T, dtype=torch.bool).triu(1)
        scores = scores.masked_fill(hidden, -math.inf)
    weights = scores.softmax(-1)
    entropy = torch.special.entr(weights).sum(-1)  # (B, H, T)
    return (entropy[..., 1:] / visible[1:].log()).mean().item()
