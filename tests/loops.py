"""Steps of one rule on one array, without any tree: what the tests of the rules are made of."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from optimisers.arrays.numbers import precision, standard_promotion
from optimisers.rules.fields import Template, numbers_of, rebuild, template_of
from optimisers.rules.rule import Rule, Step, start


def one_step(rule: Rule, state: Any, x: Any, g: Any) -> tuple[Any, Any]:
    """Return the next state and parameter after one step of a rule."""
    state, out = rule.apply(state, x, g)
    step = out if isinstance(out, Step) else Step(out)
    new = x - step.dx.astype(x.dtype) if step.value is None else step.value
    return state, jnp.where(step.run, new, x).astype(x.dtype)


def trajectory(rule: Rule, x: Any, grads: Sequence[Any], jit: bool = True) -> list[Any]:
    """Return the parameter after each step, computed as wide as its dtype asks for.

    The numbers of the rule are arguments of the compiled step, as they are in an update.
    """
    dtype, template = np.dtype(x.dtype), template_of(rule)
    wide = dtype in (np.float64, np.complex128)
    with precision(wide), standard_promotion(dtype):
        x = jnp.asarray(x)
        real = np.float64 if wide else np.float32
        numbers = [np.asarray(number, real) for number in numbers_of(rule)]
        run = compiled(template) if jit else functools.partial(_step, template)
        state, found = start(rule, x), []
        for g in grads:
            state, x = run(numbers, state, x, jnp.asarray(g))
            found.append(np.asarray(x))
        return found


def _step(template: Template, numbers: Any, state: Any, x: Any, g: Any) -> tuple[Any, Any]:
    return one_step(rebuild(template, numbers), state, x, g)


@functools.cache
def compiled(template: Template) -> Any:
    """Return the compiled step of a rule; a new one for each run would cost most of the time."""
    return jax.jit(functools.partial(_step, template))
