"""Flax NNX modules as models: variables, statistics, sharing, and nnx.jit."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from optimisers import Adam, Descent, setup, update, update_
from optimisers.errors import StructureError

pytestmark = pytest.mark.peers


class Net(nnx.Module):
    """A network with everything in it that NNX has a class for."""

    def __init__(self) -> None:
        rngs = nnx.Rngs(0)
        self.layers = nnx.List([nnx.Linear(2, 2, rngs=rngs), nnx.Linear(2, 2, rngs=rngs)])
        self.norm, self.drop = nnx.BatchNorm(2, rngs=rngs), nnx.Dropout(0.5, rngs=rngs)
        self.extra = nnx.Dict(scale=nnx.Param(jnp.ones(2)), unused=nnx.Param(jnp.ones(2)))
        self.again, self.act, self.width = self.layers[0], jax.nn.relu, 2
        self.data = nnx.data(jnp.ones(2))

    def __call__(self, x: Any) -> Any:
        x = self.drop(self.norm(self.act(self.layers[0](x))))
        return self.again(self.layers[1](x)) * self.extra.scale


def loss(net: Net, x: Any) -> Any:
    return (net(x) ** 2).mean()


def values(net: Net) -> dict[Any, Any]:
    """Return the numbers of all parameters by their paths."""
    return {path: np.asarray(v[...]) for path, v in nnx.to_flat_state(nnx.state(net, nnx.Param))}


X = jnp.array([[1.0, 2.0], [3.0, -1.0], [0.5, 0.5]])


def test_a_module_is_written_in_place_with_its_sharing_and_its_statistics() -> None:
    net = Net()
    state, before = setup(Adam(0.1), net), values(net)
    kernel, mean = net.layers[0].kernel, np.asarray(net.norm.mean[...])
    grads = nnx.grad(loss)(net, X)
    pure = update(state, net, grads)[1]
    assert pure is not net
    assert pure.again is pure.layers[0]
    assert all(np.array_equal(x, before[path]) for path, x in values(net).items())
    new = update_(state, net, grads)[1]
    assert new is net
    assert net.layers[0].kernel is kernel
    assert not np.array_equal(net.norm.mean[...], mean), "the forward pass has written it"
    after, copied = values(net), values(pure)
    assert all(np.array_equal(x, copied[path]) for path, x in after.items())
    moved = [not np.array_equal(x, before[path]) for path, x in after.items()]
    assert sum(moved) == len(moved) - 1, "all but what is not used"
    assert net.data.tolist() == [1, 1]


def test_paths_have_positions_and_attributes_and_rules_are_given_by_them() -> None:
    net = Net()
    state = setup(
        {"layers/*/kernel": Descent(1.0), "again/kernel": Descent(1.0), "**": Adam()}, net
    )
    assert state.layers[1].kernel.value.rule == Descent(1.0)
    assert state.extra.scale.value.rule == Adam()
    with pytest.raises(
        StructureError, match=r"the gradient has grads.*strange.*, but model has no"
    ):
        update(state, net, nnx.State({"strange": nnx.Param(jnp.ones(2))}))


def test_inside_nnx_jit_the_new_module_is_returned_and_merged() -> None:
    net, twin = Net(), Net()
    state, same = setup(Descent(0.1), net), setup(Descent(0.1), twin)

    @nnx.jit
    def step(net: Net, state: Any, x: Any) -> Any:
        state, new = update(state, net, nnx.grad(loss)(net, x))
        nnx.update(net, nnx.state(new, nnx.Param))
        return state

    for _ in range(3):
        state = step(net, state, X)
        same, _ = update_(same, twin, nnx.grad(loss)(twin, X))
    pairs = zip(jax.tree.leaves(nnx.state(net, nnx.Param)),
                jax.tree.leaves(nnx.state(twin, nnx.Param)), strict=True)  # fmt: skip
    assert all(np.allclose(a, b, rtol=1e-5) for a, b in pairs)


def test_a_state_of_variables_is_a_model_too() -> None:
    graph, parameters, rest = nnx.split(Net(), nnx.Param, ...)
    state = setup(Descent(0.1), parameters)

    def of_state(p: Any) -> Any:
        net = nnx.merge(graph, p, rest, copy=True)  # its statistics are written
        return loss(net, X)

    grads = jax.grad(of_state)(parameters)
    pure = update(state, parameters, grads)[1]
    variable = parameters["extra"]["scale"]
    new = update_(state, parameters, grads)[1]
    assert new is parameters
    assert new["extra"]["scale"] is variable
    assert type(pure) is nnx.State
    assert np.array_equal(variable[...], pure["extra"]["scale"][...])
    assert np.allclose(variable[...], 1 - 0.1 * grads["extra"]["scale"][...])


def test_a_lora_parameter_is_one_and_a_plain_variable_is_not() -> None:
    class Small(nnx.Module):
        def __init__(self) -> None:
            self.lora, self.cache = nnx.LoRAParam(jnp.ones(2)), nnx.Cache(jnp.ones(2))

    net = Small()
    grads = nnx.grad(lambda m: (m.lora[...] * m.cache[...]).sum())(net)
    update_(setup(Descent(0.5), net), net, grads)
    assert net.lora[...].tolist() == [0.5, 0.5]
    assert net.cache[...].tolist() == [1, 1]
