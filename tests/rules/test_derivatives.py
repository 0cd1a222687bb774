"""A step can be differentiated by hyper-parameters, gradients and parameters, also at zero."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import optimisers
from optimisers.arrays.numbers import precision
from optimisers.rules.fields import columns, numbers_of, rebuild, template_of
from optimisers.rules.rule import start

from ..cases import ALL, CASES, Case, gradients, make
from ..loops import one_step

STEPS = 3


@functools.cache
def loss_of(call: str) -> Any:
    """Return a loss after some steps and its derivatives, by numbers, parameter and gradients."""
    template = template_of(make(call))

    def loss(numbers: Any, x: Any, grads: Any) -> Any:
        rule = rebuild(template, list(numbers))
        state = start(rule, x)
        for g in grads:
            state, x = one_step(rule, state, x, g)
        return jnp.sum(jnp.arange(1.0, x.size + 1.0, dtype=x.dtype) * x) + 0.5 * jnp.sum(x * x)

    return jax.jit(jax.value_and_grad(loss, argnums=(0, 1, 2)))


def point(case: Case) -> tuple[Any, Any, Any]:
    """Return the numbers of a rule, a parameter and gradients to differentiate at."""
    names = [column[-1] for column in columns(template_of(case.rule))]
    numbers = np.array([float(number) for number in numbers_of(case.rule)])
    for i, name in enumerate(names):
        # A nudge of 1e-16 would be lost, and one of a count of calls must not reach a whole number.
        numbers[i] = {"epsilon": 1e-2, "n": numbers[i] - 0.5}.get(name, numbers[i])
    return numbers, np.linspace(-1.0, 1.2, 4), gradients(STEPS, (4,), 7)


def differences(loss: Any, point: Any, which: int) -> Any:
    """Return central differences of a loss by one of its arguments."""
    at = point[which]
    found = np.zeros(at.shape)
    for i in np.ndindex(at.shape):
        ends = []
        for nudge in (1e-6, -1e-6):
            moved = at.copy()
            moved[i] += nudge
            ends.append(float(loss(*point[:which], moved, *point[which + 1 :])[0]))
        found[i] = (ends[0] - ends[1]) / 2e-6
    return found


@ALL
def test_derivatives_agree_with_finite_differences(case: Case) -> None:
    agree(case, gradients(STEPS, (4,), 7))


def test_derivatives_agree_where_radam_corrects_a_step_by_its_variance() -> None:
    agree(Case("RAdam(beta=(0.9, 0.9))"), gradients(6, (4,), 7))  # from the fifth on


def agree(case: Case, grads: Any) -> None:
    with precision(True):
        loss, here = loss_of(case.call), (*point(case)[:2], grads)
        for which, found in enumerate(loss(*here)[1]):
            wanted = differences(loss, here, which)
            size = 1 + np.abs(wanted).max(initial=0.0)
            np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-6 * size)


@ALL
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_derivatives_are_finite_where_gradients_are_zero(case: Case, dtype: str) -> None:
    _, x, grads = point(case)
    numbers = np.array([float(number) for number in numbers_of(case.rule)])
    with precision(dtype == "float64"):
        for zeros in (grads * 0, grads * (np.arange(4) < 2), grads * [[0], [1], [0]]):
            for at in (x, x * 0):
                given = (part.astype(dtype) for part in (numbers, at, zeros))
                exact = loss_of(case.call)(*given)[1]
                assert all(bool(jnp.isfinite(part).all()) for part in exact)


@pytest.mark.parametrize(
    "case", [c for c in CASES if any(n == "eta" for n in vars(c.rule))], ids=lambda c: c.call
)
def test_a_learning_rate_can_be_learnt_through_update(case: Case) -> None:
    grads = gradients(STEPS, (4,), 7)

    def loss(eta: Any) -> Any:
        model = {"w": jnp.linspace(-1.0, 1.2, 4)}
        state = optimisers.adjust(optimisers.setup(case.rule, model), eta)
        for g in grads:
            state, model = optimisers.update(state, model, {"w": jnp.asarray(g)})
        return jnp.sum(model["w"] ** 2)

    with jax.enable_x64(True):
        eta, size = case.rule.eta, case.rule.eta * 1e-4  # type: ignore[attr-defined]
        both = jax.jit(jax.value_and_grad(loss))
        wanted = (both(eta + size)[0] - both(eta - size)[0]) / (2 * size)
        np.testing.assert_allclose(both(eta)[1], wanted, rtol=1e-5)
