"""optimisers.train: the plain loop."""

from __future__ import annotations

import copy
import importlib.util
import io
import pickle
import signal
import sys
import threading
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import optimisers
from optimisers import Descent, Momentum, ad, adjust_, freeze, freeze_, setup, thaw_, train, update
from optimisers.errors import (
    ArgumentError,
    NonFiniteError,
    NonFiniteLossError,
    ShapeError,
    StateError,
)  # fmt: skip

from .compiles import compiles
from .line import X, Y, by_hand, counted, fresh, loss


@pytest.mark.parametrize("array", [np.array, jnp.array])
def test_the_loop_is_descent_and_leaves_the_callers_arrays_alone(array: Any) -> None:
    model = fresh(array)
    state = setup(Descent(0.1), model)
    before, seen = copy.deepcopy(model), []
    new_state, new = train(
        loss, model, [(X, Y)] * 5, state,
        callback=lambda count, value, s, m: seen.append((count, value, s, float(m["b"]))),
    )  # fmt: skip
    losses, w = by_hand(5)
    np.testing.assert_allclose([value for _, value, _, _ in seen], losses, rtol=1e-5)
    assert [count for count, *_ in seen] == [1, 2, 3, 4, 5]
    assert all(type(value) is float for _, value, _, _ in seen)
    np.testing.assert_allclose(new["w"], w, rtol=1e-5)
    assert seen[-1][2] is new_state
    assert seen[-1][3] == float(new["b"])
    assert type(new["w"]) is type(model["w"])
    assert state is not new_state
    np.testing.assert_array_equal(model["w"], before["w"])
    update(state, model, before)  # the state of before is as good as new


def test_torch_is_trained_in_place(torch: Any) -> None:
    model = fresh(torch.tensor)
    w = model["w"]
    _, new = train(
        loss, model, [[torch.tensor(X), torch.tensor(Y)]] * 5, setup(Descent(0.1), model)
    )
    assert new is model
    assert new["w"] is w
    np.testing.assert_allclose(w, by_hand(5)[1], rtol=1e-5)


def test_autograd_trains_too() -> None:
    _, model = train(
        loss, fresh(np.array), [(X, Y)] * 5, setup(Descent(0.1), fresh(np.array)),
        ad=ad.AutoAutograd(),
    )  # fmt: skip
    np.testing.assert_allclose(model["w"], by_hand(5)[1], rtol=1e-5)


def test_an_equinox_module_is_trained() -> None:
    import equinox as eqx

    class Line(eqx.Module):
        w: Any
        act: Any
        times: int = eqx.field(static=True)

        def __call__(self, x: Any) -> Any:
            return self.act(x @ self.w) * self.times

    line = Line(jnp.array([0.5, -0.5]), jnp.tanh, 2)
    seen: list[float] = []
    _, trained = train(
        lambda m, x, y: ((m(x) - y) ** 2).mean(), line, [(X, Y)] * 30, setup(Descent(0.1), line),
        callback=lambda count, value, s, m: seen.append(value),
    )  # fmt: skip
    assert (type(trained), trained.act, trained.times) == (Line, jnp.tanh, 2)
    assert seen[-1] < 0.5 * seen[0]
    np.testing.assert_array_equal(line.w, [0.5, -0.5])


@pytest.mark.parametrize("array", [np.array, jnp.array])
def test_each_step_is_compiled_once(array: Any) -> None:
    model = {**fresh(array), "act": jnp.tanh, "n": 3, "order": np.arange(3), "name": "net"}
    counting, traces = counted()
    state = setup(Momentum(0.1), model)
    with compiles() as programs:
        after: list[int] = []
        train(
            counting, model, ((X + i, Y) for i in range(10)), state,
            callback=lambda *_: after.append(programs()),
        )  # fmt: skip
    assert len(traces) == 1
    assert len(set(after)) == 1  # all was compiled in the first step
    train(counting, model, [(X, Y), (X[:2], Y[:2])] * 3, state)
    assert len(traces) == 3  # a shape of batch each


