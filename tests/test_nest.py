"""Nested dicts read and written by loops of C, against JAX's leaves."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optimisers import Descent, setup, update, update_
from optimisers.errors import StructureError
from optimisers.tree import outline, program
from optimisers.tree.nest import FEW

names = st.text("abc", min_size=1, max_size=2)
nests = st.recursive(
    st.integers(), lambda inner: st.dictionaries(names, inner, min_size=1), max_leaves=30
).filter(lambda tree: isinstance(tree, dict))


@given(nests, st.data())
def test_leaves_are_jax_s_and_can_be_exchanged(tree: Any, data: st.DataObject) -> None:
    leaves = jax.tree.leaves(tree)
    found = outline(tree)
    nest = program(found.nodes, range(len(leaves))).dicts
    assert nest is not None
    assert nest.read(tree) == leaves
    new = [-x - 1 for x in leaves]
    want = jax.tree.unflatten(jax.tree.structure(tree), new)
    nest.write(tree, new)
    assert tree == want

    spoilt, where = want, data.draw(st.integers(0, len(found.nodes) - 1))
    for name in found.nodes[where].path:
        spoilt = spoilt[name]
    kind = data.draw(st.sampled_from(["more", "less", "renamed"]))
    if kind != "more":
        spoilt.pop(next(iter(spoilt)))
    if kind != "less":
        spoilt["other"] = 0
    assert nest.read(want) is None


def deep(value: float) -> dict[str, Any]:
    return {f"l{i}": {"w": np.full(3, value), "b": np.full(2, value)} for i in range(FEW + 4)}


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
