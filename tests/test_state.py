"""The state: looked at as a tree, a pytree for JAX and optree, copied, pickled, shared."""

from __future__ import annotations

import copy
import itertools
import pickle
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optree
import pytest

from optimisers import (
    Adam,
    Descent,
    Momentum,
    State,
    adjust,
    freeze,
    setup,
    thaw,
    update,
    update_,
)

from .strategies import Frozen, Module, Pair, Plain
from .trees import assert_same, grads_like, model_of_all_kinds


def nested() -> Any:
    return {"enc": [Plain(jnp.ones((2, 3)), jnp.zeros(3)), "name"], "dec": Pair(np.ones(2), None)}


def without_float64() -> Any:
    """Return a model of which JAX narrows nothing, as it does in `device_put`."""
    model = model_of_all_kinds()
    return {**model, "numpy": model["numpy"].astype(np.float32)}


def grads() -> Any:
    return {"enc": [{"a": np.ones((2, 3)), "b": np.ones(3)}, None], "dec": [np.ones(2), None]}


COPIES: dict[str, Callable[[Any], Any]] = {
    "pickle": lambda s: pickle.loads(pickle.dumps(s)),
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "jax.tree.map": lambda s: jax.tree.map(lambda x: x, s),
    "optree": lambda s: optree.tree_map(lambda x: x, s),
    "flatten": lambda s: jax.tree.unflatten(jax.tree.structure(s), jax.tree.leaves(s)),
    "device_put": jax.device_put,
}
ALL_COPIES = pytest.mark.parametrize("copies", COPIES.values(), ids=COPIES)


def test_a_state_mirrors_its_model() -> None:
    state = setup(Adam(0.1), nested())
    assert (list(state), list(state["enc"]), list(state.dec)) == (
        ["dec", "enc"],
        [0, 1],
        ["a", "b"],
    )
    assert len(state) == 2
    assert "enc" in state
    leaf = state.enc[0].a
    assert (leaf.rule, leaf.frozen) == (Adam(0.1), False)
    mt, vt, bt = leaf.state
    assert (mt.shape, vt.shape, bt[0].shape) == ((2, 3), (2, 3), ())
    assert list(leaf) == []
    assert all([state, leaf, state["enc"][1]])


def test_a_state_of_one_array_is_its_parameter() -> None:
    state = setup(Momentum(0.1, 0.5), np.ones(3))
    assert state.rule == Momentum(0.1, 0.5)
    assert np.array_equal(state.state, np.zeros(3))


def test_children_may_have_nearly_any_name() -> None:
    names = ["rule", "state", "frozen", "_box", "_at", "items", "keys", "__len__", "a b", 1, ("t",)]
    state = setup(Descent(0.1), {name: np.ones(1) for name in names})
    assert all(state[name].rule == Descent(0.1) for name in names)
    assert setup(Descent(), {"items": {"keys": np.ones(1)}}).items.keys.rule == Descent()
    public = {name for name in dir(state) if not name.startswith("_")}
    assert public <= {"rule", "state", "frozen", "hyperparameters"}


def test_what_a_state_does_not_have_is_named() -> None:
    state = setup(Adam(), nested())
    with pytest.raises(KeyError, match=r"state has no 'nope'; it has 'dec', 'enc'"):
        state["nope"]
    with pytest.raises(AttributeError, match=r"state\[\"enc\"\]\[0\] has no 'c'; it has 'a', 'b'"):
        _ = state.enc[0].c
    for name in ("rule", "state", "frozen"):
        with pytest.raises(AttributeError, match=rf'state\["enc"\] is not a parameter.*no {name}'):
            getattr(state.enc, name)
    with pytest.raises(AttributeError, match=r"cannot set 'enc': a state is changed by adjust_"):
        state.enc = 3
    assert not hasattr(state, "__array__")


@ALL_COPIES
def test_a_copy_is_the_same_state(copies: Any) -> None:
    model = without_float64()
    state, model = update(setup(Adam(0.1), model), model, grads_like(model))
    other = copies(state)
    assert isinstance(other, State)
    assert jax.tree.structure(other) == jax.tree.structure(state)
    assert other._box.layout is state._box.layout
    assert_same(jax.tree.leaves(other), jax.tree.leaves(state))
    assert repr(other) == repr(state)


@ALL_COPIES
def test_ties_survive_every_copy(copies: Any) -> None:
    w = jnp.ones(3)
    model = {"enc": w, "dec": w}
    state = copies(setup(Momentum(0.5, 0.5), model))
    model = jax.tree.map(lambda x: x + 0, model)
    assert model["enc"] is not model["dec"]
    state, model = update(state, model, {"enc": np.ones(3), "dec": np.ones(3)})
    assert model["enc"] is model["dec"]
    assert np.array_equal(model["enc"], np.zeros(3))
    step = jax.jit(update)
    state, model = step(state, model, {"enc": np.ones(3), "dec": None})
    assert np.array_equal(model["enc"], model["dec"])
    assert np.array_equal(model["enc"], [-1.0, -1.0, -1.0])


