"""RMSNorm: the formula in float64, parity with torch and others, few bits, speed."""

import ast
import copy
import importlib.util
import inspect
import json
import math
from pathlib import Path

import nbformat
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

import minigpt.rmsnorm
from minigpt.attention import CausalSelfAttention
from minigpt.book import records
from minigpt.depth import Stack, TokenEmbedding, initialise
from minigpt.layernorm import LayerNorm, layer_norm
from minigpt.mlp import MLP
from minigpt.residual import Residual
from minigpt.rmsnorm import RMSNorm, rms_norm

ROOT = Path(__file__).resolve().parents[1]
HALVES = [torch.float16, torch.bfloat16]
ROUND = dict(rtol=0, atol=5e-5)
FEW = settings(deadline=None, max_examples=25, derandomize=True)


def formula(x, weight, eps):
    """The formula in Python's own numbers, token by token; (..., D) -> (..., D)."""
    out = []
    for token in x.reshape(-1, x.shape[-1]).tolist():
        rms = math.sqrt(math.fsum(v * v for v in token) / len(token) + eps)
        out.append([g * v / rms for v, g in zip(token, weight)])
    return torch.tensor(out, dtype=torch.float64).view(x.shape)


def trained(size, eps=1e-6, seed=0):
    """An RMSNorm whose gain is not 1."""
    norm = RMSNorm(size, eps=eps)
    nn.init.normal_(norm.weight, generator=torch.Generator().manual_seed(seed))
    return norm


def random(*shape, seed=0, dtype=torch.float32):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def by_hand(norm):
    return lambda x: rms_norm(x, norm.weight, norm.eps)


@pytest.fixture(params=["module", "function"])
def make(request):
    """From an RMSNorm the callable to test: itself, or the function on its weights."""
    return (lambda norm: norm) if request.param == "module" else by_hand


# The formulas


@pytest.mark.parametrize("eps", [1e-12, 1e-6, 0.5, 10.0])
@pytest.mark.parametrize("size", [1, 2, 7, 64])
def test_equals_the_formula_in_float64(make, size, eps):
    """y_i = gamma_i x_i / sqrt(mean square + eps). formula: formula"""
    norm = trained(size, eps).double()
    x = 3 * random(4, size, dtype=torch.float64) + 2
    expected = formula(x, norm.weight.tolist(), eps)
    torch.testing.assert_close(make(norm)(x), expected, rtol=1e-12, atol=1e-12)


@FEW
@given(
    rows=st.integers(0, 5),
    size=st.integers(1, 40),
    scale=st.sampled_from([1e-3, 1.0, 1e4]),
    shift=st.floats(-3, 3),
    eps=st.sampled_from([1e-8, 1e-6, 1e-2, 3.0]),
    seed=st.integers(0, 1000),
)
def test_module_and_function_equal_the_formula(rows, size, scale, shift, eps, seed):
    """The same formula for any input, in float32. formula: formula"""
    norm = trained(size, eps, seed)
    x = scale * (random(rows, size, seed=seed) + shift)
    expected = formula(x.double(), norm.weight.tolist(), eps).float()
    for f in (norm, by_hand(norm)):
        torch.testing.assert_close(f(x), expected, rtol=3e-6, atol=3e-6)


@FEW
@given(size=st.integers(2, 64), shift=st.floats(-9, 9), seed=st.integers(0, 1000))
def test_layer_norm_is_rms_norm_of_the_centred_token(size, shift, seed):
    """LayerNorm(x) = RMSNorm(x - mean). formula: centred-formula"""
    norm = trained(size, 1e-3, seed).double()
    x = random(3, size, seed=seed, dtype=torch.float64) + shift
    centred = [[v - math.fsum(t) / size for v in t] for t in x.tolist()]
    centred = torch.tensor(centred, dtype=torch.float64)
    expected = formula(centred, norm.weight.tolist(), 1e-3)
    torch.testing.assert_close(layer_norm(x, norm.weight, eps=1e-3), expected)
    torch.testing.assert_close(norm(centred), expected)


