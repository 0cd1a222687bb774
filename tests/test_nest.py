"""Nests of dicts, lists and tuples read and written by loops of C, against JAX's leaves."""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, strategies as st

from optimisers import Descent, setup, update, update_
from optimisers.errors import StateError, StructureError
from optimisers.tree import outline, program
from optimisers.tree.outline import readable

names = st.text("abc", min_size=1, max_size=2)
nests = st.recursive(
    st.integers(),
    lambda inner: st.one_of(
        st.dictionaries(names, inner, min_size=1),
        st.lists(inner, min_size=1, max_size=3),
        st.lists(inner, min_size=1, max_size=3).map(tuple),
    ),
    max_leaves=30,
).filter(lambda tree: not isinstance(tree, int))


def in_tuples(tree: Any) -> bool:
    """Tell whether a leaf is directly in a tuple, where it cannot be exchanged."""
    inner = list(tree.values()) if isinstance(tree, dict) else tree
    here = isinstance(tree, tuple) and any(isinstance(x, int) for x in inner)
    return here or any(in_tuples(x) for x in inner if not isinstance(x, int))


@given(nests, nests)
def test_leaves_are_those_of_jax_and_can_be_exchanged(tree: Any, other: Any) -> None:
    trees = (tree, other, tree)
    reading = readable(list(map(outline, trees)))
    assert reading is not None
    assert reading.read(trees) == jax.tree.leaves(trees)
    assert reading.read(trees[:2]) is None
    assert reading.read((*trees, tree)) is None

    leaves = jax.tree.leaves(tree)
    writing = program(outline(tree).nodes, range(len(leaves))).nest
    assert (writing is None) == in_tuples(tree)
    if writing is not None:
        new = [-x - 1 for x in leaves]
        want = jax.tree.unflatten(jax.tree.structure(tree), new)
        writing.write(tree, new)
        assert tree == want


@given(nests, st.data())
def test_another_structure_is_not_read(tree: Any, data: st.DataObject) -> None:
    nodes = outline(tree).nodes
    reading = readable([outline(tree)])
    assert reading is not None
    spoilt = tree
    for name in nodes[data.draw(st.integers(0, len(nodes) - 1))].path:
        above, key, spoilt = spoilt, name, spoilt[name]
    if isinstance(spoilt, tuple):
        if spoilt is tree or isinstance(above, tuple):
            assert reading.read((list(spoilt) if spoilt is tree else (),)) is None
            return
        above[key] = data.draw(st.sampled_from([spoilt[1:], list(spoilt), (*spoilt, 0)]))
    elif isinstance(spoilt, list):
        spoilt.append(0) if data.draw(st.booleans()) else spoilt.pop()
    else:
        kind = data.draw(st.sampled_from(["more", "less", "renamed"]))
        if kind != "more":
            spoilt.pop(next(iter(spoilt)))
        if kind != "less":
            spoilt["other"] = 0
    assert reading.read((tree,)) is None


def deep(value: float) -> dict[str, Any]:
    return {f"l{i}": {"w": np.full(3, value), "b": np.full(2, value)} for i in range(20)}


@pytest.mark.parametrize("way", [update, update_])
def test_many_dicts_are_still_matched_by_name(way: Any) -> None:
    """Order means nothing; another class of dict, None and what is missing are seen."""
    model = deep(1.0)
    state = setup(Descent(0.5), model)
    grads = deep(1.0)
    turned = {k: dict(reversed(v.items())) for k, v in reversed(grads.items())}
    for each in (grads, grads, turned, OrderedDict(grads)):
        state, model = way(state, model, each)
    np.testing.assert_array_equal(model["l3"]["w"], -1.0)
    state, model = way(state, model, {**grads, "l3": None})
    state, model = way(state, model, {**grads, "l3": {"w": None, "b": grads["l3"]["b"]}})
    assert (model["l3"]["w"][0], model["l3"]["b"][0], model["l4"]["w"][0]) == (-1.0, -1.5, -2.0)
    for wrong in (
        {**grads, "l3": {"w": np.ones(3)}},
        {**grads, "l3": {**grads["l3"], "x": np.ones(1)}},
        {**grads, "l3": {"w": (np.ones(3),), "b": np.ones(2)}},
    ):
        with pytest.raises(StructureError, match="l3"):
            way(state, model, wrong)
    way(state, model, grads)


class Refusing:
    """No container, but it answers when it is asked for an item."""

    def __getitem__(self, name: Any) -> Any:
        raise RuntimeError(f"asked for {name}")


@pytest.mark.parametrize("way", [update, update_])
@pytest.mark.parametrize("array", [np.ones, jnp.ones])
def test_nothing_else_is_asked_for_an_item(way: Any, array: Any) -> None:
    """A dict that makes what is missing would be written; others raise what they like."""

    def make() -> Any:
        return {"l": {"w": array(3), "b": array(2)}, "m": [array(2)]}

    model, grads = make(), make()
    state = setup(Descent(0.5), model)
    for _ in range(4):
        state, model = way(state, model, grads)
    made = defaultdict(lambda: array(2), {"w": array(3)})
    for wrong in (
        {**grads, "l": made},
        defaultdict(make, {"l": grads["l"]}),
        {**grads, "l": Refusing()},
        {**grads, "m": Refusing()},
    ):
        with pytest.raises(StructureError):
            way(state, model, wrong)
        if not isinstance(wrong["l"], Refusing):
            with pytest.raises(StateError):
                way(state, {**model, **wrong} if "m" in wrong else wrong, grads)
    assert list(made) == ["w"]
    way(state, model, grads)
