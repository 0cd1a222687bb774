"""destructure: one vector for all parameters, and back, under every AD library."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import autograd
import autograd.numpy as anp
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from optimisers import Adam, Momentum, destructure, setup, total_gradients, update, update_
from optimisers.errors import ArgumentError, ShapeError, StructureError

from .trees import assert_same, grads_like, model_of_all_kinds


def test_tied_arrays_stand_there_once() -> None:
    m = np.array([1.0, 2.0, 3.0])
    model = {"x": m, "y": m, "z": np.array([4.0, 5.0, 6.0])}
    flat, rebuild = destructure(model)
    np.testing.assert_array_equal(flat, [1, 2, 3, 4, 5, 6])
    assert (type(flat), flat.dtype, len(rebuild)) == (np.ndarray, np.float64, 6)
    new = rebuild(10 * flat)
    assert new["x"] is new["y"]
    np.testing.assert_array_equal(new["z"], [40, 50, 60])
    assert model["x"][0] == 1
    assert len(destructure(model, ties=())[0]) == 9
    flat[0] = 7.0
    assert m[0] == 1.0
    assert len(destructure([np.ones(2), np.ones(2)], ties=[("0", "1")])[0]) == 2


def test_dtypes_are_promoted_and_restored() -> None:
    model = {"m": np.ones((2, 2), np.float32), "v": np.ones(3)}
    flat, rebuild = destructure(model)
    assert flat.dtype == np.float64
    assert rebuild(flat)["m"].dtype == np.float32
    flat, rebuild = destructure({"c": np.array([1 + 2j]), "r": np.array([3.0])})
    assert flat.dtype == np.complex128
    new = rebuild(flat * (1 + 1j))
    assert (new["r"].dtype, new["r"][0], new["c"][0]) == (np.float64, 3.0, -1 + 3j)
    halves = {"a": jnp.ones(2, jnp.bfloat16), "b": jnp.ones(2, jnp.float16)}
    flat, rebuild = destructure(halves)
    assert flat.dtype == jnp.float32
    assert [str(x.dtype) for x in rebuild(flat).values()] == ["bfloat16", "float16"]


def test_what_is_not_trained_comes_from_the_original() -> None:
    mlp = eqx.nn.MLP(2, 1, 3, 1, key=jax.random.key(0))
    model = {"net": mlp, "n": 3, "ids": np.arange(2), "name": "net"}
    flat, rebuild = destructure(model)
    new = rebuild(flat + 1)
    assert new["ids"] is model["ids"]
    assert new["net"].activation is mlp.activation
    assert isinstance(new["net"], eqx.nn.MLP)
    np.testing.assert_array_equal(new["net"].layers[0].weight, mlp.layers[0].weight + 1)
    assert_same(jax.tree.leaves(rebuild(rebuild.flatten(model))), jax.tree.leaves(model))


def test_wrong_vectors_and_models_raise() -> None:
    _, rebuild = destructure({"a": np.ones(2), "b": np.ones(1)})
    for bad in (np.ones(2), np.ones((3, 1)), np.ones(())):
        with pytest.raises(ShapeError, match="expected a vector of 3 numbers"):
            rebuild(bad)
    with pytest.raises(ArgumentError, match="cannot rebuild from list; expected a vector of 3"):
        rebuild([1.0, 2.0, 3.0])
    with pytest.raises(StructureError, match=r'it has no model\["b"\]'):
        rebuild.flatten({"a": np.ones(2)})
    with pytest.raises(
        ShapeError, match=r'at model\["a"\]: got float64\[3\], expected shape \[2\]'
    ):
        rebuild.flatten({"a": np.ones(3), "b": np.ones(1)})
    with pytest.raises(StructureError, match="nothing at"):
        rebuild.flatten_gradients({"a": np.ones(2)})


def test_nothing_trainable_gives_an_empty_vector() -> None:
    flat, rebuild = destructure({"n": 3, "ids": np.arange(2)})
    assert flat.shape == (0,)
    assert rebuild(np.zeros(0))["n"] == 3
    assert rebuild(flat)["n"] == 3
    with pytest.raises(ShapeError):
        rebuild(np.ones(1))


def test_gradients_through_the_rebuild() -> None:
    sh = jnp.array([7.0, 7.0])
    flat, rebuild = destructure({"x": sh, "y": jnp.array([3.0, 4.0]), "z": sh})

    def first(v: Any) -> Any:
        m = rebuild(v)
        return 3 * m["x"].sum() + 13 * m["z"].sum()

    def second(v: Any) -> Any:
        m = rebuild(v)
        return 4 * (m["x"].sum() + m["z"].sum())

    for transform in (lambda f: f, jax.jit):
        np.testing.assert_array_equal(jax.grad(transform(first))(flat), [16, 16, 0, 0])
        np.testing.assert_array_equal(jax.grad(transform(second))(flat), [8, 8, 0, 0])
    cubed = jax.hessian(lambda v: (rebuild(v)["x"] ** 3).sum())(flat)
    np.testing.assert_array_equal(np.diag(cubed), [42, 42, 0, 0])
    third = jax.jacfwd(jax.hessian(lambda v: (rebuild(v)["y"] ** 3).sum()))(flat)
    assert third[2, 2, 2] == 6
    assert jax.jit(lambda r, v: r(v)["y"], static_argnums=0)(rebuild, flat)[1] == 4.0


def test_gradients_of_autograd_and_of_numpy_models() -> None:
    model = {"x": np.array([1.0, 2.0], np.float32), "c": np.ones(1, complex), "y": np.ones((1, 2))}
    flat, rebuild = destructure(model)

    def loss(v: Any) -> Any:
        m = rebuild(v)
        return anp.sum(m["x"] ** 3) + anp.sum(m["y"]) + anp.sum(anp.real(m["c"]))

    np.testing.assert_allclose(autograd.grad(loss)(flat), [1, 3, 12, 1, 1], rtol=1e-6)
    flat, rebuild = destructure({"x": np.array([1.0, 2.0])})
    hessian = autograd.hessian(lambda v: anp.sum(rebuild(v)["x"] ** 3))(flat)
    np.testing.assert_allclose(hessian, [[6, 0], [0, 12]])
    out = jax.grad(lambda v: (rebuild(v)["x"] ** 2).sum())(jnp.asarray(flat, jnp.float32))
    np.testing.assert_allclose(out, [2, 4])


def test_torch(torch: ModuleType) -> None:
    w = torch.nn.Parameter(torch.tensor([1.0, 2.0]))
    model = {"w": w, "h": torch.ones((1, 2), dtype=torch.bfloat16), "tied": w}
    flat, rebuild = destructure(model)
    assert (flat.dtype, flat.requires_grad, len(flat)) == (torch.float32, False, 4)
    flat.requires_grad_()
    new = rebuild(flat)
    assert (new["h"].dtype, new["w"] is new["tied"]) == (torch.bfloat16, True)
    (g,) = torch.autograd.grad((new["w"] ** 3).sum(), flat, create_graph=True)
    assert g.tolist() == [0, 0, 3, 12]
    assert torch.autograd.grad(g.sum(), flat)[0].tolist() == [0, 0, 6, 12]
    back = rebuild.into_(model, torch.arange(4.0))
    assert back is model
    assert model["w"] is w
    assert w.detach().tolist() == [2, 3]
    rebuild.flatten(model).sum().backward()
    assert w.grad.tolist() == [1, 1]
    grads = rebuild.flatten_gradients({"w": w.grad, "h": None, "tied": w.grad})
    assert grads.tolist() == [0, 0, 2, 2]
    assert rebuild.flatten_gradients(
        {"w": w.grad, "h": None, "tied": w.grad}, tied="total"
    ).tolist() == [0, 0, 1, 1]
    assert isinstance(rebuild(np.arange(4.0))["w"], np.ndarray)


def test_into_writes_in_place_and_replaces_jax_arrays() -> None:
    model = {"a": np.ones(2), "b": [jnp.ones(1)], "n": 3}
    a, b, flat = model["a"], model["b"], destructure(model)[0]
    read_only = np.ones(2)
    read_only.flags.writeable = False
    _, rebuild = destructure(model)
    assert rebuild.into_(model, 5 * flat) is model
    assert (model["a"] is a, model["b"] is b, a[0], float(b[0][0])) == (True, True, 5.0, 5.0)
    assert isinstance(b[0], jax.Array)
    locked = {"a": read_only, "b": [jnp.ones(1)], "n": 3}
    rebuild.into_(locked, 5 * flat)
    assert (read_only[0], locked["a"][0]) == (1.0, 5.0)
    with pytest.raises(StructureError, match="is not the one"):
        rebuild.into_({"a": a}, 7 * flat)
    assert a[0] == 5.0


def test_slices_keep_the_names_of_the_parts() -> None:
    sh = np.ones(2)
    model = {"enc": [sh, np.zeros((2, 2))], "dec": {"w": sh, "a/b": np.zeros(3)}}
    flat, rebuild = destructure(model)
    assert dict(rebuild.slices) == {
        ("dec", "a/b"): slice(0, 3),
        ("dec", "w"): slice(3, 5),
        ("enc", 0): slice(3, 5),
        ("enc", 1): slice(5, 9),
    }
    assert rebuild.slices["enc/0"] == rebuild.slices["enc", 0] == rebuild.slices["dec/w"]
    assert rebuild.slices[r"dec/a\/b"] == slice(0, 3)
    np.testing.assert_array_equal(flat[rebuild.slices["dec/w"]], sh)
    assert ("enc/7" in rebuild.slices, len(rebuild.slices)) == (False, 4)
    assert repr(rebuild) == "Restructure(float64[9] -> dict)"


def test_gradients_in_the_same_layout() -> None:
    model = model_of_all_kinds()
    flat, rebuild = destructure(model)
    grads = grads_like(model)
    total = total_gradients(setup(Adam(), model), model, grads)
    vector = rebuild.flatten_gradients({**grads, "big": None})
    assert (vector.shape, vector.dtype) == (flat.shape, flat.dtype)
    np.testing.assert_array_equal(vector[rebuild.slices["big"]], 0)
    np.testing.assert_allclose(vector[rebuild.slices["tied"]], total["list"][1], rtol=1e-6)
    np.testing.assert_array_equal(rebuild.flatten_gradients(None), 0)
    traced = jax.jit(rebuild.flatten_gradients)({**grads, "big": None, "name": None, "int": None})
    np.testing.assert_allclose(traced, vector, rtol=1e-6)


@pytest.mark.parametrize("library", [np, jnp])
def test_update_works_on_the_vector_itself(library: Any) -> None:
    model = {"w": library.ones((2, 2)), "b": library.zeros(3)}
    flat, rebuild = destructure(model)
    g = {"w": library.ones((2, 2)) / 2, "b": library.ones(3)}
    state, vector = setup(Momentum(0.1), model), setup(Momentum(0.1), flat)
    for step in (update, update_):
        state, model = step(state, model, g)
        vector, flat = step(vector, flat, rebuild.flatten_gradients(g))
        np.testing.assert_allclose(rebuild(flat)["w"], model["w"], rtol=1e-6)
    assert vector.rule == Momentum(0.1)


def test_ties_inside_a_transformation_come_from_a_state() -> None:
    sh = jnp.ones(2)
    model = {"a": sh, "b": jnp.zeros(1), "c": sh}
    state = setup(Adam(), model)
    assert jax.jit(lambda m: destructure(m)[0])(model).shape == (5,)
    assert jax.jit(lambda m: destructure(m, ties=state)[0])(model).shape == (3,)
    assert jax.jit(lambda m: destructure(m["a"], ties=state["a"])[0])(model).shape == (2,)


def test_the_original_may_die() -> None:
    import gc
    import weakref

    class Array(np.ndarray):
        pass

    x = np.ones(3).view(Array)
    watch = weakref.ref(x)
    _, rebuild = destructure({"x": x})
    del x
    gc.collect()
    assert watch() is None
    assert rebuild(np.zeros(3))["x"].shape == (3,)
