"""optimisers.ad: one way to ask for a gradient, whichever library answers."""

from __future__ import annotations

import functools
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import optimisers
from optimisers import Descent, ad, setup, train, update
from optimisers.ad.backend import BACKENDS
from optimisers.ad.find import backend_of
from optimisers.errors import ArgumentError, MissingLibraryError, ShapeError, StateError


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


def test_a_class_that_refuses_none_has_a_dict_for_its_gradients() -> None:
    @dataclass
    class Checked:
        w: Any
        order: Any

        def __post_init__(self) -> None:
            if self.order is None:
                raise ValueError("no order")

    jax.tree_util.register_dataclass(Checked, ["w", "order"], [])
    model = [Checked(jnp.ones(2), jnp.arange(2))]
    grads = ad.gradient(lambda m: (m[0].w ** 2).sum(), model)
    assert grads[0]["order"] is None
    _, new = update(setup(Descent(0.5), model), model, grads)
    np.testing.assert_array_equal(new[0].w, [0.0, 0.0])


def test_gradients_of_numpy_arrays_may_be_written() -> None:
    grads = ad.gradient(squares, {"w": np.ones(2, np.float32)}, np.ones(2, np.float32))
    grads["w"] *= 0.5
    np.testing.assert_array_equal(grads["w"], [1.0, 1.0])


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
        (lambda m: True, ArgumentError, "cannot differentiate a bool"),
        (lambda m: "1.0", ArgumentError, "cannot differentiate a str"),
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
    with pytest.raises(
        ArgumentError, match=r"ad must be .* AutoJAX\(\), got 'jax'; use Auto\w+, .* or"
    ):
        ad.gradient(np.sum, w, ad="jax")  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match=r"make a backend of it: AutoJAX\(\)"):
        ad.gradient(np.sum, w, ad=ad.AutoJAX)  # type: ignore[arg-type]
    for step in (0.0, -1.0, "small"):
        with pytest.raises(ArgumentError, match="step must be a positive number or None, got"):
            ad.AutoFiniteDiff(step)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="the function comes first"):
        ad.gradient(w, np.sum)
    with pytest.raises(ArgumentError, match="nothing in the model is trainable"):
        ad.gradient(np.sum, {"n": 3})
    with pytest.raises(ArgumentError, match="nothing in the model is trainable"):
        ad.gradient(np.sum, {"n": 3}, ad=ad.AutoJAX())
    with pytest.raises(ArgumentError, match=r"must return \(value, aux\), got tuple of 3"):
        ad.value_and_gradient(lambda w: (1.0, 2, 3), w, has_aux=True)
    with pytest.raises(ArgumentError, match=r"must return \(value, aux\), got float64\[\]"):
        ad.value_and_gradient(lambda w: w.sum(), w, has_aux=True)


def test_numbers_of_python_and_numpy_are_constant_losses() -> None:
    for constant in (2, 2.0, np.float32(2.0), np.int64(2)):
        value, grads = ad.value_and_gradient(lambda m, c=constant: c, {"w": jnp.ones(2)})
        assert float(value) == 2.0
        np.testing.assert_array_equal(grads["w"], [0.0, 0.0])


def test_functions_of_numpy_on_traced_arrays_get_a_hint() -> None:
    for call in (
        lambda w: ad.gradient(lambda w: np.sqrt(w).sum(), w),
        lambda w: train(lambda w: np.sqrt(w).sum(), w, [()], setup(Descent(), w)),
    ):
        with pytest.raises(jax.errors.TracerArrayConversionError) as error:
            call(np.ones(2, np.float32))
        assert "write the function with jax.numpy" in " ".join(error.value.__notes__)


def test_a_deleted_array_is_told_by_its_place() -> None:
    model = {"w": jnp.ones(2)}
    model["w"].delete()
    with pytest.raises(StateError, match=r'^model\["w"\] was deleted: .* the last call returned$'):
        ad.gradient(lambda m: m["w"].sum(), model)


def test_a_backend_is_a_value() -> None:
    assert ad.AutoJAX() == ad.AutoJAX()
    assert repr(ad.AutoFiniteDiff(1e-4)) == "AutoFiniteDiff(step=0.0001)"
    assert optimisers.ad is ad


def test_gradients_of_an_equinox_module_are_one() -> None:
    import equinox as eqx

    mlp = eqx.nn.MLP(2, 1, 3, 1, activation=jnp.tanh, key=jax.random.key(0))
    (value, act), grads = ad.value_and_gradient(
        lambda m, x: (m(x)[0], m.activation), mlp, jnp.ones(2), has_aux=True
    )
    assert type(grads) is type(mlp)
    assert act is mlp.activation
    assert grads.activation is None
    expected = eqx.filter_grad(lambda m, x: m(x)[0])(mlp, jnp.ones(2))
    np.testing.assert_array_equal(grads.layers[0].weight, expected.layers[0].weight)
    assert backend_of(None, {"deep": [mlp]}) == ad.AutoEquinox()
    np.testing.assert_allclose(value, mlp(jnp.ones(2))[0], rtol=1e-6)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex64])
