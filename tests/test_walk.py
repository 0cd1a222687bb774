"""The parallel walk, on random models, against the reference walk; and the laws that it keeps."""

from __future__ import annotations

import collections
import copy
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import given, strategies as st

import optimisers as opt
from optimisers import Momentum, setup, update, update_

from . import reference as ref
from .strategies import built, plans, pools, worlds

# Halves: with numbers that are multiples of 1/8 every result is exact.
RULE = Momentum(0.5, 0.5)


@dataclass(frozen=True)
class Unpacked(Momentum):
    """The same formula, never packed."""

    elementwise = False


def taken(state: Any, model: Any, grads: Any, step: Any = update, **options: Any) -> Any:
    """Take several steps; returns state and model."""
    for g in grads:
        state, model = step(state, model, g, **options)
    return state, model


def duplicate(model: Any) -> Any:
    """Return a model with arrays and writable containers of its own, tied and shared as before."""
    memo: dict[int, Any] = {}
    for _, x in ref.places(model):
        if not ref.is_parameter(x):
            memo[id(x)] = x
    return copy.deepcopy(model, memo)


@given(worlds())
def test_update_is_the_reference_walk(world: Any) -> None:
    plan, pool, grads = world
    model = built(plan, pool)
    before = duplicate(model)
    expected_state, expected = ref.setup(RULE, model), model
    for g in grads:
        expected_state, expected = ref.update(RULE, expected_state, expected, g)
    state = setup(RULE, model)
    state, found = taken(state, model, grads)
    ref.assert_same(found, expected)
    ref.assert_same(model, before)
    for path, velocity in expected_state.items():
        view = state
        for name in path:
            view = view[name]
        assert np.array_equal(np.asarray(view.state), velocity)


@given(worlds())
def test_update_in_place_gives_the_same_numbers(world: Any) -> None:
    plan, pool, grads = world
    model = built(plan, pool)
    twin = duplicate(model)
    state, expected = taken(setup(RULE, model), model, grads)
    own, found = taken(setup(RULE, twin), twin, grads, update_)
    ref.assert_same(found, expected)
    for path, _ in ref.places(model):
        a, b = state, own
        for name in path:
            a, b = (a[name], b[name]) if name in a else (a, b)
        assert repr(a) == repr(b)


@given(worlds())
def test_a_parameter_keeps_its_library_dtype_shape_and_ties(world: Any) -> None:
    plan, pool, grads = world
    model = built(plan, pool)
    for step in (update, update_):
        _, new = taken(setup(RULE, model), model, grads, step)
        for x, paths in ref.parameters(model) if step is update else ref.parameters(new):
            places = [ref.item(new, path) for path in paths]
            assert all(place is places[0] for place in places)
            assert (type(places[0]), places[0].dtype, places[0].shape) == (
                type(x),
                x.dtype,
                x.shape,
            )


@given(worlds())
def test_packed_is_unpacked(world: Any) -> None:
    plan, pool, grads = world
    model = built(plan, pool)
    _, packed = taken(setup(RULE, model), model, grads)
    _, single = taken(setup(Unpacked(0.5, 0.5), model), model, grads)
    ref.assert_same(packed, single)


@given(worlds(steps=1))
def test_tying_is_adding_gradients(world: Any) -> None:
    plan, pool, [g] = world
    model = built(plan, pool)
    flat = {i: x for i, x in enumerate(pool) if any(x is y for y, _ in ref.parameters(model))}
    paths = {i: next(p for y, p in ref.parameters(model) if y is x) for i, x in flat.items()}
    parts = {i: [ref.gradient_at(model, g, path) for path in paths[i]] for i in flat}
    known = {i: [ref.dense(part) for part in some if part is not None] for i, some in parts.items()}
    summed = {i: sum(some[1:], some[0]) if some else None for i, some in known.items()}
    _, tied = update(setup(RULE, model), model, g)
    _, alone = update(setup(RULE, flat), flat, summed)
    for i, found in paths.items():
        assert all(np.array_equal(ref.item(tied, path), alone[i]) for path in found)


@given(worlds(steps=1))
def test_total_counts_the_first_gradient_of_a_tied_parameter(world: Any) -> None:
    plan, pool, [g] = world
    model = built(plan, pool)
    _, found = update(setup(RULE, model), model, g, tied="total")
    for x, paths in ref.parameters(model):
        parts = [ref.gradient_at(model, g, path) for path in paths]
        first = next((ref.dense(part) for part in parts if part is not None), None)
        expected = x if first is None else ref.dense(x) - np.asarray(first / 2, ref.dense(x).dtype)
        assert np.array_equal(ref.item(found, paths[0]), expected)


@given(worlds(steps=1, gaps=False), st.data())
def test_none_at_a_branch_is_none_at_each_of_its_leaves(world: Any, data: Any) -> None:
    plan, pool, [g] = world
    model = built(plan, pool)
    branches = [path[:n] for path, _ in ref.places(g) for n in range(len(path) + 1)]
    cut = data.draw(st.sampled_from(branches))
    leaves = ref.replaced(g, lambda path, x: None if path[: len(cut)] == cut else x)
    branch = pruned(g, cut)
    _, expected = update(setup(RULE, model), model, leaves)
    _, found = update(setup(RULE, model), model, branch)
    ref.assert_same(found, expected)


