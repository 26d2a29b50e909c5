"""Wrong and right filters and samplers."""

import math

import torch
from planted import Mutant

# Filters ------------------------------------------------------------------------------


def best_k(logits, k):
    """Keeps places, so ties do not matter."""
    values, places = logits.topk(min(k, logits.shape[-1]), dim=-1)
    return torch.full_like(logits, -math.inf).scatter(-1, places, values)


def k_by_rank(logits, k):
    rank = logits.argsort(dim=-1, descending=True, stable=True).argsort(-1)
    return torch.where(rank < k, logits, -torch.inf)


def k_by_loop(logits, k):
    out = torch.full_like(logits, float("-inf"))
    for row, new in zip(logits, out):
        for place in sorted(range(len(row)), key=lambda i: -row[i].item())[:k]:
            new[place] = row[place]
    return out


def k_with_ties(logits, k):
    last = logits.topk(min(k, logits.shape[-1])).values[..., -1:]
    return logits.masked_fill(logits < last, -math.inf)


def k_strict(logits, k):
    last = logits.topk(min(k, logits.shape[-1])).values[..., -1:]
    return logits.masked_fill(logits <= last, -math.inf)


def k_crash(logits, k):
    places = logits.topk(k).indices
    return torch.full_like(logits, -math.inf).scatter(
        -1, places, logits.gather(-1, places)
    )


def k_smallest(logits, k):
    places = logits.topk(min(k, logits.shape[-1]), largest=False).indices
    return torch.full_like(logits, -math.inf).scatter(
        -1, places, logits.gather(-1, places)
    )


def k_removed(logits, k):
    places = logits.topk(min(k, logits.shape[-1])).indices
    return logits.scatter(-1, places, -math.inf)


def k_plus_one(logits, k):
    return best_k(logits, k + 1)


def k_values(logits, k):
    return logits.topk(min(k, logits.shape[-1])).values


def k_first_places(logits, k):
    out = torch.full_like(logits, -math.inf)
    out[:, :k] = logits[:, :k]
    return out


def k_zero(logits, k):
    places = logits.topk(min(k, logits.shape[-1])).indices
    return torch.zeros_like(logits).scatter(-1, places, logits.gather(-1, places))


def k_whole_batch(logits, k):
    last = logits.flatten().topk(min(k, logits.shape[-1])).values[-1]
    return logits.masked_fill(logits < last, -math.inf)


def k_first_row(logits, k):
    places = logits[:1].topk(min(k, logits.shape[-1])).indices.expand(len(logits), -1)
    return torch.full_like(logits, -math.inf).scatter(
        -1, places, logits.gather(-1, places)
    )


def k_in_place(logits, k):
    logits[logits < logits.topk(min(k, logits.shape[-1])).values[..., -1:]] = -math.inf
    return logits


def k_probabilities(logits, k):
    return best_k(logits, k).softmax(-1)


def k_sorted(logits, k):
    values = logits.sort(-1, descending=True).values.clone()
    values[..., k:] = -math.inf
    return values


TOP_K = [
    Mutant("ties kept", k_with_ties, "Ties are kept"),
    Mutant("threshold lost", k_strict, "too few"),
    Mutant("k above V", k_crash, "min(k, V)"),
    Mutant("smallest kept", k_smallest, "smallest are kept"),
    Mutant("largest removed", k_removed, "largest are taken away"),
    Mutant("k + 1", k_plus_one, "too many"),
    Mutant("values only", k_values, "shape (3, 2)"),
    Mutant("first places", k_first_places, "first places are kept"),
    Mutant("zero, not minus infinity", k_zero, "e to the 0"),
    Mutant("of the whole batch", k_whole_batch, "whole batch"),
    Mutant("places of the first row", k_first_row, "first row are used"),
    Mutant("input changed", k_in_place, "in place"),
    Mutant("probabilities", k_probabilities, "Probabilities came back"),
    Mutant("sorted", k_sorted, "stay as they are"),
    Mutant("nothing", lambda logits, k: logits, "Nothing is taken away"),
]


