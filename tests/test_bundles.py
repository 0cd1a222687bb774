"""Bundles: larger parameters of one program, with their scalars side by side in common tables."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from optimisers import (
    AccumGrad,
    Adam,
    ClipNorm,
    Momentum,
    OptimiserChain,
    Rule,
    SignDecay,
    SkipNonFinite,
    adjust,
    freeze,
    setup,
    steps,
    thaw,
    update,
    update_,
)
from optimisers.errors import RuleTypeError

from .kernels import kernels

SHAPE = (90, 75)  # too large for a pack


def drawn(seed: int, count: int) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    return {str(i): jnp.array(rng.standard_normal(SHAPE, np.float32)) for i in range(count)}


def test_scalars_are_in_common_tables() -> None:
    state = setup(Adam(), drawn(0, 20))  # units of 16 and 4
    sizes = [a.shape for a in jax.tree.leaves(state)]
    # Hyper-parameters, counts of steps, the products of beta; two moments for each parameter.
    assert [s for s in sizes if s != SHAPE] == [(16, 4), (16, 1), (16, 2), (4, 4), (4, 1), (4, 2)]
    assert sizes.count(SHAPE) == 2 * 20


def sizes_of_units(model: Any) -> list[tuple[int, bool]]:
    units = setup(Adam(), model)._box.layout.units
    return sorted((len(unit.params), unit.spec.packed) for unit in units)


def test_few_small_parameters_are_stepped_with_larger_ones() -> None:
    def small(n: int) -> dict[str, Any]:
        return {f"b{i}": jnp.ones(3 + i) for i in range(n)}

    large = drawn(0, 2)
    assert sizes_of_units(large | small(12)) == [(14, False)]
    assert sizes_of_units(large | small(13)) == [(2, False), (13, True)]
    assert sizes_of_units(small(2)) == [(2, True)]
    assert sizes_of_units(small(1)) == [(1, False)]
    # Of another dtype, they cannot join.
    half = {name: x.astype("bfloat16") for name, x in small(2).items()}
    assert sizes_of_units(large | half) == [(2, False), (2, True)]
    # A number has moments that are numbers, which are kept in tables.
    assert sizes_of_units(large | small(1) | {"n": jnp.ones(())}) == [(1, True), (3, False)]


@pytest.mark.parametrize("lib", [jnp, np], ids=["jax", "numpy"])
@pytest.mark.parametrize("rule", [Adam(0.1), Momentum(0.1), SignDecay(0.25)], ids=repr)
def test_small_parameters_step_in_a_bundle_as_in_a_pack(rule: Any, lib: Any) -> None:
    rng = np.random.default_rng(3)
    shapes = [(2, 3), (5,), (), (0, 4), (17,), (40, 40)]
    small = {f"b{i}": lib.asarray(rng.standard_normal(s), "f") for i, s in enumerate(shapes)}
    large = {name: lib.asarray(x) for name, x in drawn(0, 2).items()}
    together, alone = large | small, dict(small)
    state, other = setup(rule, together), setup(rule, alone)
    for n in range(3):
        grads = {name: lib.asarray(x * (n - 0.7)) for name, x in (drawn(4, 2) | small).items()}
        state, together = update(state, together, grads)
        other, alone = update(other, alone, {name: grads[name] for name in small})
    for name in small:
        nearly_same(together[name], alone[name])
        jax.tree.map(nearly_same, state[name].state, other[name].state)


@pytest.mark.parametrize("traced", [False, True], ids=["eager", "jit"])
def test_equal_parameters_have_equal_kernels(traced: bool) -> None:
    model = drawn(0, 16)
    found = kernels(setup(Adam(), model), model, model, traced)
    large = [body for body in found if "f32[90,75]" in body]
    assert len(large) == 3 * 16  # two moments and the parameter
    assert len(set(large)) == 3


RULES = [
    Adam(0.1),
    SignDecay(0.25),
    OptimiserChain(ClipNorm(3.0), Momentum(0.5)),
    OptimiserChain(AccumGrad(2), Adam(0.1)),
    SkipNonFinite(Adam(0.1)),
]


@pytest.mark.parametrize("way", ["update", "update_", "steps", "jit"])
@pytest.mark.parametrize("rule", RULES, ids=repr)
def test_parameters_with_gaps_and_frozen_ones_are_as_if_alone(rule: Any, way: str) -> None:
    """Each has a learning rate and a history of its own; alone there is no table to share."""
    rng = np.random.default_rng(1)
    model = drawn(2, 5)
    apart = {name: {name: x + 0} for name, x in model.items()}
    state, states = setup(rule, model), {name: setup(rule, part) for name, part in apart.items()}
    if "eta" in repr(rule):
        for name in model:
            state = adjust(state, 0.01 + int(name), where=name)
            states[name] = adjust(states[name], 0.01 + int(name))
    inside = jax.jit(update)
    for n in range(8):
        if n in (2, 5):
            change = freeze if n == 2 else thaw
            state, states["3"] = change(state, "3"), change(states["3"])
        grads: dict[str, Any] = {
            name: None if rng.random() < 0.5 else x * (n + 1) for name, x in drawn(n, 5).items()
        }
        if way == "steps":
            state, moves = steps(state, model, grads)
            model = {k: x if moves[k] is None else x - moves[k] for k, x in model.items()}
        else:
            step = {"update": update, "update_": update_, "jit": inside}[way]
            state, model = step(state, model, grads)
        for name, part in apart.items():
            states[name], apart[name] = update(states[name], part, {name: grads[name]})
    same = np.testing.assert_array_equal if way in ("update", "update_") else nearly_same
    for name in model:
        same(model[name], apart[name][name])
        jax.tree.map(same, state[name].state, states[name][name].state)


@dataclass(frozen=True)
class Growing(Rule):
    """A rule whose state is a number that becomes an array; packed or not."""

    eta: float = 0.1
    elementwise: ClassVar[bool] = True

    def init(self, x: Any) -> Any:
        return jnp.zeros((), x.dtype)

    def apply(self, state: Any, x: Any, dx: Any) -> Any:
        return state.reshape(1), self.eta * dx


@pytest.mark.parametrize("gap", [False, True])
@pytest.mark.parametrize("shape", [(3,), (200, 200)], ids=["pack", "bundle"])
@pytest.mark.parametrize("count", [1, 3])
def test_a_number_in_a_state_stays_a_number(count: int, shape: Any, gap: bool) -> None:
    tree = {str(i): jnp.ones(shape) for i in range(count)}
    state = setup(Growing(), tree)
    before = copy.deepcopy((jax.tree.leaves(state), tree))
    grads = jax.tree.map(lambda x: x * 2, tree) | ({"2": None} if gap and count > 1 else {})
    for step in (update_, update, jax.jit(update)):
        with pytest.raises(RuleTypeError, match=r"a state that turns shape \[\] into \[1\]"):
            step(state, tree, grads)
    jax.tree.map(np.testing.assert_array_equal, (jax.tree.leaves(state), tree), before)


def nearly_same(a: Any, b: Any) -> None:
    # In another program XLA may round a product before it is added, or not.
    np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-6)