def test_the_jacobian_has_one_direction_less(make):
    """(I - x_hat x_hat^T / D) / rms; its rank is D - 1. formula: way-back-intro"""
    x = random(16, dtype=torch.float64) + 0.5
    jacobian = torch.autograd.functional.jacobian(make(RMSNorm(16, eps=1e-12)), x)
    rms = math.sqrt(math.fsum(v * v for v in x.tolist()) / 16)
    hat = [v / rms for v in x.tolist()]
    rows = [
        [((i == j) - hat[i] * hat[j] / 16) / rms for j in range(16)] for i in range(16)
    ]
    expected = torch.tensor(rows, dtype=torch.float64)
    torch.testing.assert_close(jacobian, expected, rtol=0, atol=1e-10)
    assert torch.linalg.matrix_rank(jacobian, rtol=1e-8) == 15
    other = torch.autograd.functional.jacobian(
        lambda x: layer_norm(x, torch.ones(16).double(), eps=1e-12), x
    )
    assert torch.linalg.matrix_rank(other, rtol=1e-8) == 14


@pytest.mark.parametrize("eps", [1e-6, 0.5])
def test_the_way_back_equals_its_formula(make, eps):
    """Gradients for x and the gain, in plain Python. formula: way-back-formula"""
    norm, size = trained(12, eps).double(), 12
    x = (random(5, size, dtype=torch.float64) + 0.3).requires_grad_()
    g = random(5, size, seed=1, dtype=torch.float64)
    grad_x, grad_weight = torch.autograd.grad(make(norm)(x), [x, norm.weight], g)
    rows, gains = [], [0.0] * size
    for token, up in zip(x.tolist(), g.tolist()):
        rms = math.sqrt(math.fsum(v * v for v in token) / size + eps)
        hat = [v / rms for v in token]
        gamma = norm.weight.tolist()
        along = math.fsum(a * b * c for a, b, c in zip(gamma, up, hat)) / size
        rows.append([(a * b - h * along) / rms for a, b, h in zip(gamma, up, hat)])
        gains = [total + b * h for total, b, h in zip(gains, up, hat)]
    for found, exact in ((grad_x, rows), (grad_weight, gains)):
        exact = torch.tensor(exact, dtype=torch.float64)
        torch.testing.assert_close(found, exact, rtol=1e-10, atol=1e-10)


def test_a_linear_map_and_then_centring_is_a_linear_map():
    """P (W x + b) = (P W) x + P b. formula: convert-formula"""
    linear, x = nn.Linear(5, 8).double(), random(5, dtype=torch.float64)
    y = linear(x).tolist()
    centred = [v - math.fsum(y) / 8 for v in y]
    with torch.no_grad():
        linear.weight -= linear.weight.mean(0)
        linear.bias -= linear.bias.mean()
    torch.testing.assert_close(linear(x), torch.tensor(centred, dtype=torch.float64))


# Torch and the model families


@pytest.mark.parametrize("eps", [1e-6, 0.5])
@pytest.mark.parametrize("shape", [(12,), (5, 12), (2, 5, 12), (2, 3, 5, 12), (0, 12)])
def test_values_and_gradients_equal_torch(make, shape, eps):
    norm, torchs = trained(12, eps), nn.RMSNorm(12, eps=eps)
    torchs.load_state_dict(norm.state_dict())
    direction = random(*shape, seed=1)
    results = []
    for f, owner in ((make(norm), norm), (torchs, torchs)):
        x = (random(*shape, seed=2) + 0.5).requires_grad_()
        y = f(x)
        wanted = [x, owner.weight]
        results.append([y, *torch.autograd.grad((y * direction).sum(), wanted)])
    for ours, theirs in zip(*results):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)


def test_first_and_second_derivatives_are_right_by_differences():
    norm = trained(6, eps=0.1).double()
    x = random(2, 3, 6, dtype=torch.float64).requires_grad_()

    def f(x, weight):
        return torch.func.functional_call(norm, {"weight": weight}, (x,))

    assert torch.autograd.gradcheck(f, (x, norm.weight))
    assert torch.autograd.gradgradcheck(f, (x, norm.weight))


def test_torch_func_goes_through_the_written_way_back():
    norm, x = trained(6).double(), random(4, 3, 6, dtype=torch.float64)

    def loss(f):
        return lambda weight, x: (
            torch.func.functional_call(f, {"weight": weight}, (x,)).sin().sum()
        )

    def plain(weight, x):
        return rms_norm(x, weight, norm.eps).sin().sum()

    for dims in ((None, 0), (0, None)):
        weights = torch.stack([norm.weight.detach(), norm.weight.detach() + 1])
        given = (norm.weight.detach() if dims[0] is None else weights, x)
        for which in (0, 1):
            ours, theirs = (
                torch.func.vmap(torch.func.grad(f, argnums=which), in_dims=dims)(*given)
                for f in (loss(norm), plain)
            )
            torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("family", ["llama", "t5", "olmo2", "gemma"])