def nucleus(
    logits,
    p,
    keep=lambda before, mass, p: before < p,
    first=True,
    restore=True,
    descending=True,
    of=lambda t: t.softmax(-1),
):
    mass, order = of(logits).sort(-1, descending=descending)
    total = mass.cumsum(-1)
    kept = keep(total - mass, total, p)
    if p >= 1:
        kept = torch.ones_like(kept)
    if first:
        kept[..., 0] = True
    if restore:
        kept = torch.zeros_like(kept).scatter(-1, order, kept)
    return logits.masked_fill(~kept, -math.inf)


def p_shifted(logits, p):
    """The well-known way: shift the mask by one."""
    if p >= 1:
        return logits.clone()
    values, order = torch.sort(logits, descending=True)
    remove = values.softmax(-1).cumsum(-1) >= p
    remove[..., 1:] = remove[..., :-1].clone()
    remove[..., 0] = False
    return logits.masked_fill(remove.scatter(1, order, remove), float("-inf"))


def p_by_loop(logits, p):
    out = torch.full_like(logits, float("-inf"))
    for row, new in zip(logits, out):
        mass, total = row.softmax(-1), 0.0
        for place in row.argsort(descending=True).tolist():
            new[place] = row[place]
            total += mass[place].item()
            if total >= p and p < 1:
                break
    return out


def p_shift_and_equal(logits, p):
    return nucleus(logits, p, keep=lambda before, mass, p: before <= p)


def p_unsorted(logits, p):
    mass = logits.softmax(-1)
    return logits.masked_fill(mass.cumsum(-1) - mass >= p, -math.inf)


def p_single(logits, p):
    mass = logits.softmax(-1)
    kept = (mass > 1 - p) | (mass == mass.amax(-1, keepdim=True))
    return logits.masked_fill(~kept, -math.inf)


def p_off_for_zero(logits, p):
    return nucleus(logits, p) if p else logits


def p_in_place(logits, p):
    logits.copy_(nucleus(logits, p))
    return logits


def p_of_first_row(logits, p):
    kept = nucleus(logits[:1], p) > -math.inf
    return logits.masked_fill(~kept, -math.inf)


def p_zero(logits, p):
    y = nucleus(logits, p)
    return torch.where(y > -math.inf, y, torch.zeros_like(y))


def p_one_loses(logits, p):
    kept = nucleus(logits, min(p, 0.9999), of=lambda t: t.softmax(-1))
    return kept


TOP_P = [
    Mutant(
        "first dropped",
        lambda t, p: nucleus(t, p, keep=lambda b, m, p: m <= p, first=False),
        "first token is dropped",
    ),
    Mutant(
        "crossing one dropped",
        lambda t, p: nucleus(t, p, keep=lambda b, m, p: m <= p),
        "crosses p is dropped",
    ),
    Mutant("one more on equality", p_shift_and_equal, "reach p=0.25 exactly"),
    Mutant("unsorted", p_unsorted, "order of the vocabulary"),
    Mutant("not taken back", lambda t, p: nucleus(t, p, restore=False), "go back"),
    Mutant(
        "ascending", lambda t, p: nucleus(t, p, descending=False, first=False), "rarest"
    ),
    Mutant("single probabilities", p_single, "best token is kept"),
    Mutant("p = 0 is off", p_off_for_zero, "p=0 is taken"),
    Mutant("p = 1 loses", p_one_loses, "With p=1"),
    Mutant("input changed", p_in_place, "in place"),
    Mutant("places of the first row", p_of_first_row, "first row are used"),
    Mutant("zero, not minus infinity", p_zero, "e to the 0"),
    Mutant("nothing", lambda t, p: t, "Nothing is taken away"),
    Mutant(
        "wrong way round",
        lambda t, p: t.masked_fill(nucleus(t, p) > -math.inf, -math.inf),
        "wrong way round",
    ),
]