def test_numbers_in_a_batch_compile_nothing_and_text_chooses_a_program() -> None:
    seen: list[Any] = []

    def scaled(model: Any, scale: Any, how: str, flag: bool) -> Any:
        seen.append((how, flag))
        value = (model["w"] ** 2).sum() * scale
        return value if how == "plain" else -value

    model = {"w": jnp.ones(2)}
    batches = [[0.5 * i, how, True] for i in range(4) for how in ("plain", "minus")]
    train(scaled, model, batches, setup(Descent(0.1), model))
    assert seen == [("plain", True), ("minus", True)]


def test_freezing_in_the_middle_differentiates_less() -> None:
    model, state = fresh(), setup(Descent(0.1), fresh())
    kept: list[float] = []

    def watch(count: int, value: float, state: Any, model: Any) -> None:
        kept.append(float(model["b"]))
        if count == 2:
            freeze_(state, "b")
        if count == 4:
            thaw_(state)
            adjust_(state, 0.2)

    counting, traces = counted()
    train(counting, model, [(X, Y)] * 6, state, callback=watch)
    assert kept[1] == kept[2] == kept[3]
    assert len({kept[0], kept[1], kept[4], kept[5]}) == 4
    assert len(traces) == 2


def test_a_model_that_is_all_frozen_only_loses() -> None:
    model = fresh()
    seen: list[float] = []
    state = freeze(setup(Descent(0.1), model))
    _, new = train(
        loss, model, [(X, Y)] * 2, state, callback=lambda c, value, s, m: seen.append(value)
    )
    np.testing.assert_allclose(seen, by_hand(1)[0] * 2, rtol=1e-6)
    np.testing.assert_array_equal(new["w"], model["w"])


@pytest.mark.parametrize("ties", [None, [("a", "b")], ()])
@pytest.mark.parametrize("array", [np.array, jnp.array])
def test_ties_are_trained_as_the_state_says(array: Any, ties: Any) -> None:
    w = array(np.ones(2, np.float32))
    model = {"a": w, "b": w if ties is None else w * 1}
    _, new = train(
        lambda m: (2 * m["a"] + 5 * m["b"]).sum(), model, [()] * 2,
        setup(Descent(1.0), model, ties=ties),
    )  # fmt: skip
    wanted = [-3.0, -9.0] if ties == () else [-13.0, -13.0]
    assert [float(new["a"][0]), float(new["b"][1])] == wanted
    assert (new["a"] is new["b"]) == (ties != ())


def test_64_bit_numpy_models_are_trained_in_64_bits() -> None:
    model = {"w": np.array([0.5, -0.5]), "b": np.array(0.0)}
    values: list[float] = []
    _, new = train(
        loss, model, [(X.astype(float), Y.astype(float))] * 20, setup(Descent(0.1), model),
        callback=lambda c, value, s, m: values.append(value),
    )  # fmt: skip
    losses, w = by_hand(20)
    assert new["w"].dtype == np.float64
    np.testing.assert_allclose(new["w"], w, rtol=1e-12)
    np.testing.assert_allclose(values, losses, rtol=1e-12)


class Pair(NamedTuple):
    x: Any
    y: Any


def test_tuples_and_lists_are_spread_and_all_else_is_one_argument() -> None:
    model = {"w": jnp.ones(2)}

    def counted(model: Any, *batch: Any) -> Any:
        got.append(len(batch))
        return model["w"].sum()

    for batch, wanted in [
        ((X, Y), 2), ([X, Y, X], 3), (X, 1), ({"x": X, "y": Y}, 1), (((X, Y),), 1),
        (Pair(X, Y), 2), ((), 0), (3.0, 1), (None, 1),
    ]:  # fmt: skip
        got: list[int] = []
        train(counted, model, [batch], setup(Descent(), model))
        assert got == [wanted]