def test_a04_the_order_of_gain_and_cast_in_four_families(family, dtype):
    """A04: gain before or after going back; Gemma multiplies by 1 + weight."""
    gain, x = random(64, seed=3).to(dtype), random(50, 64).to(dtype)
    if family == "llama":
        from transformers.models.llama.modeling_llama import LlamaRMSNorm as Norm
    elif family == "t5":
        from transformers.models.t5.modeling_t5 import T5LayerNorm as Norm
    elif family == "olmo2":
        from transformers.models.olmo2.modeling_olmo2 import Olmo2RMSNorm as Norm
    else:
        from transformers.models.gemma.modeling_gemma import GemmaRMSNorm as Norm
    theirs = Norm(64, eps=1e-5).to(dtype)
    with torch.no_grad():
        theirs.weight.copy_(gain)
    if family in ("llama", "t5"):
        ours = rms_norm(x, torch.ones(64), 1e-5) * gain
    elif family == "olmo2":
        ours = rms_norm(x, gain, 1e-5)
    else:
        ours = rms_norm(x, 1 + gain.float(), 1e-5)
    close = dict(rtol=0, atol=0) if dtype == torch.bfloat16 else {}
    torch.testing.assert_close(ours, theirs(x), **close)


@pytest.mark.parametrize("dtype", HALVES)
def test_a04_torch_multiplies_before_going_back(make, dtype):
    norm, x = trained(64).to(dtype), random(50, 64).to(dtype)
    theirs = nn.RMSNorm(64, eps=1e-6, dtype=dtype)
    theirs.load_state_dict(norm.state_dict())
    step = torch.finfo(dtype).eps
    torch.testing.assert_close(make(norm)(x), theirs(x), rtol=step, atol=step)


# A03: few bits


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize(
    "value, eps, right", [(300.0, 1e-6, 1.0), (1e-4, 1e-12, 1.0), (0.0, 1e-12, 0.0)]
)
@pytest.mark.parametrize("weights", ["same", "float32"])
def test_a03_constant_tokens(make, dtype, value, eps, right, weights):
    norm = RMSNorm(8, eps=eps)
    norm = norm.to(dtype) if weights == "same" else norm
    y = make(norm)(torch.full((2, 8), value, dtype=dtype))
    assert y.dtype == dtype
    step = torch.finfo(dtype).eps
    torch.testing.assert_close(y, torch.full_like(y, right), rtol=step, atol=0)


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("weights", ["same", "float32"])
def test_a03_loud_tokens_are_within_an_ulp_of_float32(make, dtype, weights):
    norm = trained(64).to(dtype)  # the weights are what the narrow type can hold
    norm = norm if weights == "same" else norm.float()
    x = (100 * random(4, 64)).to(dtype)
    y, wide = make(norm)(x), make(copy.deepcopy(norm).float())(x.float())
    assert y.dtype == dtype
    ulp = torch.finfo(dtype).eps * wide.abs().clamp(min=torch.finfo(dtype).tiny)
    assert ((y.float() - wide).abs() <= ulp).all()


@pytest.mark.parametrize("value", [0.0, 1e-4, 300.0])
def test_a03_gradients_stay_finite_in_half(value):
    norm = RMSNorm(8, eps=1e-12)
    x = torch.full((2, 8), value, dtype=torch.float16, requires_grad=True)
    (norm(x).float() * random(2, 8)).sum().backward()
    assert norm.weight.grad.isfinite().all() and x.grad.dtype == torch.float16
    if value:  # at zero the slope 1 / sqrt(eps) is above what float16 holds
        assert x.grad.isfinite().all()