def filters(k=best_k, p=nucleus, first_p=False, both=True):
    def filter_logits(logits, top_k=None, top_p=None):
        original = logits
        if first_p and top_p is not None:
            logits = p(logits, top_p)
        if top_k is not None:
            logits = k(logits, top_k)
        if not first_p and top_p is not None:
            if both:
                logits = p(logits, top_p)
            else:
                kept = (logits > -math.inf) & (p(original, top_p) > -math.inf)
                logits = logits.masked_fill(~kept, -math.inf)
        return logits

    return filter_logits


class Filter:
    pass


FILTER = [
    Mutant("ties kept", filters(k=k_with_ties), "Ties are kept"),
    Mutant("first dropped", filters(p=TOP_P[0].answer), "first token is dropped"),
    Mutant("top-p first", filters(first_p=True), "as they were before top-k"),
    Mutant(
        "crash without a number",
        lambda logits, top_k, top_p: nucleus(best_k(logits, top_k), top_p),
        "error",
    ),
    Mutant("k is ignored", filters(k=lambda t, k: t), "Nothing is taken away"),
    Mutant("a class", Filter, "a class"),
]


# The draw -----------------------------------------------------------------------------


def sampler(
    k=best_k,
    p=nucleus,
    temperature=lambda logits, t: logits / t,
    greedy=True,
    draw=lambda mass, g: torch.multinomial(mass, 1, generator=g).squeeze(-1),
    soft=lambda t: t.softmax(-1),
    order="tkp",
):
    def sample(logits, temperature_=1.0, top_k=None, top_p=None, generator=None):
        if greedy and temperature_ == 0:
            return logits.argmax(-1)
        for step in order:
            if step == "t":
                logits = temperature(logits, temperature_)
            if step == "k" and top_k is not None:
                logits = k(logits, top_k)
            if step == "p" and top_p is not None:
                logits = p(logits, top_p)
        return draw(soft(logits), generator)

    return lambda logits, temperature=1.0, top_k=None, top_p=None, generator=None: (
        sample(logits, temperature, top_k, top_p, generator)
    )


def place_of_k(logits, temperature=1.0, top_k=None, top_p=None, generator=None):
    if temperature == 0:
        return logits.argmax(-1)
    logits = logits / temperature
    if top_p is not None:
        logits = nucleus(logits, top_p)
    if top_k is not None:
        logits = logits.topk(min(top_k, logits.shape[-1])).values
    return torch.multinomial(logits.softmax(-1), 1, generator=generator).squeeze(-1)


def place_of_p(logits, temperature=1.0, top_k=None, top_p=None, generator=None):
    if temperature == 0:
        return logits.argmax(-1)
    logits = logits / temperature
    if top_k is not None:
        logits = best_k(logits, top_k)
    if top_p is not None:
        logits = nucleus(logits, top_p).sort(-1, descending=True).values
    return torch.multinomial(logits.softmax(-1), 1, generator=generator).squeeze(-1)


def k_or_p(logits, temperature=1.0, top_k=None, top_p=None, generator=None):
    if top_k is not None:
        top_p = None
    return sampler()(logits, temperature, top_k, top_p, generator)


def first_row_only(logits, temperature=1.0, top_k=None, top_p=None, generator=None):
    ids = sampler()(logits[:1], temperature, top_k, top_p, generator)
    return ids.expand(len(logits))


def one_number(logits, temperature=1.0, top_k=None, top_p=None, generator=None):
    return sampler()(logits, temperature, top_k, top_p, generator)[0].item()


def as_probabilities(logits, temperature=1.0, top_k=None, top_p=None, generator=None):
    return (logits / temperature).softmax(-1)


def global_draw(mass, g):
    return torch.multinomial(mass, 1).squeeze(-1)


def fresh_seed(mass, g):
    return torch.multinomial(
        mass, 1, generator=torch.Generator().manual_seed(0)
    ).squeeze(-1)


def zero_off(logits, temperature=1.0, top_k=None, top_p=None, generator=None):
    return sampler()(logits, temperature, top_k or None, top_p or None, generator)


def no_generator(logits, temperature, top_k, top_p):
    return sampler()(logits, temperature, top_k, top_p)


