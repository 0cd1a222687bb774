"""Norms of what is too large or too small to be squared, in one pass and in parts."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, strategies as st

from optimisers import ClipGlobalNorm, ClipNorm, Descent, setup, update
from optimisers.rules.across import ALONE, combined, reduced, told

from ..compiles import compiles

MAGNITUDES = st.floats(1.0, 2.0, exclude_max=True)


@st.composite
def numbers(draw: st.DrawFn, least: int, most: int) -> list[float]:
    """Draw six numbers around one power of two, and of any below it; perhaps zeros at the end."""
    centre = draw(st.integers(least, most))
    near = st.integers(max(least, centre - 3), min(most, centre + 3))
    exponents = draw(st.lists(st.one_of(near, st.integers(least, centre)), min_size=1, max_size=6))
    some = [draw(MAGNITUDES) * draw(st.sampled_from([-1, 1])) * 2.0**e for e in exponents]
    return [*some, *[0.0] * (6 - len(some))]


def exact(values: np.ndarray) -> float:
    """Return the norm as `math.hypot` would, at a scale where nothing is lost."""
    largest = float(np.abs(values).max())
    return largest * float(np.linalg.norm(values.astype(np.float64) / largest))


# The sum of at most six squares and a root round a few times each.
@given(numbers(-120, 124))
def test_float32_norms_at_any_scale(values: list[float]) -> None:
    x = np.array(values, np.float32)
    scale, root = ALONE.model(jnp.asarray(x), "norm")
    np.testing.assert_allclose(float(scale) * float(root), exact(x), rtol=1e-6)


@given(numbers(-1015, 1020))
def test_float64_norms_at_any_scale(values: list[float]) -> None:
    x = np.array(values)
    with jax.enable_x64(True):
        scale, root = ALONE.array(jnp.asarray(x), "norm")
        assert scale.dtype == root.dtype == np.float64
        np.testing.assert_allclose(float(scale) * float(root), exact(x), rtol=1e-14)


@given(numbers(-120, 120), numbers(-120, 120))
def test_parts_give_the_norm_of_the_whole(a: list[float], b: list[float]) -> None:
    x, y = np.array(a, np.float32), np.array(b, np.float32)
    answer = combined([reduced(jnp.asarray(v), "norm") for v in (x, y)], "norm")
    scale, root = told(answer, "norm")
    np.testing.assert_allclose(float(scale) * float(root), exact(np.concatenate([x, y])), rtol=1e-6)


def test_powers_of_two_do_not_change_a_digit() -> None:
    for e in range(-120, 125):
        scale, root = ALONE.model(jnp.array([3.0, 4.0], jnp.float32) * 2.0**e, "norm")
        assert float(scale) * float(root) == 5.0 * 2.0**e


@pytest.mark.parametrize("large", [1e30, 1e40, 1e150, 1e300])
def test_float32_beside_large_float64(large: float) -> None:
    """float32 could not even hold the norm, by which its gradients are to be divided."""
    model = {"a": np.zeros(2, np.float32), "b": np.zeros(2, np.float64)}
    grads = {"a": np.array([3e30, 0], np.float32), "b": np.array([0, large])}
    _, new = update(setup(ClipGlobalNorm(1.0), model), model, grads)
    norm = exact(np.array([3e30, large]))
    # The sum over float32 is rounded to float32; what that cannot hold is 0.
    np.testing.assert_allclose(new["b"], [0, -large / norm], rtol=1e-6)
    np.testing.assert_allclose(new["a"], [-3e30 / norm, 0], rtol=1e-6, atol=1e-38)


@pytest.mark.parametrize("value", [0.0, 1e-30, 1.0, 1e25, 3e38])
def test_derivatives_are_finite_at_any_scale(value: float) -> None:
    def norm(x: jax.Array) -> jax.Array:
        scale, root = ALONE.model(x, "norm")
        return scale * root

    x = jnp.array([value, 0.0, -value], jnp.float32)
    for gradient in (jax.grad(norm), lambda x: jax.vmap(jax.grad(norm))(x[None])[0]):
        expected = np.array([1, 0, -1]) / np.sqrt(2) if value else np.zeros(3)
        np.testing.assert_allclose(gradient(x), expected, rtol=1e-5)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_a_norm_of_what_is_not_finite_is_not(value: float, dtype: Any) -> None:
    with jax.enable_x64(dtype == np.float64):
        scale, root = ALONE.model(jnp.array([1.0, value, 1e-30], dtype), "norm")
        np.testing.assert_equal(float(scale * root), abs(value))


def test_nothing_within_a_bound_of_nothing_is_a_zero_step() -> None:
    model = {"w": jnp.ones(3), "v": jnp.ones((90, 90))}
    for rule in (ClipGlobalNorm(0.0), ClipNorm(0.0)):
        _, new = update(setup(rule, model), model, jax.tree.map(jnp.zeros_like, model))
        jax.tree.map(np.testing.assert_array_equal, new, model)


def test_one_program_where_one_unit_asks() -> None:
    """The answer is worked out on the way, and not by a program of its own."""
    model = {f"w{i}": jnp.full(3, float(i)) for i in range(8)}
    grads = jax.tree.map(jnp.ones_like, model)
    for rule in (ClipGlobalNorm(1.0), ClipNorm(1.0, throw=False)):
        state = setup(rule, model)
        update(setup(Descent(), model), model, grads)  # what any step compiles by the way
        with compiles() as count:
            update(state, model, grads)
            assert count() == 1