def test_autograd_answers_as_jax_does(dtype: Any) -> None:
    import autograd.numpy as anp

    model = {"w": np.array([1.0, 2.0], dtype), "b": np.array(3.0, dtype), "off": np.ones(1, dtype)}

    def loss(np_: Any, m: Any) -> Any:
        value = np_.sum(np_.abs(m["w"] * m["w"] * m["b"]))
        return value, {"w": m["w"], "all": m, "text": "kept"}

    (value, aux), grads = ad.value_and_gradient(
        functools.partial(loss, anp), model, has_aux=True, ad=ad.AutoAutograd()
    )
    (same, _), expected = ad.value_and_gradient(functools.partial(loss, jnp), model, has_aux=True)
    np.testing.assert_allclose(value, same, rtol=1e-6)
    np.testing.assert_array_equal(grads["off"], [0.0])
    for name in ("w", "b"):
        np.testing.assert_allclose(grads[name], expected[name], rtol=1e-6)
    assert type(aux["w"]) is np.ndarray
    assert type(aux["all"]["b"]) is np.ndarray
    assert aux["text"] == "kept"


def test_autograd_nests() -> None:
    import autograd.numpy as anp

    def cubes(m: Any) -> Any:
        return anp.sum(m["w"] ** 3), m["w"]

    def slope(m: Any) -> Any:
        (value, aux), grads = ad.value_and_gradient(cubes, m, has_aux=True)
        return anp.sum(grads["w"]) + value + anp.sum(aux)

    w = np.array([1.0, 2.0])
    grads = ad.gradient(slope, {"w": w}, ad=ad.AutoAutograd())
    np.testing.assert_allclose(grads["w"], 6 * w + 3 * w**2 + 1)


def ties_of(backend: ad.Backend, w: Any) -> tuple[Any, Any]:
    model = {"enc": w, "dec": w, "b": w * 1}
    grads = ad.gradient(
        lambda m: (2 * m["enc"] + 5 * m["dec"] + 11 * m["b"]).sum(), model, ad=backend
    )
    return model, grads


@pytest.mark.parametrize("ties", [None, [("enc", "dec")], [("enc", "dec", "b")], ()])
def test_ties_need_no_flag(ties: Any, torch: Any) -> None:
    arrays = {
        ad.AutoJAX(): jnp.ones(2),
        ad.AutoEquinox(): jnp.ones(2),
        ad.AutoAutograd(): np.ones(2),
        ad.AutoFiniteDiff(): np.ones(2),
        ad.AutoTorch(): torch.ones(2),
    }
    by_hand = {None: (7, 7, 11), "b": (18, 18, 18), "none": (2, 5, 11)}
    wanted = by_hand["none" if ties == () else "b" if ties and len(ties[0]) == 3 else None]
    for backend, w in arrays.items():
        model, grads = ties_of(backend, w)
        _, new = update(setup(Descent(1.0), model, ties=ties), model, grads)
        moved = [float((w - new[name])[0]) for name in ("enc", "dec", "b")]
        np.testing.assert_allclose(moved, wanted, rtol=1e-6, err_msg=repr(backend))


def test_finite_differences_check_any_library(torch: Any) -> None:
    w, x = np.array([[1.0, 2.0], [3.0, -4.0]], np.float32), np.array([0.5, 2.0], np.float32)

    def loss(m: Any, x: Any) -> Any:
        return (m["w"] ** 2 @ x).sum(), m["n"]

    for array in (np.array, jnp.array, torch.tensor):
        (value, n), grads = ad.value_and_gradient(
            loss, {"w": array(w), "n": 3}, array(x), ad=ad.AutoFiniteDiff(), has_aux=True
        )
        assert grads["w"].dtype == np.float64
        np.testing.assert_allclose(grads["w"], 2.0 * w * x, rtol=1e-9)
        assert (n, grads["n"]) == (3, None)
        np.testing.assert_allclose(value, loss({"w": w, "n": 3}, x)[0])
    z = np.array([3.0 + 4.0j])
    np.testing.assert_allclose(
        ad.gradient(lambda z: (abs(z) ** 2).sum(), z, ad=ad.AutoFiniteDiff()), 2 * z, rtol=1e-9
    )
    with pytest.raises(ArgumentError, match=r"cannot be used inside jax\.jit"):
        jax.jit(lambda w: ad.gradient(jnp.sum, w, ad=ad.AutoFiniteDiff()))(jnp.ones(2))


