"""Arrays of TensorFlow, MLX, tinygrad and Keras: dtypes, memory, vectors, no parameters."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from optimisers import Descent, destructure, setup, update, update_
from optimisers.arrays import adapter_of, describe
from optimisers.errors import ArgumentError

from .library import values

pytestmark = pytest.mark.peers
REAL = ["float32", "float16", "bfloat16", "float64"]
DTYPES = {"tensorflow": [*REAL, "complex64", "complex128"], "mlx": [*REAL, "complex64"],
          "tinygrad": REAL, "keras": ["float32", "float16", "bfloat16"]}  # fmt: skip


def maker(library: str) -> Callable[[Any], Any]:
    """Return what makes an array that can be written from one of NumPy's."""
    module = importlib.import_module(library + (".core" if library == "mlx" else ""))
    if library == "mlx":
        return lambda x: module.array(x, getattr(module, str(x.dtype)))
    if library == "keras":
        return lambda x: module.Variable(x, dtype=str(x.dtype))
    if library == "tensorflow":
        return module.Variable  # type: ignore[no-any-return]
    adapter = adapter_of(module.Tensor)
    assert adapter is not None
    return adapter.array


LIBRARIES = [pytest.param(name, id=name, marks=pytest.mark.needs(name)) for name in DTYPES]
ALL = pytest.mark.parametrize("library", LIBRARIES)
DIFFERENTIATED = pytest.mark.parametrize("library", LIBRARIES[:3])


@ALL
@pytest.mark.parametrize("step", [update, update_])
def test_every_dtype_and_shape_is_kept(library: str, step: Any) -> None:
    make = maker(library)
    for dtype in DTYPES[library]:
        for shape in ((), (2, 3), (0, 2)) if dtype == "float32" else ((2, 3),):
            x = make(np.ones(shape, jnp.dtype(dtype)))
            state = setup(Descent(0.5), x)
            for _ in range(2):
                state, new = step(state, x, np.ones(shape, np.float32))
                assert (new is x) == (step is update_)
                x = new
            got = values(x)
            assert (str(got.dtype), got.shape) == (dtype, shape)
            assert np.all(np.abs(got.astype(complex)) < 1e-2)


@ALL
def test_update_leaves_arrays_alone_and_shares_no_memory(library: str) -> None:
    make = maker(library)
    model = {"w": make(np.ones(2, np.float32)), "b": make(np.ones(2, np.float32))}
    state = setup(Descent(0.5), model)
    new = update(state, model, {"w": np.ones(2, np.float32), "b": None})[1]
    assert new["b"] is model["b"]
    assert type(new["w"]) is type(model["w"])
    newer = update_(state, new, {"w": np.ones(2, np.float32), "b": np.ones(2, np.float32)})[1]
    assert newer["w"] is new["w"]
    assert [values(model[k]).tolist() for k in "wb"] == [[1, 1], [0.5, 0.5]]
    assert values(newer["w"]).tolist() == [0, 0]


@ALL
def test_gradients_of_other_libraries_and_narrower_ones_fit(library: str) -> None:
    make = maker(library)
    for g in (np.ones(2, np.float16), jnp.ones(2), make(np.ones(2, np.float32)), np.ones(2, int)):
        for x in (make(np.ones(2, np.float32)), jnp.ones(2), np.ones(2)):
            new = update(setup(Descent(0.5), [x]), [x], [g])[1]
            assert values(new[0]).tolist() == [0.5, 0.5]


@ALL
def test_arrays_are_described_and_their_adapter_is_found(library: str) -> None:
    x = maker(library)(np.ones((3, 4), np.float32))
    assert describe(x) in ("float32[3, 4]", "float[3, 4]")
    adapter = adapter_of(type(x))
    assert adapter is not None
    assert adapter.name == library
    with pytest.raises(
        Exception, match=r'model\["w"\] does not fit: got .*expected shape \[3, 4\]'
    ):
        update(setup(Descent(), {"w": x}), {"w": x}, {"w": np.ones(4)})


