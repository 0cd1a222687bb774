"""Every optimiser gets to the bottom of a valley that is narrow and lies askew.

That each also trains the digits, at the numbers in `optimisers/demo/rule_text.py`, is in
`tests/test_demo.py`.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import optimisers

from ..cases import TRAINING, Case, make


def valley(model: Any) -> Any:
    """Return a loss with its minimum, 0, at a = (1, -1), b = 0.5: long, narrow, and askew."""
    a, b = model["a"], model["b"]
    return 0.5 * (a[0] - 1) ** 2 + 2 * (a[1] + 2 * b[0]) ** 2 + (b[0] - 0.5) ** 2


@TRAINING
def test_an_optimiser_reaches_the_bottom_of_a_valley(case: Case) -> None:
    rule = make(case.trains)

    @jax.jit
    def descend(model: Any) -> Any:
        def body(carry: Any, _: None) -> Any:
            state, model = carry
            return optimisers.update(state, model, jax.grad(valley)(model)), None

        (_, model), _ = jax.lax.scan(body, (optimisers.setup(rule, model), model), length=800)
        return model

    start = {"a": jnp.array([3.0, 3.0]), "b": jnp.array([-1.0])}
    end = descend(start)
    assert float(valley(end)) < 0.01 < float(valley(start))
    np.testing.assert_allclose(end["a"], [1.0, -1.0], atol=0.15)