def test_the_backend_is_found_from_the_model(torch: Any) -> None:
    found = {
        ad.AutoJAX(): [jnp.ones(2), {"a": np.ones(2)}, [jnp.ones(2), np.ones(2)]],
        ad.AutoTorch(): [
            torch.ones(2),
            {"a": torch.ones(2), "np": np.ones(2)},
            torch.nn.Linear(1, 1),
        ],
    }
    for backend, models in found.items():
        for model in models:
            assert backend_of(None, model) == backend
    with pytest.raises(ArgumentError, match=r"AutoJAX and AutoTorch at once.* ad=AutoJAX\(\)"):
        backend_of(None, [jnp.ones(2), torch.ones(2)])


def test_arrays_without_a_backend_are_named() -> None:
    import scipy.sparse

    with pytest.raises(ArgumentError, match=r"no backend is known .* \(csr_array\); give one: ad="):
        ad.gradient(np.sum, {"w": scipy.sparse.csr_array(np.eye(2))})


def test_a_named_backend_takes_arrays_of_others(torch: Any) -> None:
    w = np.array([1.0, 2.0], np.float32)
    for backend, array in [
        (ad.AutoTorch(), np.array), (ad.AutoTorch(), jnp.array), (ad.AutoJAX(), torch.tensor)
    ]:  # fmt: skip
        model = {"w": array(w)}
        grads = ad.gradient(lambda m: (m["w"] ** 2).sum(), model, ad=backend)
        np.testing.assert_array_equal(np.asarray(grads["w"]), 2 * w)
        _, new = update(setup(Descent(0.5), model), model, grads)
        np.testing.assert_array_equal(np.asarray(new["w"]), [0.0, 0.0])


@pytest.mark.parametrize(
    ("backend", "library"),
    [
        (ad.AutoEquinox, "equinox"),
        (ad.AutoAutograd, "autograd"),
        (ad.AutoTorch, "torch"),
        (ad.AutoTensorFlow, "tensorflow"),
        (ad.AutoMLX, "mlx"),
        (ad.AutoTinygrad, "tinygrad"),
    ],
)
def test_a_missing_library_gets_the_line_that_installs_it(
    backend: Any, library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(
        MissingLibraryError, match=f'not installed; python -m pip install "?{library}'
    ):
        backend()


def test_a_new_backend_is_two_methods() -> None:
    class Ring:
        """An array of a library of one function."""

    class AutoRing(ad.Backend):
        @classmethod
        def knows(cls, kind: type) -> bool:
            return issubclass(kind, Ring)

        def differentiate(self, f: Any, arrays: Any) -> Any:
            return f(arrays), [np.full(np.shape(x), 7.0) for x in arrays]

    try:
        assert backend_of(None, {"ring": Ring()}) == AutoRing()
        model = {"w": np.ones(2), "n": 3}
        value, grads = ad.value_and_gradient(lambda m: m["w"].sum(), model, ad=AutoRing())
        assert float(value) == 2.0
        np.testing.assert_array_equal(grads["w"], [7.0, 7.0])
        assert grads["n"] is None
        again = type("AutoRing", (AutoRing,), {"__qualname__": AutoRing.__qualname__})
        assert backend_of(None, {"ring": Ring()}) == again()  # as when a cell of a notebook is run
    finally:
        BACKENDS[:] = [backend for backend in BACKENDS if not issubclass(backend, AutoRing)]


def test_the_page_has_a_row_for_each_backend_and_tells_what_unused_arrays_get(torch: Any) -> None:
    page = (Path(__file__).parents[1] / "docs/how-to/gradients.md").read_text(encoding="utf-8")
    rows = {
        cells[0].strip(" `()"): cells[3].strip(" `")
        for line in page.splitlines()
        if line.startswith("| `Auto") and (cells := line.strip("|").split("|"))
    }
    assert sorted(rows) == sorted(name for name in ad.__all__ if name.startswith("Auto"))
    for name, unused in rows.items():
        if name in ("AutoTensorFlow", "AutoMLX", "AutoTinygrad"):
            continue  # tests/interop runs where these are installed
        array = torch.tensor if name == "AutoTorch" else np.array
        model = {"w": array([1.0, 2.0]), "unused": array([3.0])}
        grads = ad.gradient(lambda m: (m["w"] ** 2).sum(), model, ad=getattr(ad, name)())
        assert (grads["unused"] is None) == (unused == "None"), name
        np.testing.assert_allclose(grads["w"], [2.0, 4.0], rtol=1e-9)