@DIFFERENTIATED
def test_integers_are_no_parameters_and_one_object_is_one_parameter(library: str) -> None:
    make = maker(library)
    w = make(np.ones(2, np.float32))
    model = {"a": w, "b": w, "n": make(np.ones(2, np.int32))}
    state = setup(Descent(0.25), model)
    g = np.ones(2, np.float32)
    new = update(state, model, {"a": g, "b": g, "n": None})[1]
    assert new["a"] is new["b"]
    assert new["n"] is model["n"]
    assert values(new["a"]).tolist() == [0.5, 0.5]
    total = update_(state, model, {"a": g, "b": g, "n": None}, tied="total")[1]
    assert total["a"] is total["b"] is w
    assert values(w).tolist() == [0.75, 0.75]


@ALL
def test_parameters_become_one_vector_and_derivatives_pass(library: str) -> None:
    from optimisers import ad

    make = maker(library)
    model = {
        "w": make(np.arange(4, dtype=np.float32).reshape(2, 2)),
        "b": make(np.ones(2, np.float16)),
    }
    flat, rebuild = destructure(model)
    assert values(flat).tolist() == [1, 1, 0, 1, 2, 3]
    again = rebuild(flat)
    assert [str(values(again[k]).dtype) for k in "wb"] == ["float32", "float16"]

    def total(v: Any) -> Any:
        parts = rebuild(v)
        square = parts["w"] * parts["w"]
        if library == "tensorflow":
            return importlib.import_module("tensorflow").reduce_sum(square)
        return square.sum()

    assert values(ad.gradient(total, flat)).tolist() == [0, 0, 0, 2, 4, 6]


@pytest.mark.needs("tensorflow")
def test_what_is_tensorflows_own() -> None:
    tf: Any = importlib.import_module("tensorflow")
    fixed = tf.Variable([1.0], trainable=False)
    table = tf.Variable(tf.ones((3, 2)), name="table")
    model = {"table": table, "fixed": fixed, "tensor": tf.constant([1.0])}
    state = setup(Descent(0.5), model)
    slices = tf.IndexedSlices(tf.ones((3, 2)), tf.constant([0, 0, 2]), tf.constant([3, 2]))
    g = {"table": slices, "fixed": tf.constant([1.0]), "tensor": tf.constant([1.0])}
    pure, tensor = update(state, model, g)[1], model["tensor"]
    new = update_(state, model, g)[1]
    assert new["table"] is table
    assert new["fixed"] is fixed
    assert fixed.numpy() == 1
    assert new["tensor"] is not tensor
    assert (tensor.numpy(), new["tensor"].numpy()) == (1, 0.5)
    assert table.numpy().tolist() == [[0, 0], [1, 1], [0.5, 0.5]]
    assert np.array_equal(pure["table"].numpy(), table.numpy())
    assert (pure["table"].name, pure["table"].trainable) == ("table:0", True)

    @tf.function(autograph=False)  # which would make an error of its own of ours
    def inside() -> Any:
        return update(state, {**model, "tensor": model["tensor"] * 1}, g)

    with pytest.raises(ArgumentError, match=r"cannot read tensors inside tf\.function"):
        inside()


@pytest.mark.needs("tensorflow")
def test_lists_and_dicts_that_a_tf_module_wraps_are_containers() -> None:
    tf: Any = importlib.import_module("tensorflow")
    module = tf.Module()
    module.layers = [tf.Variable([1.0]), {"w": tf.Variable([2.0])}]
    module.pair = (tf.Variable([3.0]),)
    model = {"layers": module.layers, "pair": module.pair}
    with tf.GradientTape() as tape:
        loss = module.layers[0] * module.layers[1]["w"] + module.pair[0]
    grads = tape.gradient(loss, model)
    state = setup(Descent(0.5), model)
    pure = update(state, model, grads)[1]
    assert update_(state, model, grads)[1]["layers"] is module.layers
    found = [module.layers[0], module.layers[1]["w"], module.pair[0]]
    assert [v.numpy().item() for v in found] == [0, 1.5, 2.5]
    assert pure["layers"][1]["w"].numpy() == 1.5
    assert tf.train.Checkpoint(module=module).write  # a list that was written could not be saved


