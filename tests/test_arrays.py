"""Arrays of every library, dtype and kind of memory, as parameters and as gradients."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse
from jax.experimental import sparse

from optimisers import Adam, Descent, Momentum, Rule, setup, update, update_
from optimisers.arrays import adapter_of, describe
from optimisers.errors import AliasError, DtypeError, OptimiserWarning

BOTH = pytest.mark.parametrize("step", [update, update_])
REAL = ["float64", "float32", "float16", "bfloat16", "float8_e4m3fn"]
DTYPES = pytest.mark.parametrize("dtype", [*REAL, "complex64", "complex128"])


def once(model: Any, grads: Any, step: Any = update_, rule: Any = None, **options: Any) -> Any:
    rule = rule or Descent(0.5)
    return step(setup(rule, model), model, grads, **options)[1]


def aligned(n: int, fill: float, dtype: Any = np.float32) -> Any:
    """Return an array whose memory JAX takes over without a copy."""
    size = n * np.dtype(dtype).itemsize
    buffer = np.zeros(size + 64, np.uint8)
    begin = -buffer.ctypes.data % 64
    x = buffer[begin : begin + size].view(dtype)
    x[:] = fill
    return x


@BOTH
@DTYPES
def test_numpy_and_jax_keep_every_dtype(step: Any, dtype: str) -> None:
    with jax.enable_x64(dtype in ("float64", "complex128")):
        for make in (np.ones, jnp.ones):
            for shape in ((), (3,), (0, 2), (200, 100)):
                x = make(shape, jnp.dtype(dtype))
                state = setup(Adam(0.5), x)
                for _ in range(3):
                    state, x = step(state, x, np.ones(shape))
                assert (str(x.dtype), x.shape) == (dtype, shape)
                assert isinstance(x, np.ndarray if make is np.ones else jax.Array)
                assert np.all(np.abs(np.asarray(x, complex) + 0.5) < 1e-2)
                wide = {"float64", "complex128"} if dtype in ("float64", "complex128") else {
                    "float32", "complex64", "int32"
                }  # fmt: skip
                assert {str(s.dtype) for s in jax.tree.leaves(state.state)} <= wide


@BOTH
@pytest.mark.parametrize(
    "dtype", ["float64", "float32", "float16", "bfloat16", "complex64", "complex128"]
)
def test_torch_keeps_every_dtype(torch: ModuleType, step: Any, dtype: str) -> None:
    for shape in ((), (3,), (0, 2), (200, 100)):
        x = torch.ones(shape, dtype=getattr(torch, dtype))
        state = setup(Adam(0.5), x)
        for _ in range(3):
            state, y = step(state, x, torch.ones(shape))
            assert (y is x) == (step is update_)
            x = y
        assert (str(x.dtype), tuple(x.shape)) == (f"torch.{dtype}", shape)
        assert torch.all(abs(x.to(torch.complex64) + 0.5) < 1e-2)


def test_narrow_tensors_are_computed_by_their_bits(torch: ModuleType) -> None:
    for name in ("float8_e4m3fn", "float8_e5m2"):
        x = torch.ones(2).to(getattr(torch, name))
        assert once(x, torch.ones(2)) is x
        assert x.float().tolist() == [0.5, 0.5]
        assert once(x, torch.ones(2), update).dtype == x.dtype


@BOTH
def test_a_gradient_of_any_library_and_dtype_fits(torch: ModuleType, step: Any) -> None:
    makers = [
        np.ones(2), np.ones(2, np.float16), np.ones(2, jnp.bfloat16), np.ones(2, np.int8),
        np.ones(2, np.uint64), np.ones(2, np.longdouble), np.ones(2, ">f4"), jnp.ones(2),
        jnp.ones(2, jnp.bfloat16), jnp.ones(2, int), torch.ones(2), torch.ones(2).bfloat16(),
        torch.ones(2, requires_grad=True), torch.ones(2, dtype=torch.int64), np.ones(4)[::2],
    ]  # fmt: skip
    for g in makers:
        model = {
            "n": np.ones(2), "f": np.ones(2, np.float32), "h": np.ones(2, np.float16),
            "j": jnp.ones(2), "b": jnp.ones(2, jnp.bfloat16), "t": torch.ones(2),
            "p": torch.nn.Parameter(torch.ones(2, dtype=torch.float64)), "c": np.ones(2, complex),
        }  # fmt: skip
        kinds = {name: (type(x), x.dtype) for name, x in model.items()}
        new = once(model, dict.fromkeys(model, g), step)
        assert {name: (type(x), x.dtype) for name, x in new.items()} == kinds
        for x in new.values():
            values = x.detach().numpy() if isinstance(x, torch.Tensor) else x
            assert np.array_equal(np.asarray(values, complex), [0.5, 0.5]), g


def test_gradients_of_many_dtypes_meet_in_one_pack_and_in_one_tie() -> None:
    dtypes = ["float64", "float32", "float16", "bfloat16", "int64", "uint8"]
    for make in (np.ones, jnp.ones):
        model = {d: make(3, np.float32) for d in dtypes}
        new = once(model, {d: np.ones(3, d) for d in dtypes})
        assert all(np.array_equal(x, [0.5, 0.5, 0.5]) for x in new.values())
        w = make(3, np.float32)
        tied = once([w] * 6, [np.ones(3, d) for d in dtypes])
        assert np.array_equal(tied[5], [-2.0, -2.0, -2.0])
        w = make(3, np.float32)
        both = once([w, w], [np.ones(3), jnp.ones(3, jnp.bfloat16)])
        assert np.array_equal(both[0], [0.0, 0.0, 0.0])


@BOTH
def test_sparse_gradients_are_summed_to_dense_ones(torch: ModuleType, step: Any) -> None:
    dense = np.array([[0, 3], [4, 0]], np.float32)
    at, values = [[0, 0, 1], [1, 1, 0]], [1.0, 2.0, 4.0]  # the entry [0, 1] stands there twice
    indices = jnp.array(at).T
    with warnings.catch_warnings(action="ignore"):  # torch says that this is new
        gs = [
            scipy.sparse.coo_matrix((values, at), (2, 2)),
            scipy.sparse.coo_array((values, at), (2, 2)),
            scipy.sparse.csr_array(dense), scipy.sparse.csc_matrix(dense),
            sparse.BCOO((jnp.array(values), indices), shape=(2, 2)), sparse.BCSR.fromdense(dense),
            torch.sparse_coo_tensor(at, values, (2, 2)), torch.tensor(dense).to_sparse_csr(),
            torch.tensor(dense, dtype=torch.bfloat16).to_sparse(),
        ]  # fmt: skip
        for g in gs:
            for x in (np.zeros((2, 2)), jnp.zeros((2, 2)), torch.zeros(2, 2)):
                assert np.array_equal(np.asarray(once(x, g, step)), -0.5 * dense)


def test_sparse_arrays_are_no_parameters(torch: ModuleType) -> None:
    eye = torch.eye(2).to_sparse()
    model = [np.ones(1), eye, sparse.BCOO.fromdense(jnp.eye(2)), scipy.sparse.eye_array(2)]
    new = once(model, [np.ones(1), None, None, None])
    assert all(a is b for a, b in zip(new, model, strict=True))
    assert new[0] == 0.5


@BOTH
def test_torch_parameters_stay_parameters(torch: ModuleType, step: Any) -> None:
    model = {
        "w": torch.nn.Parameter(torch.ones(2)), "fixed": torch.nn.Parameter(torch.ones(2), False),
        "plain": torch.ones(2), "leaf": torch.ones(2, requires_grad=True), "int": torch.arange(2),
    }  # fmt: skip
    old = dict(model)
    g = dict.fromkeys(model, torch.ones(2))
    new = once(model, g, step)
    for name in ("w", "plain", "leaf"):
        assert type(new[name]) is type(old[name])
        assert new[name].requires_grad == old[name].requires_grad
        assert new[name].tolist() == [0.5, 0.5]
        assert (new[name] is old[name]) == (step is update_)
        assert new[name].is_leaf
    assert new["fixed"] is old["fixed"]
    assert new["int"] is old["int"]


def test_autograd_notices_a_write_in_place(torch: ModuleType) -> None:
    w = torch.nn.Parameter(torch.ones(2))
    y = (w * w).sum()
    once({"w": w}, {"w": torch.ones(2)})
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.backward()
    with torch.inference_mode():
        x = torch.ones(2)
    assert once({"w": x}, {"w": torch.ones(2)})["w"] is x
    assert x.tolist() == [0.5, 0.5]


def test_tensors_that_hide_their_memory_are_replaced_or_written_through(torch: ModuleType) -> None:
    base = torch.arange(6.0).reshape(2, 3)
    once({"w": base.T}, {"w": torch.ones(3, 2)})
    assert base[0].tolist() == [-0.5, 0.5, 1.5]
    for hidden in (torch.ones(1).expand(3), torch.ones(3, dtype=torch.complex64).conj()):
        new = once({"w": hidden}, {"w": torch.tensor([0.0, 1.0, 2.0])})["w"]
        assert new is not hidden
        assert new.tolist() == [1.0, 0.5, 0.0]
        assert hidden.tolist() == [1.0, 1.0, 1.0]


def test_tensors_of_the_same_memory_are_one_parameter(torch: ModuleType) -> None:
    base = torch.ones(4)
    model = {"a": base[:2], "b": base[:2], "c": base[2:]}
    new = once(model, {"a": torch.ones(2), "b": torch.ones(2), "c": torch.ones(2)})
    assert base.tolist() == [0.0, 0.0, 0.5, 0.5]
    assert new["a"] is model["a"]
    assert new["b"] is model["b"]
    pure = once(model, {"a": torch.ones(2), "b": None, "c": None}, update)
    assert pure["a"] is pure["b"]
    overlapping = {"a": base[:2], "b": base[1:3]}
    with pytest.raises(AliasError, match=r'model\["a"\] and model\["b"\]'):
        once(overlapping, {"a": torch.ones(2), "b": torch.ones(2)})
    memory = np.ones(2, np.float32)
    with pytest.raises(AliasError):
        once([memory, torch.from_numpy(memory)], [np.ones(2), torch.ones(2)])


def test_numpy_memory_of_every_kind() -> None:
    matrix = np.ones((3, 4))
    record = np.ones(3, [("x", "f8"), ("flag", "i1"), ("y", "f4")])
    model = {
        "fortran": np.asfortranarray(np.ones((2, 3))), "reversed": np.ones(3)[::-1],
        "strided": matrix[:, 1::2], "big": np.ones(2, ">f4"), "field": record["x"],
        "unaligned": np.zeros(17, np.uint8)[1:].view(np.float32), "y": record["y"],
        "matrix": np.ones((1, 2)).view(np.matrix),
    }  # fmt: skip
    model["unaligned"][:] = 1
    held, kinds = dict(model), {name: (type(x), x.dtype) for name, x in model.items()}
    g = {name: np.ones(x.shape) for name, x in model.items()}
    pure = once(model, g, update)
    assert all(np.all(x == 1) for x in held.values())
    assert {name: (type(x), x.dtype) for name, x in pure.items()} == kinds
    assert all(np.all(np.asarray(x) == 0.5) for x in pure.values())
    new = once(model, g)
    assert all(new[name] is x and np.all(np.asarray(x) == 0.5) for name, x in held.items())
    assert (matrix == 0.5).sum() == 6
    assert record["flag"].tolist() == [1, 1, 1]


@pytest.mark.parametrize("way", [update, update_])
def test_a_mask_stays(way: Any) -> None:
    x = np.ma.MaskedArray([1.0, 2.0, 3.0], mask=[False, True, False])
    new = once({"w": x}, {"w": np.ones(3)}, way)["w"]
    assert new.mask.tolist() == [False, True, False]
    assert new.compressed().tolist() == [0.5, 2.5]


def test_memory_whose_elements_are_shared_is_replaced() -> None:
    base = np.arange(4.0)
    windows = np.lib.stride_tricks.sliding_window_view(base, 2, writeable=True)
    for x in (windows, np.broadcast_to(np.ones(1), (3, 2)), np.ones((3, 2)).view()):
        shared = x.base is None or x.strides != (16, 8)
        before = np.array(x)
        new = once({"w": x}, {"w": np.ones((3, 2))})["w"]
        assert np.array_equal(new, before - 0.5)
        assert np.array_equal(x, before) == shared
    assert base.tolist() == [0, 1, 2, 3]


@dataclass(frozen=True)
class Remember(Rule):
    """Keeps the parameter and the gradient that it saw, as they are."""

    def init(self, x: Any) -> Any:
        return x, x

    def apply(self, state: Any, x: Any, dx: Any) -> Any:
        return (x, dx), dx


@BOTH
@pytest.mark.parametrize("tied", [False, True])
def test_buffers_may_be_overwritten_at_once(step: Any, tied: bool) -> None:
    for i in range(100):
        n = 4_000_000 if i == 0 else 300_000
        w, g, other = aligned(n, 1), aligned(n, 2), aligned(n, 3)
        x = jnp.asarray(w) if i % 2 else w
        model, grads = ([x, x], [g, jnp.zeros(n)]) if tied else ([x, other], [g, None])
        state = setup(Remember(), model)
        w[:] = 1
        state, model = step(state, model, grads)
        g[:] = 77
        assert np.all(np.asarray(state[0].state[1]) == 2)
        assert np.all(np.asarray(model[0]) == -1)
        if not i % 2:
            w[:] = 55
        assert np.all(np.asarray(state[0].state[0]) == 1)


def test_a_parameter_may_be_the_gradient_of_another() -> None:
    names, rules = "abc", {"a": Descent(1.0), "b": Momentum(1.0, 0.0), "c": Adam(0.0)}
    for make in (
        lambda i: aligned(300_000, i),
        lambda i: jnp.full((200, 200), i),
        lambda i: aligned(9, i),
    ):
        model = {name: make(i + 1.0) for i, name in enumerate(names)}
        grads = {"a": model["b"], "b": model["c"], "c": model["c"]}
        new = update_(setup(rules, model), model, grads)[1]
        assert [float(np.unique(new[name]).item()) for name in names] == [-1, -1, 3]


def test_dtypes_that_cannot_be_computed_are_refused() -> None:
    for dtype in (np.longdouble, np.clongdouble):
        with pytest.raises(
            DtypeError, match=r"cannot train model\[0\]: JAX has no dtype .*use float64"
        ):
            setup(Descent(), [np.ones(2, dtype)])
    with pytest.warns(OptimiserWarning):
        setup(Descent(), [np.ones(2, [("x", "f8")]), np.array(["a"]), np.array([1.0], object)])


def test_arrays_are_described_and_adapters_found(torch: ModuleType) -> None:
    assert describe(np.ones((3, 4), np.float32)) == "float32[3, 4]"
    assert describe(torch.ones(2, dtype=torch.bfloat16)) == "bfloat16[2]"
    assert describe(jax.random.key(0)) == "key<fry>[]"
    assert (describe(3), describe(np), describe(None)) == ("int", "module", "NoneType")
    for cls in (int, str, type(torch), torch.nn.Module, np.float32, object):
        assert adapter_of(cls) is None
    for x in (np.ones(1), jnp.ones(1), torch.ones(1), scipy.sparse.eye_array(2)):
        adapter = adapter_of(type(x))
        assert adapter is not None
        assert type(x).__module__.startswith(adapter.name[:5])
