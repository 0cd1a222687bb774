"""What bad input gets: one sentence that names the place, and nothing is changed."""

from __future__ import annotations

import copy
import re
import warnings
from collections import namedtuple
from dataclasses import dataclass
from types import ModuleType
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import optimisers as opt
from optimisers import (
    Adam,
    ClipGlobalNorm,
    Descent,
    Momentum,
    OptimiserChain,
    Rule,
    State,
    errors as err,
    freeze,
    setup,
    update,
    update_,
)

from .trees import assert_same

BOTH = pytest.mark.parametrize("step", [update, update_])


def model() -> Any:
    return {"enc": {"w": jnp.ones((2, 3)), "b": np.ones(3)}, "dec": [jnp.ones(2), "name"]}


def grads(**changes: Any) -> Any:
    g = {"enc": {"w": np.ones((2, 3)), "b": np.ones(3)}, "dec": [np.ones(2), None]}
    return {**g, **changes}


def enc(**changes: Any) -> Any:
    return grads(enc={**grads()["enc"], **changes})


deleted = jnp.ones((2, 3))
deleted.delete()

GRADIENTS = {
    "missing": (grads(enc={"w": np.ones((2, 3))}), err.StructureError,
        """the gradient has nothing at model["enc"]["b"]: got a dict with 'w' at model["enc"]; put"""
        """ None where there is no gradient"""),
    "short": (grads(dec=[]), err.StructureError,
        """nothing at model["dec"][0]: got a list of 0 where the model has 2 at model["dec"]; put N"""),
    "long": (grads(dec=[np.ones(2), None, None]), err.StructureError,
        """the gradient has grads["dec"][2], but model["dec"] has no such item; it has 0, 1"""),
    "unknown": (enc(typo=None), err.StructureError,
        """the gradient has grads["enc"]["typo"], but model["enc"] has no such item; it has 'b', 'w'"""),
    "list": (grads(enc=[1, 2]), err.StructureError,
        """at model["enc"]: got a list of 2, expected a container with the names 'b', 'w'"""),
    "array above": (grads(enc=np.ones(3)), err.StructureError,
        """at model["enc"]: got float64[3], expected a container; put None where there is no gradi"""),
    "text above": (grads(dec="ab"), err.StructureError,
        """at model["dec"]: got str, expected a container"""),
    "everything": ("ab", err.StructureError, "at model: got str, expected a container"),
    "container": (enc(w={"x": np.ones(1)}), err.StructureError,
        """at model["enc"]["w"]: got a dict, expected an array"""),
    "empty container": (enc(b=()), err.StructureError,
        """at model["enc"]["b"]: got a tuple, expected an array"""),
    "shape": (enc(w=np.ones((1, 2, 3))), err.ShapeError,
        """the gradient of model["enc"]["w"] does not fit: got float64[1, 2, 3], expected shape [2, 3]"""),
    "number": (enc(b=1.0), err.ShapeError, """gradient of model["enc"]["b"]""" """ does not fit: got float64[]"""),
    "same size": (enc(w=jnp.ones(6)), err.ShapeError, "got float32[6], expected shape [2, 3]"),
    "text": (enc(w="text"), err.ArgumentError,
        """cannot use str as the gradient of model["enc"]["w"]; expected an array, a number, or None"""),
    "bool": (enc(b=True), err.ArgumentError, """cannot use bool as the gradient of model["enc"]["b"]"""),
    "function": (enc(b=np.sin), err.ArgumentError, "cannot use ufunc as the gradient"),
    "shape struct": (enc(w=jax.ShapeDtypeStruct((2, 3), "float32")), err.ArgumentError,
        "cannot use ShapeDtypeStruct as the gradient"),
    "complex": (enc(b=np.ones(3) * 1j), err.DtypeError,
        """of model["enc"]["b"] does not fit: got complex128[3], expected float64; take its real part"""),
    "bools": (enc(w=jnp.ones((2, 3), bool)), err.DtypeError, "got bool[2, 3], expected float32"),
    "strings": (enc(b=np.array(["a", "b", "c"])), err.DtypeError, "got <U1[3], expected float64"),
    "objects": (enc(b=np.array([1, 2, 3], object)), err.DtypeError, "got object[3], expected float64"),
    "keys": (enc(b=jax.random.split(jax.random.key(0), 3)), err.DtypeError, "got key<fry>[3], expec"),
    "deleted": (enc(w=deleted), err.StateError, """the gradient of model["enc"]["w"] was deleted"""),
}  # fmt: skip