SHARING: dict[str, Callable[[Any, Any], Any]] = {
    "adjust": lambda s, m: adjust(s, 0.5),
    "freeze": lambda s, m: thaw(freeze(s)),
    "update with nothing": lambda s, m: update(s, m, None)[0],
    "update in part": lambda s, m: update(s, m, dict.fromkeys(m) | {"jax": m["jax"]})[0],
    **{name: lambda s, m, f=f: f(s) for name, f in COPIES.items()},  # type: ignore[misc]
}


@pytest.mark.parametrize("share", SHARING.values(), ids=SHARING)
@pytest.mark.parametrize("old_first", [True, False])
def test_a_step_in_place_on_one_state_leaves_the_others_usable(share: Any, old_first: bool) -> None:
    model = without_float64()
    g = grads_like(model)
    state = setup(Adam(0.5), model)
    state, model = update(state, model, g)
    other = share(state, model)
    expected = [update(s, model, g) for s in (state, other)]
    states = [state, other] if old_first else [other, state]
    results = [update_(s, copy.deepcopy(model), g) for s in states]
    for s, found in zip(states, results, strict=True):
        assert found[0] is s
    for found, wanted in zip(results if old_first else results[::-1], expected, strict=True):
        assert_same(found[1], wanted[1])
        assert_same(jax.tree.leaves(found[0]), jax.tree.leaves(wanted[0]))


def test_pure_steps_leave_every_argument_bit_identical() -> None:
    model = model_of_all_kinds()
    g, state = grads_like(model), setup(Adam(0.5), model)
    before = copy.deepcopy((jax.tree.leaves(state), model, g))
    for _ in range(2):
        update(state, model, g)
    assert_same((jax.tree.leaves(state), model, g), before)
    held = jax.tree.leaves(g)
    _ = update_(state, copy.deepcopy(model), g)
    assert_same(held, jax.tree.leaves(before[2]))


def test_a_part_is_updated_and_stays_connected_to_the_whole() -> None:
    model = nested()
    state = setup(Momentum(1.0, 0.5), model)
    part = state["enc"][0]
    same, inner = update_(part, model["enc"][0], grads()["enc"][0])
    assert same is part
    assert np.array_equal(state.enc[0].a.state, np.ones((2, 3)))
    assert np.array_equal(inner.a, np.zeros((2, 3)))
    assert np.array_equal(model["dec"].a, np.ones(2))
    new, _ = update(state["dec"], model["dec"], grads()["dec"])
    assert np.array_equal(new.a.state, np.ones(2))
    assert not np.any(state["dec"].a.state)
    single, x = update_(state.dec.a, model["dec"].a, np.ones(2))
    assert np.array_equal(single.state, np.ones(2))
    assert x is model["dec"].a


@pytest.mark.parametrize("leaf", [None, "text", 3, object()])
def test_a_state_mapped_to_something_else_can_be_looked_at(leaf: Any) -> None:
    mapped = jax.tree.map(lambda _: leaf, setup(Adam(), nested()))
    assert "float32[2, 3]" in repr(mapped)
    assert list(mapped) == ["dec", "enc"]
    shapes = jax.eval_shape(lambda m: setup(Adam(), m), {"w": jnp.ones(3)})
    assert "float32[3]" in repr(shapes)


def test_leaves_have_names_for_jax() -> None:
    state = setup(Adam(), model_of_all_kinds())
    pairs, _ = jax.tree_util.tree_flatten_with_path(state)
    names = [jax.tree_util.keystr(path) for path, _ in pairs]
    assert len(set(names)) == len(jax.tree.leaves(state))
    assert all("unit" in name for name in names)


def test_equal_models_have_one_layout_and_others_another() -> None:
    def layout(model: Any, rule: Any = None) -> Any:
        return setup(rule or Adam(), model)._box.layout

    assert layout({"w": jnp.ones(3)}, Adam(0.1)) is layout({"w": jnp.zeros(3)}, Adam(0.2))
    w = jnp.ones(3)
    models = [
        {"w": w}, {"w": jnp.ones(4)}, {"w": np.ones(3, np.float32)}, {"v": w}, [w], Frozen(w, None),
        Module(w, None), {"w": w, "v": w}, {"w": w, "v": jnp.ones(3)}, {"w": w, "v": np.arange(2)},
    ]  # fmt: skip
    layouts = [*map(layout, models), layout(models[0], Momentum())]
    assert all(a != b for a, b in itertools.combinations(layouts, 2))
    assert layouts[0] == pickle.loads(pickle.dumps(layouts[0]))
    assert layouts[0] != "a layout"
