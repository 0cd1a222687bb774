"""Second gradients and beyond: given to the rules that take them, ignored by the others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from optimisers import Descent, Momentum, OptimiserChain, Rule, WeightDecay, setup, update, update_
from optimisers.errors import RuleError, ShapeError, StructureError

BOTH = pytest.mark.parametrize("step", [update, update_])
LIBRARIES = pytest.mark.parametrize("lib", [np, jnp])


@dataclass(frozen=True)
class Newton(Rule):
    """Divides the gradient by the second one."""

    eta: float = 1.0
    elementwise: ClassVar[bool] = True

    def apply(self, state: Any, x: Any, dx: Any, dx2: Any) -> Any:
        return state, self.eta * dx / dx2


@dataclass(frozen=True)
class Perhaps(Rule):
    """Takes as many as there are."""

    def apply(self, state: Any, x: Any, dx: Any, *higher: Any) -> Any:
        return state, dx + 10.0 * len(higher) + sum(higher)


@dataclass(frozen=True)
class Optional(Rule):
    """Takes a second gradient if there is one."""

    def apply(self, state: Any, x: Any, dx: Any, dx2: Any = None) -> Any:
        return state, dx if dx2 is None else dx2


def arrays(lib: Any, *values: float) -> Any:
    return {name: lib.full(2, value, np.float32) for name, value in zip("ab", values, strict=False)}


def once(rule: Any, model: Any, *grads: Any, step: Any = update) -> list[float]:
    new = step(setup(rule, model), model, *grads)[1]
    return [float(x[0]) for x in new.values()]


@BOTH
@LIBRARIES
def test_a_rule_gets_the_gradients_that_it_takes(step: Any, lib: Any) -> None:
    def take(rule: Any, *grads: Any) -> Any:
        return once(rule, arrays(lib, 1, 2), *grads, step=step)

    g, h, i = arrays(lib, 1, 2), arrays(lib, 2, 8), arrays(lib, 3, 3)
    assert take(Newton(), g, h) == [0.5, 1.75]
    assert take(Newton(), g, h, i) == [0.5, 1.75]
    assert take(Descent(0.5), g, h, i) == [0.5, 1.0]
    assert take(Perhaps(), g) == [0.0, 0.0]
    assert take(Perhaps(), g, h, i) == [-25.0, -31.0]
    assert take(Optional(), g) == [0.0, 0.0]
    assert take(Optional(), g, h) == [-1.0, -6.0]


@BOTH
def test_a_chain_passes_them_to_each_rule(step: Any) -> None:
    chain = OptimiserChain(WeightDecay(1.0), Newton(0.5), OptimiserChain(Momentum(1.0, 0.5)))
    assert once(chain, arrays(jnp, 1, 2), arrays(jnp, 1, 2), arrays(jnp, 2, 8), step=step) == [
        0.5,
        1.75,
    ]


@BOTH
@LIBRARIES
def test_a_rule_that_needs_one_and_gets_none_raises(step: Any, lib: Any) -> None:
    model, g = arrays(lib, 1, 2), arrays(lib, 1, 2)
    for rule in (Newton(), OptimiserChain(Descent(), Newton())):
        for higher in ((), (None,), (dict.fromkeys(model),)):
            with pytest.raises(
                RuleError, match=r"Newton needs 2 gradients, got 1; call update\(sta"
            ):
                once(rule, model, g, *higher, step=step)
        with pytest.raises(
            RuleError, match=r'model\["b"\] has a first gradient but not every higher'
        ):
            once(rule, model, g, dict(g, b=None), step=step)
    assert np.array_equal(model["a"], [1, 1])


@BOTH
@LIBRARIES
def test_what_a_rule_does_not_take_may_be_missing(step: Any, lib: Any) -> None:
    g = arrays(lib, 1, 2)
    for higher in ((None,), (dict(g, a=None),), (None, g), (g, None)):
        assert once(Descent(0.5), arrays(lib, 1, 2), g, *higher, step=step) == [0.5, 1.0]
    assert once(Newton(), arrays(lib, 1, 2), g, g, None, step=step) == [0.0, 1.0]
    assert once(Optional(), arrays(lib, 1, 2), g, None, step=step) == [0.0, 0.0]


@BOTH
@LIBRARIES
def test_without_a_first_gradient_nothing_moves(step: Any, lib: Any) -> None:
    g = arrays(lib, 1, 2)
    assert once(Newton(), arrays(lib, 1, 2), dict(g, b=None), g, step=step) == [0.0, 2.0]
    assert once(Newton(), arrays(lib, 1, 2), dict(g, b=None), dict(g, b=None), step=step) == [
        0.0,
        2.0,
    ]
    assert once(Newton(), arrays(lib, 1, 2), None, g, step=step) == [1.0, 2.0]


@BOTH
def test_tied_parameters_add_each_order_on_its_own(step: Any) -> None:
    x = jnp.ones(2)
    model = [x, x]
    new = step(setup(Newton(), model), model, [1 * x, 3 * x], [2 * x, 6 * x])[1]
    assert np.array_equal(new[0], [0.5, 0.5])
    assert new[0] is new[1]


def test_each_order_is_checked_like_the_first() -> None:
    model = arrays(np, 1, 2)
    g = arrays(np, 1, 2)
    with pytest.raises(ShapeError, match=r'gradient of model\["a"\].*float64\[3\], expected shape'):
        update(setup(Newton(), model), model, g, dict(g, a=np.ones(3)))
    with pytest.raises(StructureError, match=r'has nothing at model\["b"\]'):
        update(setup(Newton(), model), model, g, {"a": g["a"]})
    traced = jax.jit(lambda g, h: update(setup(Newton(), model), model, g, h)[1]["a"][0])
    assert traced(g, arrays(np, 2, 2)) == 0.5