def pruned(x: Any, cut: Any, path: Any = ()) -> Any:
    """Return a tree with None in the place of one branch."""
    if path == cut:
        return None
    inside = ref.children(x)
    if inside is None:
        return x
    kids = [(name, pruned(child, cut, (*path, name))) for name, child in inside]
    return rebuilt(x, [child for _, child in kids]) if is_sequence(x) else dict(kids)


def rebuilt(x: Any, kids: list[Any]) -> Any:
    """Return a sequence like `x` with other items."""
    return type(x)(*kids) if hasattr(x, "_fields") else type(x)(kids)


@given(worlds(), st.randoms(use_true_random=False))
def test_the_order_of_keys_changes_nothing(world: Any, random: Any) -> None:
    plan, pool, grads = world
    model = built(plan, pool)
    mixed = built(plan, pool, lambda items: random.sample(items, len(items)))
    _, expected = taken(setup(RULE, model), model, grads)
    state, found = taken(setup(RULE, mixed), mixed, grads)
    for path, x in ref.places(expected):
        y = ref.item(found, path)
        assert x is y or np.array_equal(ref.dense(x), ref.dense(y))
    # A state of one order serves a model of the other.
    _, again = update(state, model, grads[0])
    assert {path for path, _ in ref.places(again)} == {path for path, _ in ref.places(expected)}


@given(worlds(kinds=[("jax", "float32"), ("numpy", "float32")]))
def test_jit_changes_nothing(world: Any) -> None:
    plan, pool, grads = world
    model = built(plan, pool)
    state, expected = taken(setup(RULE, model), model, grads)

    @jax.jit
    def steps(state: Any, arrays: Any) -> Any:
        traced = [with_arrays(g, iter(some)) for g, some in zip(grads, arrays, strict=True)]
        state, new = taken(state, model, traced)
        return state, [x for x, _ in ref.parameters(new)]

    arrays = [[x for _, x in ref.places(g) if hasattr(x, "shape")] for g in grads]
    own, found = steps(setup(RULE, model), arrays)
    assert all(map(np.array_equal, found, [x for x, _ in ref.parameters(expected)]))
    assert all(map(np.array_equal, jax.tree.leaves(own), jax.tree.leaves(state)))
    assert jax.tree.structure(own) == jax.tree.structure(state)


def with_arrays(g: Any, arrays: Any) -> Any:
    return ref.replaced(g, lambda path, x: next(arrays) if hasattr(x, "shape") else x)


@given(plans(), pools())
def test_no_gradient_anywhere_gives_the_same_objects_back(plan: Any, pool: Any) -> None:
    model = built(plan, pool)
    for step in (update, update_):
        _, new = step(setup(RULE, model), model, None)
        ours, theirs = list(ref.places(new)), list(ref.places(model))
        assert all(x is y for (_, x), (_, y) in zip(ours, theirs, strict=True))
        assert ref.containers(new) == ref.containers(model)


@given(worlds(steps=1, gaps=False), st.data())
def test_a_gradient_that_does_not_fit_is_refused_and_nothing_is_written(
    world: Any, data: Any
) -> None:
    plan, pool, [g] = world
    model = built(plan, pool)
    places = [path for _, paths in ref.parameters(model) for path in paths]
    path = data.draw(st.sampled_from(places))
    state, before = setup(RULE, model), duplicate(model)
    shown = repr(state)
    wrong = broken(g, model, path, data)
    for step in (update, update_):
        with pytest.raises(
            opt.errors.StructureError, match=r"the gradient .*(expected|nothing|no such)"
        ):
            step(state, model, wrong)
    ref.assert_same(model, before)
    assert repr(state) == shown
    step(state, model, g)


def broken(g: Any, model: Any, path: Any, data: Any) -> Any:
    """Return a gradient that is wrong on the way to, or at, one place of the model."""
    how = data.draw(st.sampled_from(["shape", "container", "missing", "extra"]))
    if how in ("shape", "container"):
        value = np.ones((1, *ref.dense(ref.item(model, path)).shape), np.float32)
        return at(g, model, path, lambda x: value if how == "shape" else {"x": x})
    n = data.draw(st.integers(0, len(path) - 1))
    place = [name for name, _ in ref.children(ref.item(model, path[:n])) or []].index(path[n])
    return at(g, model, path[:n], lambda x: resized(x, how, place, path[n]))


def at(g: Any, model: Any, path: Any, change: Any) -> Any:
    """Return a gradient that is changed at one place of the model."""
    if not path:
        return change(g)
    mine, inside = [name for name, _ in ref.children(model) or []], ref.children(g) or []
    names = [name for name, _ in inside]
    wanted = path[0] if path[0] in names else names[mine.index(path[0])]
    below = ref.item(model, path[:1])
    kids = [(n, at(c, below, path[1:], change) if n == wanted else c) for n, c in inside]
    return rebuilt(g, [c for _, c in kids]) if is_sequence(g) else dict(kids)


def is_sequence(x: Any) -> bool:
    return isinstance(x, list | tuple | collections.deque)


def resized(x: Any, how: str, place: int, name: Any) -> Any:
    """Return a container with an unknown item more, or without one that is needed."""
    kids = list(ref.children(x) or [])
    if how == "extra":
        kids.append(("unheard of", np.ones(2, np.float32)))
    else:
        kids = kids[:place] if is_sequence(x) else [kid for kid in kids if kid[0] != name]
    return tuple(c for _, c in kids) if is_sequence(x) else dict(kids)
