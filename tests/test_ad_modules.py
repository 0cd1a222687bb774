"""optimisers.ad and train on modules: NNX and torch, with what they write while they are called."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from optimisers import Descent, TrainState, ad, freeze, make_step, setup, train, update, update_
from optimisers.ad.find import backend_of
from optimisers.errors import NonFiniteError, NonFiniteLossError
from optimisers.rules import ClipNorm, OptimiserChain

X = np.array([[1.0, 2.0], [3.0, -1.0], [0.5, 0.5]], np.float32)


def mean_square(model: Any, x: Any) -> Any:
    return (model(x) ** 2).mean()


def nnx_model() -> Any:
    from flax import nnx

    class Net(nnx.Module):
        def __init__(self, rngs: Any) -> None:
            self.line, self.norm = nnx.Linear(2, 3, rngs=rngs), nnx.BatchNorm(3, rngs=rngs)
            self.drop, self.act, self.times = nnx.Dropout(0.5, rngs=rngs), jnp.tanh, 2
            self.again = self.line.bias

        def __call__(self, x: Any) -> Any:
            return self.times * self.act(self.drop(self.norm(self.line(x))) + self.again)

    return Net(nnx.Rngs(0))


def numbers(model: Any) -> list[Any]:
    from flax import nnx

    leaves = jax.tree.leaves(nnx.to_pure_dict(nnx.state(model)))
    return [np.asarray(x) for x in leaves if jnp.issubdtype(x.dtype, jnp.number)]


def assert_same(a: Any, b: Any, **tolerance: float) -> None:
    for x, y in zip(numbers(a), numbers(b), strict=True):
        np.testing.assert_allclose(x, y, **{"rtol": 1e-5, "atol": 1e-6, **tolerance})


@pytest.mark.peers
def test_nnx_answers_as_nnx_does_and_keeps_what_the_module_writes() -> None:
    from flax import nnx

    ours, theirs = nnx_model(), nnx_model()
    assert backend_of(None, {"net": ours, "w": jnp.ones(2)}) == ad.AutoNNX()
    rule = Descent(0.1)
    (value, aux), grads = ad.value_and_gradient(
        lambda m, x: (mean_square(m, x), {"mean": m.norm.mean[...]}), ours, X, has_aux=True
    )
    same, expected = nnx.value_and_grad(mean_square)(theirs, X)
    np.testing.assert_allclose(value, same, rtol=1e-6)
    np.testing.assert_array_equal(aux["mean"], theirs.norm.mean[...])
    assert grads["norm"]["mean"] == {"value": None}
    assert_same(ours, theirs)  # running means and the count of the random stream
    update_(setup(rule, ours), ours, grads)
    update_(setup(rule, theirs), theirs, expected)
    assert_same(ours, theirs)


@pytest.mark.peers
def test_nnx_is_trained_in_place_compiled_once() -> None:
    from flax import nnx

    ours, theirs, traces = nnx_model(), nnx_model(), []

    def loss(model: Any, x: Any) -> Any:
        traces.append(1)
        return mean_square(model, x)

    line = ours.line
    state, model = train(loss, ours, [X] * 4, setup(Descent(0.1), ours))
    assert model is ours
    assert model.line is line
    assert len(traces) == 1
    mine = setup(Descent(0.1), theirs)
    for _ in range(4):
        mine, _ = update_(mine, theirs, nnx.grad(mean_square)(theirs, X))
    assert_same(ours, theirs, rtol=1e-4)
    carry, value = make_step(mean_square)(TrainState(model, state), X)
    assert carry.model is ours
    assert np.isfinite(value)


@pytest.mark.peers
def test_a_module_of_nnx_may_be_switched_in_between() -> None:
    seen = []

    def loss(model: Any, x: Any) -> Any:
        seen.append(model.drop.deterministic)
        return mean_square(model, x)

    def switch(count: int, value: float, state: Any, model: Any) -> None:
        if count == 1:
            model.eval()
        if count == 2:
            model.train()

    model = nnx_model()
    train(loss, model, [X] * 4, setup(Descent(0.1), model), callback=switch)
    assert seen == [False, True]


@pytest.mark.peers
def test_variables_that_a_loss_adds_do_not_stay() -> None:
    from flax import nnx

    def loss(model: Any, x: Any) -> Any:
        model.seen = nnx.Intermediate(jnp.asarray(x))
        return mean_square(model, x)

    ours, theirs = nnx_model(), nnx_model()
    ad.gradient(loss, ours, X)
    ad.gradient(mean_square, theirs, X)
    assert not hasattr(ours, "seen")
    assert_same(ours, theirs)  # what was there before is written all the same


@pytest.mark.peers
def test_a_step_of_nnx_works_under_jit() -> None:
    from flax import nnx

    eager, jitted = nnx_model(), nnx_model()
    step = make_step(mean_square)
    one, value = step(TrainState(eager, setup(Descent(0.1), eager)), X)
    two, same = nnx.jit(step)(TrainState(jitted, setup(Descent(0.1), jitted)), X)
    np.testing.assert_allclose(value, same, rtol=1e-5)
    assert_same(one.model, two.model)


@pytest.mark.peers
def test_frozen_parts_of_nnx_stay() -> None:
    model = nnx_model()
    kernel = model.line.kernel[...]
    state = freeze(setup(Descent(0.1), model), "line/**")
    train(mean_square, model, [X], state)
    np.testing.assert_array_equal(model.line.kernel[...], kernel)


@pytest.mark.peers
def test_nnx_is_as_before_a_batch_whose_loss_is_not_finite() -> None:
    model, after_one = nnx_model(), nnx_model()
    train(mean_square, after_one, [X], setup(Descent(0.1), after_one))
    with pytest.raises(NonFiniteLossError, match="batch 1") as error:
        train(mean_square, model, [X, X * np.nan], setup(Descent(0.1), model))
    assert error.value.model is model
    assert_same(model, after_one)


def torch_model(torch: Any) -> Any:
    torch.manual_seed(0)

    class Net(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.line, self.norm = torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3)
            self.out, self.unused = torch.nn.Linear(3, 3), torch.nn.Linear(1, 1)
            self.again, self.act = self.line.bias, torch.nn.Tanh()
            self.fixed = torch.nn.Parameter(torch.ones(1), requires_grad=False)

        def forward(self, x: Any) -> Any:
            return self.fixed * self.out(self.act(self.norm(self.line(x)) + self.again))

    return Net()


def test_torch_modules_answer_as_backward_does(torch: Any) -> None:
    ours, theirs, x = torch_model(torch), torch_model(torch), torch.tensor(X)
    value, grads = ad.value_and_gradient(mean_square, ours, x)
    same = mean_square(theirs, x)
    same.backward()
    assert float(value) == float(same.detach())
    assert all(p.grad is None for p in ours.parameters())
    np.testing.assert_array_equal(ours.norm.running_mean, theirs.norm.running_mean)
    state, mine = setup(Descent(0.1), ours), setup(Descent(0.1), theirs)
    _, model = update_(state, ours, grads)
    update_(mine, theirs)
    assert model is ours
    for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
        np.testing.assert_allclose(a.detach(), b.detach(), rtol=1e-6)
    assert grads["unused"] == {"weight": None, "bias": None}
    assert grads["act"] == {}


def test_torch_modules_are_trained_in_place(torch: Any) -> None:
    ours, theirs, x = torch_model(torch), torch_model(torch), torch.tensor(X)
    parameters = list(ours.parameters())
    _, model = train(mean_square, ours, [x] * 5, setup(Descent(0.1), ours))
    assert model is ours
    assert all(a is b for a, b in zip(ours.parameters(), parameters, strict=True))
    optimiser = torch.optim.SGD(theirs.parameters(), 0.1)
    for _ in range(5):
        optimiser.zero_grad()
        mean_square(theirs, x).backward()
        optimiser.step()
    for a, b in zip(ours.state_dict().values(), theirs.state_dict().values(), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_torch_is_as_before_a_batch_that_failed(torch: Any) -> None:
    model, x = torch_model(torch), torch.tensor(X)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    state = setup(Descent(0.1), {"net": model})
    with pytest.raises(NonFiniteLossError):
        train(lambda m, x: mean_square(m["net"], x), {"net": model}, [x * np.nan], state)
    for name, value in model.state_dict().items():
        np.testing.assert_array_equal(value, before[name])


def test_a_rule_that_insists_on_finite_gradients_keeps_what_was_reached() -> None:
    model = {"w": jnp.array([1.0, 0.0])}
    state = setup(OptimiserChain(ClipNorm(1.0), Descent(0.1)), model)
    data = [jnp.ones(2), jnp.zeros(2)]  # sqrt(x * w) has no slope at zero
    with pytest.raises(NonFiniteError) as error:
        train(lambda m, x: jnp.sqrt(m["w"][0] * x[0]), model, data, state)
    assert 0.9 < float(error.value.model["w"][0]) < 1.0
    update(error.value.state, error.value.model, model)


@pytest.mark.parametrize("array", [np.array, jnp.array])
def test_a_container_at_two_places_is_counted_once(array: Any) -> None:
    shared = {"w": array(np.ones(2, np.float32))}
    model = {"a": shared, "b": shared}

    def loss(m: Any) -> Any:
        return (2 * m["a"]["w"] + 5 * m["b"]["w"]).sum()

    grads = ad.gradient(loss, model)
    _, new = update(setup(Descent(1.0), model), model, grads)
    assert float(new["a"]["w"][0]) == -6.0
    _, trained = train(loss, model, [()], setup(Descent(1.0), model))
    assert float(trained["b"]["w"][0]) == -6.0
    assert trained["a"] is trained["b"]


@pytest.mark.peers
def test_only_what_modules_hold_is_trained_in_place(torch: Any) -> None:
    from flax import nnx

    w, line = jnp.ones(2), nnx.Linear(2, 2, rngs=nnx.Rngs(0))
    mixed = [
        ({"w": w, "line": line}, lambda m: (m["line"](m["w"]) ** 2).sum(), None),
        ({"w": w}, lambda m: (m["w"] ** 2).sum(), ad.AutoTorch()),
        ({"w": np.ones(2, np.float32)}, lambda m: (m["w"] ** 2).sum(), ad.AutoTorch()),
    ]
    for model, loss, backend in mixed:
        state = setup(Descent(0.1), model)
        _, new = train(loss, model, [()] * 2, state, ad=backend)
        carry, _ = make_step(loss, ad=backend)(TrainState(model, state), ())
        assert new.get("line") is model.get("line")
        assert carry.model.get("line") is model.get("line")
        assert float(new["w"][0]) != float(carry.model["w"][0])
        np.testing.assert_array_equal(model["w"], [1.0, 1.0])


@pytest.mark.parametrize(
    "library", ["autograd", pytest.param("torch", marks=pytest.mark.needs("torch"))]
)
def test_integers_that_a_loss_counts_in_are_as_before_a_batch_that_failed(library: str) -> None:
    backend, array = ad.AutoAutograd(), np.array
    if library == "torch":
        import torch

        backend, array = ad.AutoTorch(), torch.tensor
    model = {"w": array([1.0, 2.0]), "seen": array([0])}

    def loss(m: Any, x: Any) -> Any:
        m["seen"] += 1
        return (m["w"] * x).sum()

    batches = [array([1.0, 1.0]), array([np.nan, 1.0])]
    with pytest.raises(NonFiniteLossError, match="batch 1") as e:
        train(loss, model, batches, setup(Descent(0.1), model), ad=backend)
    assert e.value.model["seen"].tolist() == [1]