@BOTH
@pytest.mark.parametrize(("wrong", "error", "message"), GRADIENTS.values(), ids=GRADIENTS)
@pytest.mark.parametrize("warm", [False, True])
def test_a_wrong_gradient_changes_nothing(
    step: Any, wrong: Any, error: Any, message: str, warm: bool
) -> None:
    tree = model()
    state = setup(Adam(0.1), tree)
    if warm:
        state, tree = step(state, tree, grads())
    before = copy.deepcopy((jax.tree.leaves(state), tree))
    with pytest.raises(error, match=re.escape(message)) as caught:
        step(state, tree, wrong)
    assert "\n" not in str(caught.value)
    assert_same((jax.tree.leaves(state), tree), before)
    step(state, tree, grads())


def part(name: str) -> Any:
    return {"enc": {**model()["enc"], name: jnp.ones(1)}, "dec": model()["dec"]}


MODELS = {
    "missing": ({"enc": model()["enc"]}, err.StateError,
        """belong to this model: it has a parameter at model["dec"][0], where the model has none; ca"""),
    "more": (part("late"), err.StateError,
        """the model has float32[1] at model["enc"]["late"], which the state does not know; call set"""),
    "container": ([model()], err.StateError, """it has a parameter at model["dec"][0], where"""),
    "shape": ({**model(), "dec": [jnp.ones(3), "name"]}, err.StateError,
        """the state does not fit model["dec"][0]: got float32[3], expected float32[2]"""),
    "dtype": ({**model(), "dec": [jnp.ones(2, jnp.bfloat16), ""]}, err.DtypeError,
        """fit model["dec"][0]: got bfloat16[2], expected float32[2]; a changed dtype needs a new s"""),
    "narrowed": ({**model(), "enc": {"w": jnp.ones((2, 3)), "b": jnp.ones(3)}}, err.DtypeError,
        """fit model["enc"]["b"]: got float32[3], expected float64[3]; jax narrows 64-bit arrays"""),
    "none": ({**model(), "dec": [None, ""]}, err.StateError, """model["dec"][0]: got NoneType, expec"""),
    "number": ({**model(), "dec": [1.0, ""]}, err.StateError, """fit model["dec"][0]: got float"""),
    "text": ({**model(), "dec": ["", ""]}, err.StateError, """fit model["dec"][0]: got str, expected"""),
    "integers": ({**model(), "dec": [jnp.arange(2), ""]}, err.DtypeError, "got int32[2], expected flo"),
    "deleted": ({**model(), "enc": {"w": deleted, "b": np.ones(3)}}, err.StateError,
        """model["enc"]["w"] was deleted: its memory was given to an update; use the model that the"""),
}  # fmt: skip


@BOTH
@pytest.mark.parametrize(("wrong", "error", "message"), MODELS.values(), ids=MODELS)
def test_the_model_of_another_state_is_refused(
    step: Any, wrong: Any, error: Any, message: str
) -> None:
    state = setup(Adam(0.1), model())
    shown = [np.array(x) for x in jax.tree.leaves(state)]
    for g in (None, jax.tree.map(lambda x: x, grads())):
        with pytest.raises(error, match=re.escape(message)):
            step(state, wrong, g)
    assert all(map(np.array_equal, shown, jax.tree.leaves(state)))


def test_what_appears_later_is_refused_too() -> None:
    for leaf in (None, "text", 3, np.arange(2)):
        tree = {"w": np.ones(2), "late": leaf}
        state = setup(Descent(), tree)
        for _ in range(2):
            update(state, tree, {"w": np.ones(2), "late": None})
        with pytest.raises(
            err.StateError, match=r'float64\[1\] at model\["late"\], which the state does'
        ):
            update(state, {"w": np.ones(2), "late": np.ones(1)}, {"w": np.ones(2), "late": None})


CALLS: dict[str, Any] = {
    "swapped": (lambda s, m, g: update(m, s, g), "arguments swapped: call update(state, model, grads)"),
    "a state last": (lambda s, m, g: update(s, m, s), "got a State in another place; call update("),
    "two states": (lambda s, m, g: update(s, s, g), "got a State in another place"),
    "no gradients": (lambda s, m, g: update_(s, m), "needs gradients, nested like the model; None"),
    "no state": (lambda s, m, g: update(None, m, g), "expected a State from setup(rule, model), got Non"),
    "a rule": (lambda s, m, g: update(Adam(), m, g), "expected a State from setup(rule, model), got Adam"),
    "tied": (lambda s, m, g: update(s, m, g, tied="sum"), """tied must be "parts" or "total", got 'sum'"""),
    "setup swapped": (lambda s, m, g: setup(jnp.ones(2), Adam()), "setup takes the rule first, then the m"),
    "a class": (lambda s, m, g: setup(Adam, m), "got the class Adam; make a rule of it: Adam()"),
    "no rule": (lambda s, m, g: setup(None, m), "cannot use NoneType as a rule"),
    "freeze a model": (lambda s, m, g: freeze(m), "expected a State from setup(rule, model), got dict"),
}  # fmt: skip


