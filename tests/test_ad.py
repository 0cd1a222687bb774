"""optimisers.ad: one way to ask for a gradient, whichever library answers."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import optimisers
from optimisers import Descent, ad, setup, update
from optimisers.errors import ArgumentError, ShapeError


def squares(model: Any, x: Any) -> Any:
    return (model["w"] ** 2 * x).sum()


def test_only_what_is_trained_is_differentiated_and_none_stands_elsewhere() -> None:
    model = {
        "w": np.array([1.0, 2.0]),
        "act": np.tanh,
        "n": 3,
        "name": "net",
        "order": np.arange(2),
        "gap": None,
    }
    grads = ad.gradient(squares, model, np.array([1.0, 10.0]))
    assert [name for name, g in grads.items() if g is not None] == ["w"]
    np.testing.assert_array_equal(grads["w"], [2.0, 40.0])
    _, new = update(setup(Descent(0.5), model), model, grads)
    np.testing.assert_array_equal(new["w"], [0.0, -18.0])
    assert new["act"] is np.tanh


def test_values_gradients_and_aux_come_in_two_shapes() -> None:
    model, x = {"w": jnp.array([1.0, 2.0])}, jnp.array([1.0, 1.0])
    value, grads = ad.value_and_gradient(squares, model, x)
    assert float(value) == 5.0
    out, again = ad.value_and_gradient(
        lambda m, x: (squares(m, x), {"twice": 2 * m["w"], "text": "kept"}), model, x, has_aux=True
    )
    np.testing.assert_array_equal(grads["w"], again["w"])
    assert float(out[0]) == 5.0
    np.testing.assert_array_equal(out[1]["twice"], [2.0, 4.0])
    assert out[1]["text"] == "kept"
    assert ad.value_and_gradient(
        lambda m, x: (squares(m, x), None), model, x, has_aux=True
    )[0] == (5.0, None)  # fmt: skip


def test_a_model_may_be_one_array() -> None:
    np.testing.assert_array_equal(ad.gradient(lambda w: (w**2).sum(), np.array([3.0])), [6.0])


def test_complex_gradients_are_directions_of_descent() -> None:
    z = np.array([3.0 + 4.0j])
    grads = ad.gradient(lambda z: (jnp.abs(z) ** 2).sum(), z)
    np.testing.assert_allclose(grads, 2 * z)


def test_64_bit_numpy_parameters_are_differentiated_in_64_bits() -> None:
    assert not jax.config.read("jax_enable_x64")
    w = np.array([1.0 + 2.0**-40])
    (value, aux), grads = ad.value_and_gradient(
        lambda w: ((w**3).sum(), 2 * w), w, has_aux=True
    )  # fmt: skip
    assert {str(np.asarray(x).dtype) for x in (value, aux, grads)} == {"float64"}
    assert grads[0] == 3 * w[0] ** 2
    assert float(value) == w[0] ** 3
    narrow = ad.gradient(lambda m: (m["a"] ** 2).sum().astype(float) + m["b"].sum(),
                         {"a": np.ones(2, np.float32), "b": np.ones(2)})  # fmt: skip
    assert (narrow["a"].dtype, narrow["b"].dtype) == (np.float32, np.float64)


def test_gradients_pass_through_jax_transformations() -> None:
    def cubes(w: Any) -> Any:
        return (w**3).sum()

    w = jnp.array([1.0, 2.0])
    np.testing.assert_allclose(jax.jit(lambda w: ad.gradient(cubes, w))(w), 3 * w**2)
    np.testing.assert_allclose(ad.gradient(lambda w: ad.gradient(cubes, w).sum(), w), 6 * w)
    np.testing.assert_allclose(
        jax.vmap(lambda w: ad.gradient(lambda w: w**3, w))(w), 3 * w**2
    )  # fmt: skip


@pytest.mark.parametrize(
    ("returned", "error", "message"),
    [
        (lambda m: m["w"], ShapeError, r"cannot differentiate float32\[2\]: the function must"),
        (lambda m: None, ArgumentError, "cannot differentiate a NoneType"),
        (lambda m: (m["w"].sum(), 1), ArgumentError, "pass has_aux=True"),
        (
            lambda m: jnp.argmax(m["w"]),
            ArgumentError,
            r"int32\[\]: the function must return a real",
        ),
        (lambda m: m["w"].sum() * 1j, ArgumentError, r"complex64\[\]: .* real floating number"),
    ],
)
def test_a_loss_that_is_not_one_number_is_refused(
    returned: Any, error: type[Exception], message: str
) -> None:
    with jax.numpy_dtype_promotion("standard"), pytest.raises(error, match=message):
        ad.gradient(returned, {"w": jnp.ones(2)})


def test_bad_arguments_get_one_sentence() -> None:
    w = np.ones(2)
    with pytest.raises(ArgumentError, match=r"ad must be a backend such as AutoJAX\(\), got 'jax'"):
        ad.gradient(np.sum, w, ad="jax")  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match=r"make a backend of it: AutoJAX\(\)"):
        ad.gradient(np.sum, w, ad=ad.AutoJAX)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="the function comes first"):
        ad.gradient(w, np.sum)
    with pytest.raises(ArgumentError, match="nothing in the model is trainable"):
        ad.gradient(np.sum, {"n": 3})
    with pytest.raises(ArgumentError, match="nothing in the model is trainable"):
        ad.gradient(np.sum, {"n": 3}, ad=ad.AutoJAX())
    with pytest.raises(ArgumentError, match=r"must return \(value, aux\), got tuple of 3"):
        ad.value_and_gradient(lambda w: (1.0, 2, 3), w, has_aux=True)


def test_a_backend_is_a_value() -> None:
    assert ad.AutoJAX() == ad.AutoJAX()
    assert repr(ad.AutoJAX()) == "AutoJAX()"
    assert optimisers.ad is ad