def changes_logits(logits, temperature=1.0, top_k=None, top_p=None, generator=None):
    logits /= temperature or 1.0
    return sampler()(logits, 1.0, top_k, top_p, generator)


SAMPLE = [
    Mutant(
        "always the best",
        sampler(draw=lambda mass, g: mass.argmax(-1)),
        "`argmax` in place of a draw",
    ),
    Mutant(
        "logits not used",
        sampler(soft=lambda t: torch.ones_like(t) / t.shape[-1]),
        "All tokens are drawn alike",
    ),
    Mutant(
        "softmax twice",
        sampler(soft=lambda t: t.softmax(-1).softmax(-1)),
        "softmax is taken twice",
    ),
    Mutant("wrong sign", sampler(soft=lambda t: (-t).softmax(-1)), "a sign is wrong"),
    Mutant(
        "softmax over the batch",
        sampler(soft=lambda t: t.softmax(0) + 1e-9),
        "over the batch",
    ),
    Mutant(
        "temperature multiplied",
        sampler(temperature=lambda x, t: x * t),
        "multiplied by the temperature",
    ),
    Mutant(
        "temperature ignored",
        sampler(temperature=lambda x, t: x),
        "temperature changes nothing",
    ),
    Mutant("temperature 0 divides", sampler(greedy=False), "divided by 0"),
    Mutant(
        "temperature 0 draws",
        sampler(greedy=False, temperature=lambda x, t: x / (t or 1.0)),
        "Temperature 0 takes the best",
    ),
    Mutant("top-k keeps ties", sampler(k=k_with_ties), "Ties are kept"),
    Mutant("top-k keeps the smallest", sampler(k=k_smallest), "keeps the smallest"),
    Mutant(
        "top-k keeps k + 1", sampler(k=k_plus_one), "Top-k keeps one token too many"
    ),
    Mutant("top-k ignored", sampler(k=lambda t, k: t), "Top-k is not used"),
    Mutant("top-k with zeros", sampler(k=k_zero), "e to the 0"),
    Mutant("top-k place, not token", place_of_k, "place within the k best"),
    Mutant("top-k above V", sampler(k=k_crash), "min(k, V)"),
    Mutant(
        "top-p drops the first",
        sampler(p=lambda t, p: nucleus(t, p, keep=lambda b, m, p: m <= p, first=False)),
        "Top-p drops the first token",
    ),
    Mutant(
        "top-p drops the crossing one",
        sampler(p=lambda t, p: nucleus(t, p, keep=lambda b, m, p: m <= p)),
        "crosses p",
    ),
    Mutant("top-p ignored", sampler(p=lambda t, p: t), "Top-p is not used"),
    Mutant(
        "top-p not taken back",
        sampler(p=lambda t, p: nucleus(t, p, restore=False)),
        "not taken back",
    ),
    Mutant("top-p one more", sampler(p=p_shift_and_equal), "reach p=0.5, and"),
    Mutant("top-p place, not token", place_of_p, "place in the sorted row"),
    Mutant("top_p = 0 is off", zero_off, "is not None"),
    Mutant(
        "top-p before the temperature", sampler(order="kpt"), "before the temperature"
    ),
    Mutant("top-p before top-k", sampler(order="tpk"), "as they were before top-k"),
    Mutant("either of the two", k_or_p, "top-k alone"),
    Mutant("one row for all", first_row_only, "Every row gets the same token"),
    Mutant("one number", one_number, "One number came back"),
    Mutant("probabilities returned", as_probabilities, "token of the vocabulary"),
    Mutant(
        "the global generator", sampler(draw=global_draw), "do not follow `generator`"
    ),
    Mutant(
        "a generator of its own",
        sampler(draw=fresh_seed),
        "Two seeds give the same",
    ),
    Mutant("no generator", no_generator, "no place for `generator`"),
    Mutant("logits changed", changes_logits, "in place"),
    Mutant(
        "floats",
        lambda logits, temperature, top_k, top_p, generator: sampler()(
            logits, temperature, top_k, top_p, generator
        ).float(),
        "whole numbers",
    ),
]


