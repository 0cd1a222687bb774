"""optimisers.ad with the libraries whose backends are tested nowhere else."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pytest

from optimisers import Descent, ad, setup, train
from optimisers.ad import Backend
from optimisers.errors import ArgumentError, NonFiniteLossError, ShapeError

from .library import Case, values
from .problem import RULE, STEPS, data, first_gradients, numbers, trained

pytestmark = pytest.mark.peers
BACKENDS = [("tensorflow", "AutoTensorFlow"), ("mlx", "AutoMLX"), ("tinygrad", "AutoTinygrad")]


class Library:
    """A backend, and the nest and the loss that the table of libraries has for it."""

    def __init__(self, name: str, backend: str) -> None:
        self.cases = importlib.import_module(f".libraries.{name}_", __package__)
        self.backend: Backend = getattr(ad, backend)()
        self.make, self.loss = self.cases.nest, self.cases.nest_loss
        self.case = Case(self.make, lambda *_: (), self.loss)


@pytest.fixture(params=[pytest.param(b, id=b[0], marks=pytest.mark.needs(b[0])) for b in BACKENDS])
def library(request: pytest.FixtureRequest) -> Library:
    return Library(*request.param)


def test_gradients_are_those_of_jax_grad(library: Library) -> None:
    model = library.make(numbers())
    value, grads = ad.value_and_gradient(library.loss, model, *data())
    assert values(value).shape == ()
    assert grads["enc"]["count"] is None
    assert grads["enc"].get("act") is None
    wanted, found = first_gradients(), library.case.found(model, (grads,))
    assert np.allclose(found["b"], wanted["b"], rtol=1e-5)
    assert np.allclose(found["narrow"], wanted["narrow"], rtol=2e-3)
    total = [g for g in (found["w"], found["again"]) if not isinstance(g, str)]
    assert np.allclose(sum(total), wanted["w"] + wanted["again"], rtol=1e-5, atol=1e-6)
    assert isinstance(found["unused"], str) or not found["unused"].any()


def test_a_model_is_trained_in_place_as_by_jax(library: Library) -> None:
    model = library.make(numbers())
    before = library.case.parameters(model)
    state, after = train(library.loss, model, [data()] * STEPS, setup(RULE, model), progress=False)
    for name, x in library.case.parameters(after).items():
        assert x is before[name]
        expected = trained()["w" if name == "again" else name]
        assert np.allclose(values(x), expected, rtol=1e-4, atol=1e-3 if name == "narrow" else 1e-5)
    assert state["enc"]["w"].state


def test_what_the_function_returns_beside_its_value_is_handed_on(library: Library) -> None:
    model = library.make(numbers())
    out, grads = ad.value_and_gradient(
        lambda m, x, y: (library.loss(m, x, y), {"w": m["enc"]["w"] * 2, "text": "kept"}),
        model, *data(), has_aux=True,
    )  # fmt: skip
    assert np.allclose(values(out[1]["w"]), numbers()["w"] * 2)
    assert out[1]["text"] == "kept"
    assert np.allclose(values(grads["enc"]["b"]), first_gradients()["b"], rtol=1e-5)


def test_arrays_of_numpy_are_taken_over_and_one_stays_one(library: Library) -> None:
    p, act = numbers(), library.make(numbers())["enc"].get("act")
    enc, dec = {"w": p["w"], "b": p["b"], "act": act}, {"w": p["w"], "narrow": p["narrow"]}
    grads = ad.gradient(library.loss, {"enc": enc, "dec": dec}, *data(), ad=library.backend)
    parts = [values(g["w"]) for g in grads.values() if g["w"] is not None]
    wanted = first_gradients()
    assert np.allclose(sum(parts), wanted["w"] + wanted["again"], rtol=1e-5, atol=1e-6)


def test_a_loss_that_is_no_number_of_the_library_is_refused(library: Library) -> None:
    model = library.make(numbers())
    with pytest.raises(ArgumentError, match="cannot differentiate a float, which does not depend"):
        ad.gradient(lambda m: 3.0, model)
    with pytest.raises(ShapeError, match=r"cannot differentiate \w+\[3\]: the function must"):
        ad.gradient(lambda m: m["enc"]["b"] * 2, model)


@pytest.mark.parametrize(
    ("name", "backend"), [pytest.param(*b, marks=pytest.mark.needs(b[0])) for b in BACKENDS[:2]]
)
def test_complex_gradients_are_descent_directions(name: str, backend: str) -> None:
    module = importlib.import_module(f".libraries.{name}_", __package__)
    square = {"tensorflow": lambda z: module.tf.math.real(z * module.tf.math.conj(z)),
              "mlx": lambda z: module.mx.abs(z) ** 2}[name]  # fmt: skip
    total = {"tensorflow": "tf.reduce_sum", "mlx": "mx.sum"}[name].split(".")
    add = getattr(getattr(module, total[0]), total[1])
    z = np.array([1 + 2j, 3 - 1j], np.complex64)
    grads = ad.gradient(lambda z: add(square(z)), z, ad=getattr(ad, backend)())
    assert np.allclose(values(grads), 2 * z)


@pytest.mark.needs("mlx")
def test_running_means_of_a_module_of_mlx_stand_in_it_afterwards() -> None:
    nn, mx = importlib.import_module("mlx.nn"), importlib.import_module("mlx.core")
    norm = nn.BatchNorm(2)
    grads = ad.gradient(lambda m, x: (m(x) ** 2).sum(), norm, mx.array([[1.0, 2.0], [3.0, 6.0]]))
    assert np.allclose(values(norm.running_mean), [0.2, 0.4])
    assert np.allclose(values(grads["bias"]), 0, atol=1e-5)
    norm.eval()
    fixed = values(norm.running_mean)
    ad.gradient(lambda m, x: (m(x) ** 2).sum(), norm, mx.array([[1.0, 2.0], [3.0, 6.0]]))
    assert np.array_equal(values(norm.running_mean), fixed)


@pytest.mark.needs("tinygrad")
def test_tinygrad_captures_a_loss_of_tensors_and_only_that() -> None:
    Tensor = importlib.import_module("tinygrad").Tensor
    calls: list[str] = []

    def loss(m: Any, x: Any) -> Any:
        calls.append("python ran")
        return ((m["w"] - x) ** 2).sum()

    def looks(m: Any, x: Any) -> Any:
        return loss(m, x) if float(x.sum().numpy()) > 0 else 2 * loss(m, x)

    def of_numpy(m: Any, x: Any) -> Any:
        return loss(m, Tensor(x))

    xs = [np.array([1.0, n], np.float32) for n in range(6)]
    tensors = [Tensor(x) for x in xs]
    for f, batches, ran in [(loss, tensors, 2), (looks, tensors, 6), (of_numpy, xs, 6)]:
        calls.clear()
        model = {"w": Tensor([0.0, 0.0])}
        train(f, model, batches, setup(Descent(0.25), model), progress=False)
        w = np.zeros(2)
        for x in xs:
            w -= 0.5 * (w - x)
        assert np.allclose(values(model["w"]), w)
        assert len(calls) == ran


@pytest.mark.needs("tinygrad")
def test_tensors_of_tinygrad_that_are_not_computed_yet_are_drawn_once() -> None:
    Tensor = importlib.import_module("tinygrad").Tensor
    model = {"w": Tensor.uniform(3), "fixed": Tensor.uniform(3).is_param_(False)}
    out, grads = ad.value_and_gradient(
        lambda m: ((m["w"] * m["fixed"]).sum(), m["fixed"] * 1), model, has_aux=True
    )
    assert np.allclose(values(grads["w"]), values(out[1]))
    assert np.allclose(values(model["fixed"]), values(out[1]))
    mean = {"w": Tensor([1.0, 2.0]), "mean": Tensor.zeros(2).contiguous().is_param_(False)}

    def loss(m: Any, x: Any) -> Any:
        m["mean"].assign(m["mean"] * 0.5 + x)
        return (m["w"] * x).sum()

    train(loss, mean, [Tensor([1.0, 2.0]) for _ in range(5)], setup(Descent(0.1), mean))
    assert np.allclose(values(mean["mean"]), 1.9375 * np.array([1.0, 2.0]))


@pytest.mark.needs("mlx")
def test_arrays_of_mlx_that_are_written_are_as_before_a_batch_that_failed() -> None:
    nn, mx = importlib.import_module("mlx.nn"), importlib.import_module("mlx.core")

    class Net(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.w, self.mean, self.seen = mx.ones(2), mx.zeros(2), mx.array([False])
            self.freeze(keys=["mean", "seen"])

        def __call__(self, x: Any) -> Any:
            self.mean += x  # in place, as MLX has it
            self.seen[0] = mx.isnan(x[0])
            return (self.w * x).sum()

    net, ones = Net(), mx.ones(2)
    with pytest.raises(NonFiniteLossError, match="batch 1"):
        train(lambda m, x: m(x), net, [ones, ones * np.nan], setup(Descent(0.1), net))
    assert (values(net.mean).tolist(), values(net.seen).tolist()) == ([1.0, 1.0], [False])


@pytest.mark.needs("tinygrad")
@pytest.mark.parametrize("realized", [False, True])
def test_tensors_that_are_no_parameters_are_as_before_a_batch_that_failed(realized: bool) -> None:
    Tensor = importlib.import_module("tinygrad").Tensor
    model = {"w": Tensor([1.0, 2.0]), "mean": Tensor([0.0, 0.0]).is_param_(False),
             "seen": Tensor([0])}  # fmt: skip

    def loss(m: Any, x: Any) -> Any:
        written = m["mean"].assign(0.5 * m["mean"] + 0.5 * x), m["seen"].assign(m["seen"] + 1)
        if realized:
            Tensor.realize(*written)
        return ((m["w"] * x) ** 2).sum()

    ones = Tensor([1.0, 1.0])
    for batches in ([ones, ones * np.nan], [ones] * 4 + [ones * np.nan]):
        with pytest.raises(NonFiniteLossError, match=f"batch {len(batches) - 1}"):
            train(loss, model, batches, setup(Descent(0.0), model))
    assert np.allclose(model["mean"].numpy(), 1 - 0.5**5)
    assert model["seen"].numpy().tolist() == [5]
    assert model["w"].numpy().tolist() == [1.0, 2.0]


@pytest.mark.needs("tensorflow")
def test_variables_that_are_not_trained_are_as_before_a_batch_that_failed() -> None:
    import tensorflow as tf

    model = {"w": tf.Variable([1.0, 2.0]), "mean": tf.Variable([0.0, 0.0], trainable=False)}

    def loss(m: Any, x: Any) -> Any:
        m["mean"].assign(0.5 * m["mean"] + 0.5 * x)
        return tf.reduce_sum((m["w"] * x) ** 2)

    ones = tf.constant([1.0, 1.0])
    with pytest.raises(NonFiniteLossError, match="batch 1"):
        train(loss, model, [ones, ones * np.nan], setup(Descent(0.1), model))
    assert model["mean"].numpy().tolist() == [0.5, 0.5]
    assert np.allclose(model["w"].numpy(), [0.8, 1.6])