@pytest.mark.parametrize(("call", "message"), CALLS.values(), ids=CALLS)
def test_arguments_in_the_wrong_places_are_told_apart(call: Any, message: str) -> None:
    state = setup(Adam(), model())
    with pytest.raises(err.ArgumentError, match=re.escape(message)):
        call(state, model(), grads())


def test_a_state_that_was_given_away_says_so() -> None:
    tree = {"w": jnp.ones(2)}
    state = setup(Momentum(), tree)
    jax.jit(lambda s: s, donate_argnums=0)(state)
    with pytest.raises(
        err.StateError, match=r'the state of model\["w"\] was given away.*last call re'
    ):
        update(state, tree, tree)


def test_setup_refuses_a_parameter_that_was_given_away() -> None:
    old = {"w": jnp.ones(2)}
    state = setup(Momentum(), old)
    opt.update_(state, dict(old), {"w": jnp.ones(2)})
    with pytest.raises(err.StateError, match=r'model\["w"\] was deleted: its memory .* returned'):
        setup(Momentum(), old)
    with pytest.raises(err.StateError, match=r'model\["w"\] was deleted'):
        setup({"*": Momentum()}, old)


def test_a_part_of_a_tie_is_not_updated_alone() -> None:
    w = jnp.ones(2)
    tree = {"a": {"w": w}, "b": {"w": w}}
    state = setup(Descent(), tree)
    with pytest.raises(
        err.StateError, match=r'model\["a"\]\["w"\] and model\["b"\]\["w"\] are one para'
    ):
        update(state["a"], tree["a"], {"w": w})


@pytest.mark.parametrize("shape", [(2,), (200, 200)], ids=["pack", "bundle"])
@pytest.mark.parametrize("lib", [np, jnp], ids=["numpy", "jax"])
def test_numbers_too_large_for_their_dtype_are_refused(lib: Any, shape: tuple[int, ...]) -> None:
    tree = {"w": lib.ones(shape, lib.float32)}
    chain = opt.OptimiserChain(opt.ClipGrad(float("inf")), Adam())  # infinity itself is no accident
    state = setup(chain, tree)
    for call in (
        lambda: setup(opt.OptimiserChain(opt.ClipGrad(), Adam(1e39)), tree),
        lambda: opt.adjust(state, 1e39),
        lambda: opt.adjust_(state["w"], 1e39),
        lambda: opt.adjust_(state, opt.OptimiserChain(opt.ClipGrad(), Adam(1e39))),
    ):
        with pytest.raises(
            err.RuleError, match=r"rules\[1\]\.eta must be at most 3\.4028235e\+38 for"
        ):
            call()
    assert state["w"].rule == chain
    assert setup(Descent(1e39), {"w": np.ones(2)})["w"].rule == Descent(1e39)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1])
def test_impossible_hyper_parameters_are_refused(value: float) -> None:
    state = setup(Adam(), model())
    for call in (
        lambda: Adam(value),
        lambda: opt.adjust(state, value),
        lambda: opt.adjust_(state, value),
    ):
        with pytest.raises(err.RuleError, match="Adam: eta must be finite and at least 0, got"):
            call()
    assert state["enc"]["w"].rule == Adam()


@dataclass(frozen=True)
class Changing(Rule):
    """A rule that breaks its promises."""

    how: str = ""
    elementwise: ClassVar[bool] = False

    def init(self, x: Any) -> Any:
        return jnp.zeros_like(x)

    def apply(self, state: Any, x: Any, dx: Any) -> Any:
        if self.how == "raises":
            raise ZeroDivisionError(f"at {x.shape}")
        new = {"structure": (state, state), "state": state.sum()}.get(self.how, state)
        return new, dx[None] if self.how == "step" else dx


@pytest.mark.parametrize(
    ("how", "error", "message"),
    [
        ("raises", ZeroDivisionError, r"at \(2, 2\)"),
        (
            "structure",
            err.RuleTypeError,
            "Changing.apply returned a state .* but its init returned",
        ),
        ("state", err.RuleTypeError, r"returned a state that turns shape \[2, 2\] into \[\]"),
        ("step", err.RuleTypeError, r"returned a step that turns shape \[2, 2\] into \[1, 2, 2\]"),
    ],
)
def test_a_rule_that_fails_does_so_before_anything_is_given_away(
    how: str, error: Any, message: str
) -> None:
    tree = {
        "a": jnp.ones(3),
        "b": jnp.ones((2, 2)),
        "c": np.ones(3, "f"),
        "d": jnp.ones((200, 200)),
    }
    state = setup({"b": Changing(how), "**": Momentum()}, tree)
    before = copy.deepcopy((jax.tree.leaves(state), tree))
    for step in (update_, update, jax.jit(update)):
        with pytest.raises(error, match=message):
            step(state, tree, jax.tree.map(lambda x: x * 2, tree))
    assert_same((jax.tree.leaves(state), tree), before)