@pytest.mark.parametrize("weights", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("dtype", [*HALVES, torch.float32, torch.float64])
def test_dtype_of_the_input_is_kept_whatever_the_weights_are(make, dtype, weights):
    norm = trained(16).to(weights)
    x = random(3, 16, dtype=dtype).requires_grad_()
    y = make(norm)(x)
    y.float().sum().backward()
    expected = formula(x.detach().double(), norm.weight.tolist(), norm.eps)
    tolerance = max(2e-6, torch.finfo(dtype).eps)
    tolerance = 1e-12 if dtype == torch.float64 else tolerance
    assert y.dtype == x.grad.dtype == dtype and norm.weight.grad.dtype == weights
    torch.testing.assert_close(y.double(), expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_under_autocast_it_still_computes_in_float32(dtype):
    norm, x = trained(64), (100 * random(4, 64)).to(dtype).requires_grad_()
    wanted = [x, norm.weight]
    plain = [norm(x), *torch.autograd.grad(norm(x).sin().sum(), wanted)]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = norm(x)
        cast = [y, *torch.autograd.grad(y.sin().sum(), wanted)]
    assert y.dtype == dtype
    for a, b in zip(cast, plain):
        assert torch.equal(a, b)


# A04 and A12: eps is what was given


@pytest.mark.parametrize("eps, out", [(1e-5, 0.3015), (1e-6, 0.7071), (None, 0.9452)])
def test_a04_eps_is_added_to_the_mean_square(make, eps, out):
    """A04: None is the default of torch, the machine epsilon of float32."""
    x = torch.full((1, 8), 1e-3)
    if eps is None:
        torch.testing.assert_close(nn.RMSNorm(8)(x), torch.full((1, 8), out), **ROUND)
        eps = torch.finfo(torch.float32).eps
    y = make(RMSNorm(8, eps=eps))(x)
    torch.testing.assert_close(y, torch.full((1, 8), out), **ROUND)


def test_a04_the_default_is_stated():
    assert RMSNorm(8).eps == 1e-6 and "eps=1e-06" in repr(RMSNorm(8))
    assert inspect.signature(rms_norm).parameters["eps"].default == 1e-6


def test_a12_eps_is_keyword_only():
    with pytest.raises(TypeError):
        RMSNorm(8, 0.1)


# What is kept and what is lost


@FEW
@given(size=st.integers(2, 64), seed=st.integers(0, 1000), k=st.integers(-8, 8))
def test_scale_is_removed_and_shift_is_not(size, seed, k):
    norm, x = trained(size, 1e-12, seed), random(4, size, seed=seed)
    torch.testing.assert_close(norm(2.0**k * x), norm(x), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(norm(-x), -norm(x), rtol=0, atol=0)
    constant = norm(torch.full((size,), 7.0))
    torch.testing.assert_close(constant, norm.weight, rtol=1e-5, atol=1e-6)


def test_shift_moves_the_output(make):
    norm, x = make(RMSNorm(64)), random(4, 64)
    assert (norm(x + 7) - norm(x)).abs().max() > 1


def test_gradient_is_orthogonal_to_x_only(make):
    x = (random(5, 16, dtype=torch.float64) + 0.5).requires_grad_()
    norm = make(trained(16, 1e-14).double())
    (grad,) = torch.autograd.grad(norm(x), x, random(5, 16, seed=1).double())
    assert (grad * x).sum(-1).abs().max() < 1e-10
    assert grad.sum(-1).abs().min() > 1e-3


@pytest.mark.parametrize("seed", range(3))
def test_other_tokens_do_not_matter_in_the_least(make, seed):
    norm, x = make(trained(64)), random(8, 16, 64, seed=seed)
    changed = 100 * random(8, 16, 64, seed=seed + 10)
    changed[3, 5] = x[3, 5]
    assert torch.equal(norm(changed)[3, 5], norm(x)[3, 5])


def test_a_pre_ln_model_is_an_rms_norm_model_without_means():
    """What the chapter's cell `convert` does, on a model with random gains."""
    torch.manual_seed(0)
    blocks = []
    for sublayer in (CausalSelfAttention(16, 2), MLP(16, 64)) * 2:
        norm = LayerNorm(16, bias=False)
        nn.init.normal_(norm.weight)
        blocks.append(Residual(nn.Sequential(norm, sublayer)))
    final = LayerNorm(16, bias=False)
    model = Stack(TokenEmbedding(11, 8, 16), blocks, nn.Linear(16, 11), final)
    initialise(model.double(), "xavier")
    tokens = torch.randint(11, (3, 8))
    names = chapter_names("convert", ["rms_of", "without_means"])
    other = names["without_means"](model)
    kinds = {type(m) for m in other.modules()}
    assert RMSNorm in kinds and LayerNorm not in kinds
    torch.testing.assert_close(other(tokens), model(tokens), rtol=0, atol=1e-10)


def chapter_names(cell_id, wanted):
    """Run the definitions of one cell of the chapter."""
    path = ROOT / "chapters" / "07_rmsnorm.ipynb"
    cells = {cell.id: cell for cell in nbformat.read(path, as_version=4).cells}
    tree = ast.parse(cells[cell_id].source)
    kept = [
        node
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and node.name in wanted
    ]
    names = {"torch": torch, "copy": copy, "MLP": MLP, "RMSNorm": RMSNorm}
    names |= {"records": records, "book": __import__("minigpt.book").book}
    exec(compile(ast.Module(kept, []), cell_id, "exec"), names)
    return names


# Cost


def test_only_x_is_kept_for_the_way_back():
    norm, x = trained(128), random(4, 64, 128).requires_grad_()
    kept = {}

    def pack(tensor):
        if tensor.numel() == x.numel():
            kept[tensor.data_ptr()] = tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        norm(x)
    assert list(kept) == [x.data_ptr()]


def test_the_benchmark_writes_a_record_that_names_no_machine(tmp_path, capsys):
    spec = importlib.util.spec_from_file_location(
        "norms", ROOT / "benchmarks" / "norms.py"
    )
    benchmark = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(benchmark)
    options = ["--no-compile", "--rounds", "1", "--widths", "64", "--write"]
    options += ["--block-widths", "64", "--threads", str(torch.get_num_threads())]
    assert benchmark.main([*options, "--folder", str(tmp_path)]) == 0
    assert "RMSNorm of the book" in capsys.readouterr().out
    (path,) = tmp_path.iterdir()
    record = json.loads(path.read_text("utf-8"))
    kept = records.norm_speed("cpu")
    assert record.keys() == kept.keys() and record["rounds"] == 1
    for widths in (record["norms"], record["block"]):
        for kinds in widths.values():
            for result in kinds.values():
                assert result["ratio"]["LayerNorm fused"] == 1 and result["ms"] > 0


def test_no_record_is_none():
    assert records.norm_speed("no such device") is None


def test_the_record_shows_what_the_chapter_says_of_it():
    """The sentences of `speed-read` and `block-read`, from the kept numbers."""
    record = records.norm_speed("cpu")
    for kinds in record["norms"].values():
        forward, training = (kinds[k]["ratio"] for k in ("forward", "training"))

        def part(kind, ratio):
            return ratio[f"RMSNorm {kind}"] / ratio[f"LayerNorm {kind}"]

        assert 0.45 < part("by hand", forward) < 0.65
        assert 0.65 < part("by hand", training) < 0.77
        for ratio in (forward, training):
            assert 0.66 < part("compiled", ratio) < 0.91
        assert 3 < training["RMSNorm built in"] < 4
        gain = training["RMSNorm of the book"] / training["RMSNorm built in"]
        assert 0.7 < gain < 0.81 and training["RMSNorm of the book"] > 1
    blocks = [kinds["training"]["ratio"] for kinds in record["block"].values()]
    assert all(0.965 < block["no norm"] < 0.995 for block in blocks)
    assert blocks[0]["RMSNorm of the book"] > blocks[0]["RMSNorm built in"] > 1.05
    assert all(abs(ratio - 1) < 0.02 for ratio in blocks[-1].values())


def test_the_chapter_draws_a_gpu_record_too():
    """The branch that no CPU reader sees, with a record that says it is CUDA's."""
    record = json.loads(json.dumps(records.norm_speed("cpu")))
    record |= {"device": "A GPU", "type": "cuda", "threads": None}
    for kinds in record["norms"].values():
        for result in kinds.values():
            for label in [k for k in result["ratio"] if "compiled" in k]:
                del result["ratio"][label]  # as without a compiler
    names = chapter_names("draw-speed", ["draw_speed"])
    names["STYLES"] = {
        "RMSNorm by hand": ("norm", "o", ":"),
        "RMSNorm compiled": ("norm", "s", "-"),
    }
    assert "A GPU, float32" in repr(names["draw_speed"](record))
    block_table = chapter_names("block-share", ["block_table"])
    block_table["kinds"] = ["LayerNorm fused", "no norm"]
    assert "1.00" in repr(block_table["block_table"](record))


# Use


def test_input_may_be_a_view_and_is_not_changed(make):
    norm, x = make(trained(16)), random(16, 3, 5).permute(1, 2, 0)
    assert not x.is_contiguous()
    kept = x.clone()
    torch.testing.assert_close(norm(x), norm(x.contiguous()), rtol=0, atol=1e-6)
    assert torch.equal(x, kept)


def test_weights_are_exchanged_with_torch_both_ways():
    norm, torchs = trained(16), nn.RMSNorm(16)
    torchs.load_state_dict(norm.state_dict())
    fresh = RMSNorm(16)
    fresh.load_state_dict(torchs.state_dict())
    assert list(norm.state_dict()) == ["weight"]
    assert torch.equal(fresh(random(2, 16)), norm(random(2, 16)))


@pytest.mark.parametrize("size", [0, -4])
def test_width_must_be_positive(size):
    with pytest.raises(ValueError, match=f"size={size}"):
        RMSNorm(size)


@pytest.mark.parametrize("eps", [0.0, -1e-5, float("nan"), float("inf")])
def test_eps_must_be_positive_and_finite(eps):
    with pytest.raises(ValueError, match="eps="):
        RMSNorm(8, eps=eps)


@pytest.mark.parametrize("shape", [(2, 7), (8, 1), (2, 8, 9), ()])
def test_wrong_width_names_both(shape):
    with pytest.raises(ValueError) as error:
        RMSNorm(8)(torch.zeros(shape))
    assert "size=8" in str(error.value) and str(shape) in str(error.value)


def test_integers_are_refused_by_name():
    with pytest.raises(ValueError, match=r"torch\.int64"):
        RMSNorm(8)(torch.zeros(2, 8, dtype=torch.int64))


def test_away_from_the_cpu_torchs_own_kernel_is_taken(monkeypatch):
    """The other branch, on the device that has shapes and no numbers."""
    called = []
    torchs = F.rms_norm

    def note(*arguments):
        called.append(arguments)
        return torchs(*arguments)

    monkeypatch.setattr(F, "rms_norm", note)
    y = RMSNorm(8).to("meta")(torch.empty(2, 8, device="meta", dtype=torch.bfloat16))
    assert y.dtype == torch.bfloat16 and y.shape == (2, 8)
    ((x, shape, weight, eps),) = called
    assert x.dtype == weight.dtype == torch.float32 and (shape, eps) == ((8,), 1e-6)


def test_public_names_are_documented():
    assert minigpt.rmsnorm.__all__ == ["rms_norm", "RMSNorm"]
    for thing in (rms_norm, RMSNorm):
        for word in ("Args:", "Source:"):
            assert word in inspect.getdoc(thing)
    assert "Returns:" in inspect.getdoc(RMSNorm.forward)


def test_the_token_three_four():
    """quiz: 1"""
    x = torch.tensor([3.0, 4.0], dtype=torch.float64)
    y = rms_norm(x, torch.ones(2).double(), 1e-12)
    assert y.tolist() == pytest.approx([0.85, 1.13], abs=0.005)
    assert x.square().mean().item() == 12.5 and x.mean().item() == 3.5
    assert math.sqrt(12.5) == pytest.approx(3.54, abs=0.005)
    assert x.norm().item() == 5


def test_a_shift_of_a_hundred():
    """quiz: 2"""
    torch.manual_seed(0)
    x = torch.randn(8, dtype=torch.float64)
    layer, rms = nn.LayerNorm(8).double(), RMSNorm(8).double()
    assert torch.allclose(layer(x), layer(x + 100), atol=1e-6)
    assert (rms(x) - rms(x + 100)).abs().max() > 0.5


def test_the_square_of_300_in_float16():
    """quiz: 5"""
    x = torch.full((4,), 300.0, dtype=torch.float16)
    assert torch.finfo(torch.float16).max == 65504 < 300**2 == 90000
    assert (x * x).isinf().all() and (x * x).float().isinf().all()
    assert (x.float() ** 2).mean().rsqrt().mul(x.float()).tolist() == pytest.approx(
        [1.0] * 4
    )