def gumbel(logits, temperature=1.0, top_k=None, top_p=None, generator=None):
    """The best of logits and noise: the same distribution."""
    if temperature == 0:
        return logits.argmax(-1)
    logits = p_shifted(
        k_by_rank(logits / temperature, top_k or logits.shape[-1]),
        1.0 if top_p is None else top_p,
    )
    noise = -torch.log(
        -torch.log(torch.rand(logits.shape, generator=generator).clamp(1e-12, 1 - 1e-7))
    )
    return (logits + noise).argmax(-1)


def inverse(logits, temp, top_k, top_p, gen):
    """By the inverse of the distribution function; in float64, and (B, 1)."""
    if temp == 0:
        return logits.max(-1, keepdim=True).indices
    logits = filters()(logits.double() / temp, top_k, top_p)
    total = logits.softmax(-1).cumsum(-1)
    u = torch.rand(len(logits), 1, generator=gen, dtype=torch.float64) * total[:, -1:]
    return torch.searchsorted(total, u, right=True)


SAMPLE_RIGHT = {
    "filters and multinomial": sampler(),
    "other filters": sampler(k=k_by_rank, p=p_shifted),
    "loops": sampler(
        k=k_by_rank,
        p=p_shifted,
        draw=lambda mass, g: torch.cat(
            [torch.multinomial(row, 1, generator=g) for row in mass]
        ),
    ),
    "noise": gumbel,
    "inverse": inverse,
}


def min_p(
    logits,
    p,
    keep=lambda t, p: t - t.amax(-1, keepdim=True) >= (math.log(p) if p else -math.inf),
):
    return logits.masked_fill(~keep(logits, p), -math.inf)


def min_p_by_softmax(logits, min_p):
    mass = logits.float().softmax(-1)
    kept = mass >= min_p * mass.max(-1, keepdim=True).values
    return torch.where(kept, logits, float("-inf"))


def min_p_in_place(logits, p):
    logits[
        logits.softmax(-1) < p * logits.softmax(-1).amax(-1, keepdim=True)
    ] = -math.inf
    return logits


MIN_P = [
    Mutant(
        "min_p alone",
        lambda t, p: min_p(t, p, lambda t, p: t.softmax(-1) >= p),
        "min_p alone",
    ),
    Mutant(
        "logits as probabilities",
        lambda t, p: min_p(t, p, lambda t, p: t >= p * t.amax(-1, keepdim=True)),
        "as if they were probabilities",
    ),
    Mutant(
        "no logarithm",
        lambda t, p: min_p(t, p, lambda t, p: t - t.amax(-1, keepdim=True) >= -p),
        "without the logarithm",
    ),
    Mutant(
        "the wrong way round",
        lambda t, p: min_p(
            t, p, lambda t, p: t - t.amax(-1, keepdim=True) < math.log(p)
        ),
        "other way round",
    ),
    Mutant(
        "of the whole batch",
        lambda t, p: min_p(t, p, lambda t, p: t - t.max() >= math.log(p)),
        "whole batch",
    ),
    Mutant(
        "log of 0",
        lambda t, p: min_p(
            t, p, lambda t, p: t - t.amax(-1, keepdim=True) >= math.log(p)
        ),
        "error",
    ),
    Mutant("input changed", min_p_in_place, "in place"),
    Mutant("float32 back", lambda t, p: min_p(t.float(), p), "float16 came in"),
]

MUTANTS = {
    "min_p_filter": MIN_P,
    "top_k": TOP_K,
    "top_p": TOP_P,
    "filter_logits": FILTER,
    "sample": SAMPLE,
}
RIGHT = {
    "min_p_filter": {"logits": min_p, "softmax": min_p_by_softmax},
    "top_k": {"places": best_k, "ranks": k_by_rank, "loop": k_by_loop},
    "top_p": {"sorted": nucleus, "shifted": p_shifted, "loop": p_by_loop},
    "filter_logits": {"both": filters(), "others": filters(k_by_rank, p_shifted)},
    "sample": SAMPLE_RIGHT,
}