def test_data_may_be_anything_that_gives_batches() -> None:
    def stream() -> Iterator[Any]:
        yield from [(X, Y)] * 3

    model, wanted = fresh(), by_hand(3)[1]
    for data in (stream(), [(X, Y)] * 3, iter([(X, Y)] * 3), np.stack([X] * 3), {1: 0}.items()):
        f = loss if not isinstance(data, np.ndarray) else lambda m, x: loss(m, x, Y)
        if type(data).__name__ == "dict_items":
            f = lambda m, x, y: loss(m, X, Y) + 0 * x * y  # noqa: E731
        _, new = train(f, model, data, setup(Descent(0.1), model))
        if type(data).__name__ != "dict_items":
            np.testing.assert_allclose(new["w"], wanted, rtol=1e-5)


@pytest.mark.parametrize("data", [[], (), iter(()), np.zeros((0, 3))])
def test_no_batch_changes_nothing(data: Any) -> None:
    model = fresh()
    state, new = train(loss, model, data, setup(Descent(0.1), model))
    np.testing.assert_array_equal(new["w"], model["w"])
    update(state, new, new)


def test_a_loss_that_is_not_finite_stops_the_loop_and_nothing_is_lost() -> None:
    model = fresh()
    state = setup(Momentum(0.1), model)
    data = [(X, Y), (X, Y), (X * np.inf, Y), (X, Y)]
    with pytest.raises(NonFiniteLossError, match=r"the loss of batch 2 is (nan|inf); \.state") as e:
        train(loss, model, data, state)
    wanted_state, wanted = train(loss, model, data[:2], state)
    np.testing.assert_array_equal(e.value.model["w"], wanted["w"])
    np.testing.assert_array_equal(e.value.state["w"].state, wanted_state["w"].state)
    assert isinstance(e.value, NonFiniteError | ValueError)
    again, _ = train(loss, e.value.model, [(X, Y)], e.value.state)
    assert optimisers.get_path(again, "w/steps") == 3
    assert str(pickle.loads(pickle.dumps(NonFiniteLossError("m", 1, 2)))) == "m"


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("where", ["data", "callback", "loss", "signal in the callback"])
def test_ctrl_c_returns_what_was_reached(where: str) -> None:
    model = fresh(np.array)
    calls = [0]

    def stream() -> Iterator[Any]:
        yield from [(X, Y)] * 3
        if where == "data":
            raise KeyboardInterrupt
        yield from [(X, Y)] * 3

    def watch(count: int, value: float, state: Any, model: Any) -> None:
        if count == 3 and where == "callback":
            raise KeyboardInterrupt
        if count == 3 and where.startswith("signal"):
            signal.raise_signal(signal.SIGINT)

    def interrupted(m: Any, x: Any, y: Any) -> Any:
        calls[0] += 1
        if where == "loss" and calls[0] == 4:
            raise KeyboardInterrupt
        return ad.AutoAutograd and loss(m, x, y)

    before = signal.getsignal(signal.SIGINT)
    state, new = train(
        interrupted, model, stream(), setup(Descent(0.1), model), ad=ad.AutoAutograd(),
        callback=watch,
    )  # fmt: skip
    assert signal.getsignal(signal.SIGINT) is before
    np.testing.assert_allclose(new["w"], by_hand(3)[1], rtol=1e-5)
    assert optimisers.get_path(state, "w/steps") == 3


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize(("name", "reached"), [("owned", 0), ("update_", 1)])
def test_ctrl_c_waits_for_what_is_being_written(
    monkeypatch: pytest.MonkeyPatch, name: str, reached: int
) -> None:
    from optimisers.training import loop

    whole = getattr(loop, name)

    def slow(*arguments: Any) -> Any:
        signal.raise_signal(signal.SIGINT)
        return whole(*arguments)

    monkeypatch.setattr(loop, name, slow)
    model = fresh(np.array)
    state, new = train(loss, model, [(X, Y)] * 5, setup(Descent(0.1), model))
    np.testing.assert_allclose(new["w"], by_hand(reached)[1], rtol=1e-5)
    assert optimisers.get_path(state, "w/steps") == reached