def test_classes_that_are_no_rules_are_refused() -> None:
    class Bare(Momentum):
        pass

    with pytest.raises(
        err.RuleTypeError, match=r"class Bare is not a frozen dataclass .*@dataclass\(fro"
    ):
        setup(OptimiserChain(Bare()), model())
    with pytest.raises(NotImplementedError, match="Rule defines no apply"):
        Rule().apply(None, None, None)

    @dataclass(frozen=True)
    class Shaped(Rule):
        elementwise: ClassVar[bool] = True

        def init(self, x: Any) -> Any:
            return jnp.zeros(7)

    with pytest.raises(
        err.RuleTypeError, match=r"Shaped.init returned float32\[7\] for a parameter of sh"
    ):
        setup(Shaped(), model())

    @dataclass(frozen=True)
    class Unhashable(Rule):
        table: Any = None

    with pytest.raises(err.RuleTypeError, match="a static field is not hashable"):
        setup(Unhashable([1, 2]), model())


def test_rules_that_ask_in_opposite_orders_are_refused() -> None:
    @dataclass(frozen=True)
    class Other(ClipGlobalNorm):
        pass

    chains = {
        "a": OptimiserChain(ClipGlobalNorm(), Other()),
        "b": OptimiserChain(Other(), ClipGlobalNorm()),
    }
    tree = {"a": jnp.ones(2), "b": jnp.ones(2)}
    with pytest.raises(err.RuleError, match="ask about the whole model in opposite orders"):
        update(setup(chains, tree), tree, tree)


def test_tensors_elsewhere_are_refused_with_the_cure(torch: ModuleType) -> None:
    with pytest.raises(err.DeviceError, match=r"cannot train model\[0\]: .*device meta.*\.cpu\(\)"):
        setup(Descent(), [torch.ones(2, device="meta")])
    tree = [torch.ones(2)]
    with pytest.raises(
        err.DeviceError, match=r"cannot use the gradient of model\[0\]: .*holds no numb"
    ):
        update(setup(Descent(), tree), tree, [torch.ones(2, device="meta")])
    with warnings.catch_warnings(action="ignore"):  # torch says that the dtype is experimental
        half = torch.ones(2, dtype=torch.complex32)
    with pytest.raises(
        err.DtypeError, match=r"the gradient of model\[0\]: .* no dtype torch.complex32"
    ):
        update(setup(Descent(), tree), tree, [half])


def test_what_is_no_container_of_ones_own_is_not_registered() -> None:
    for cls, message in [
        (dict, "dict: it is a container already"), (list, "list: it is"), (np.ndarray, "it is a leaf"),
        (int, "int: it is a leaf, not a container"), (type(None), "NoneType"), (jax.Array, "leaf"),
        (3, "cannot register 3: it is not a class"),
    ]:  # fmt: skip
        with pytest.raises(err.ArgumentError, match=message):
            opt.register(cls)
    with pytest.raises(
        err.ArgumentError, match=r"cannot register Own: \['c'\] are trainable but not ch"
    ):
        opt.register(type("Own", (), {}), children=("a",), trainable=("a", "c"))
    with pytest.raises(err.ArgumentError, match="children must be names of attributes"):
        opt.register(type("Own", (), {}), children=(1,))

    @opt.register(children=("w", "b"))
    class Lacking:
        w = np.ones(1)

    with pytest.raises(
        err.StructureError, match=r"cannot take apart a Lacking: .*'b'; set it, if only"
    ):
        setup(Descent(), Lacking())


def test_names_are_written_so_that_they_can_be_pasted() -> None:
    point = namedtuple("point", "x")  # noqa: PYI024 - what an untyped program has
    names = ["plain", "it's", 'say "a"', "back\\slash", "new\nline", 3, ("t", 1), None]
    for name in names:
        tree = {name: [point(np.ones(1))]}
        with pytest.raises(err.StructureError) as caught:
            update(setup(Descent(), tree), tree, {name: [{}]})
        code = str(caught.value).split(" has nothing at ")[1].split(": got")[0]
        assert eval(code, {"model": tree}) is tree[name][0].x


def test_every_error_is_what_a_caller_would_expect() -> None:
    for name, cls in vars(err).items():
        if isinstance(cls, type) and issubclass(cls, err.OptimiserError):
            assert cls is err.OptimiserError or issubclass(
                cls, ValueError | TypeError | ImportError
            ), name
    assert isinstance(setup(Descent(), [np.ones(1)]), State)