@pytest.mark.needs("tinygrad")
def test_what_is_tinygrads_own() -> None:
    tinygrad: Any = importlib.import_module("tinygrad")
    Tensor = tinygrad.Tensor
    net = tinygrad.nn.BatchNorm(2)
    model = tinygrad.nn.state.get_state_dict(net)
    state = setup(Descent(0.5), model)
    with tinygrad.Context(TRAINING=1):
        net(Tensor([[1.0, 2.0], [5.0, 2.0]])).sum().backward()
    update_(state, model)
    assert net.bias.numpy().tolist() == [-1, -1]
    assert model["running_mean"] is net.running_mean
    with pytest.raises(ArgumentError, match=r"they can be left out only where arrays .* hold them"):
        update(setup(Descent(), {"w": Tensor([1.0])}), {"w": Tensor([1.0])})
    lazy = Tensor.ones(3) * 2
    assert values(update_(setup(Descent(0.5), lazy), lazy, np.ones(3, np.float32))[1]).tolist() == [1.5] * 3  # fmt: skip  # noqa: E501
    scalars = [maker("tinygrad")(np.array(1.0, np.float32)) for _ in range(2)]
    (scalars[0] * 3 + scalars[1] * 5).backward()
    assert [s.grad.item() for s in scalars] == [3, 5], "equal numbers must not be one tensor"


BACKEND = """
import os; os.environ["KERAS_BACKEND"] = {backend!r}
import keras, numpy as np
from optimisers import Adam, setup, update, update_
net = keras.Sequential([keras.layers.Input((2,)), keras.layers.Dense(3),
                        keras.layers.BatchNormalization(), keras.layers.Dense(1)])
model = net.trainable_variables
x = np.random.default_rng(0).normal(0, 1, (8, 2)).astype("float32")
{gradients}
state, before = setup(Adam(0.05), net.variables), float(loss())
trained = setup(Adam(0.05), model)
assert [p for p in net.variables if not p.trainable][0] is net.layers[1].moving_mean
for _ in range(20):
    grads = gradients()
    pure = update(trained, model, grads)[1]
    trained, new = update_(trained, model, grads)
    assert all(a is b for a, b in zip(new, net.trainable_variables))
    for a, b in zip(pure, new):
        assert np.array_equal(keras.ops.convert_to_numpy(a), keras.ops.convert_to_numpy(b))
assert float(loss()) < before / 2, (before, float(loss()))
print("trained")
"""
GRADIENTS = {
    "torch": """
def loss(): return ((net(x)[:, 0] - 1) ** 2).mean()
def gradients():
    net.zero_grad(); loss().backward()
    return [v.value.grad for v in model]
""",
    "tensorflow": """
import tensorflow as tf
def loss(): return tf.reduce_mean((net(x)[:, 0] - 1) ** 2)
def gradients():
    with tf.GradientTape() as tape: value = loss()
    return tape.gradient(value, [v.value for v in model])
""",
}


@pytest.mark.parametrize(
    "backend",
    [pytest.param(b, marks=pytest.mark.needs("keras", b)) for b in GRADIENTS],
)
def test_variables_of_keras_hold_arrays_of_its_other_back_ends(backend: str) -> None:
    code = BACKEND.format(backend=backend, gradients=GRADIENTS[backend])
    one = {**os.environ, "OMP_NUM_THREADS": "1"}  # a second thread is only waited for
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=one)
    assert (done.returncode, done.stdout) == (0, "trained\n"), done.stderr