def test_it_trains_in_a_thread() -> None:
    model, results = fresh(), []
    thread = threading.Thread(
        target=lambda: results.append(train(loss, model, [(X, Y)] * 5, setup(Descent(0.1), model)))
    )
    thread.start()
    thread.join(60)
    np.testing.assert_allclose(results[0][1]["w"], by_hand(5)[1], rtol=1e-5)


def test_an_error_of_the_callback_is_the_callers() -> None:
    def fails(*_: Any) -> None:
        raise RuntimeError("mine")

    model = fresh()
    with pytest.raises(RuntimeError, match="mine"):
        train(loss, model, [(X, Y)], setup(Descent(), model), callback=fails)


def test_the_bar_is_off_in_pipes_and_optional(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    model, shown = fresh(), {}
    for name, stream in [("pipe", io.StringIO()), ("terminal", Terminal())]:
        monkeypatch.setattr(sys, "stderr", stream)
        train(loss, model, [(X, Y)] * 3, setup(Descent(0.1), model))
        shown[name] = stream.getvalue()
    assert shown["pipe"] == ""
    assert "3/3" in shown["terminal"]
    assert "loss=" in shown["terminal"]
    monkeypatch.setattr(sys, "stderr", Terminal())
    train(loss, model, [(X, Y)] * 3, setup(Descent(0.1), model), progress=False)
    monkeypatch.setitem(sys.modules, "tqdm", None)
    train(loss, model, [(X, Y)] * 3, setup(Descent(0.1), model))
    assert sys.stderr.getvalue() == ""  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"loss": 3}, ArgumentError, "the loss must be a function .* got int"),
        ({"data": 3}, ArgumentError, "data must be an iterable of batches, got int"),
        ({"data": {"x": X}}, ArgumentError, "data must be an iterable of batches, got dict"),
        ({"callback": 3}, ArgumentError, "the callback must be a function, got int"),
        ({"ad": "jax"}, ArgumentError, "ad must be a backend"),
        ({"state": fresh()}, ArgumentError, "expected a State from setup"),
        ({"loss": lambda m, x, y: m["w"]}, ShapeError, r"cannot differentiate float32\[2\]"),
        ({"model": {"w": jnp.ones(2)}}, StateError, "does not belong to this model"),
        ({"model": {"n": 3}}, ArgumentError, "nothing in the model is trainable"),
        ({"data": [(np.array(["a"]), Y)]}, ArgumentError, r"batch that holds <U1\[1\]|str"),
        (
            {"data": np.array(3.0)},
            ArgumentError,
            "data must be an iterable of batches, got ndarray",
        ),
        ({"data": [({1, 2}, Y)]}, ArgumentError, "a batch that holds set: JAX takes arrays"),
        ({"data": [(object(), Y)]}, ArgumentError, "a batch that holds object"),
    ],
)
def test_bad_input_gets_one_sentence_and_changes_nothing(
    change: dict[str, Any], error: type[Exception], message: str
) -> None:
    model = fresh()
    state = setup(Descent(0.1), model)
    given = {"loss": loss, "model": model, "data": [(X, Y)], "state": state, **change}
    with pytest.raises(error, match=message):
        train(**given)
    np.testing.assert_array_equal(model["w"], fresh()["w"])
    update(state, model, model)


def test_a_loop_is_not_traced() -> None:
    def whole(model: Any) -> Any:
        return train(loss, model, [(X, Y)], setup(Descent(0.1), model), progress=False)

    with pytest.raises(ArgumentError, match=r"cannot be traced .* make_step under jax\.jit"):
        jax.jit(whole)(fresh())


def test_swapped_arguments_are_told() -> None:
    model = fresh()
    state = setup(Descent(0.1), model)
    for args in ((state, model, [(X, Y)]), (model, state, [(X, Y)])):
        with pytest.raises(ArgumentError, match=r"call train\(loss, model, data, state\)"):
            train(loss, *args)


def test_train_is_a_function_and_no_module_hides_it() -> None:
    importlib.import_module("optimisers.training.loop")
    assert optimisers.train is train
    assert callable(optimisers.train)
    assert importlib.util.find_spec("optimisers.train") is None
