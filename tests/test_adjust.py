"""adjust: numbers, rules of a chain, whole rules, at parts and selections; nothing is lost."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from optimisers import (
    AccumGrad,
    Adam,
    AdamW,
    AMSGrad,
    ClipGlobalNorm,
    ClipGrad,
    Descent,
    MixedPrecision,
    Momentum,
    OptimiserChain,
    RMSProp,
    Rprop,
    SkipNonFinite,
    WeightDecay,
    adjust,
    adjust_,
    get_path,
    setup,
    update,
    update_,
)
from optimisers.errors import ArgumentError, RuleError, RuleTypeError, StructureError
from optimisers.rules.rule import Rule

from .compiles import compiles
from .trees import assert_same, grads_like, model_of_all_kinds


def test_a_new_learning_rate_keeps_the_velocity() -> None:
    x, g = {"w": np.array([4.0, 3.0, 2.0])}, {"w": np.array([1.0, 10.0, 100.0])}
    state = setup(Momentum(0.1, 0.9), x)
    state, x = update(state, x, g)
    np.testing.assert_allclose(x["w"], [3.9, 2.0, -8.0], atol=1e-9)
    state, x = update(adjust(state, 0.2), x, g)
    velocity = 0.9 * 0.1 * g["w"] + 0.2 * g["w"]
    np.testing.assert_allclose(x["w"], np.array([3.9, 2.0, -8.0]) - velocity, atol=1e-9)


def test_each_name_reaches_the_rules_that_have_it() -> None:
    state = setup(OptimiserChain(ClipGrad(2), Adam()), {"w": np.ones(2)})
    rule = adjust(state, 0.2)["w"].rule
    assert rule == OptimiserChain(ClipGrad(2), Adam(0.2))
    assert adjust(state, delta=2.5)["w"].rule.rules[0] == ClipGrad(2.5)
    assert adjust(state, beta=(0.8, 0.9), epsilon=1e-6)["w"].rule.rules[1] == Adam(
        0.001, (0.8, 0.9), 1e-6
    )


@pytest.mark.parametrize("around", [MixedPrecision, SkipNonFinite, OptimiserChain])
def test_adjust_goes_through_every_wrapper(around: Any) -> None:
    state = adjust(setup(around(Adam()), {"w": np.ones(2, np.float32)}), 0.5)
    assert state["w"].hyperparameters["eta"] == 0.5


def test_one_rule_of_a_chain_by_class_or_by_place() -> None:
    chain = OptimiserChain(WeightDecay(0.1), OptimiserChain(ClipGrad(2)), AdamW(0.1, lambda_=0.2))
    state = setup(MixedPrecision(chain), {"w": np.ones(2, np.float32)})
    for pick in (AdamW, 2, -1):
        rules = adjust(state, lambda_=0.5, rule=pick)["w"].rule.rule.rules
        assert (rules[0], rules[2].lambda_) == (WeightDecay(0.1), 0.5)
    rules = adjust(state, lambda_=0.5, rule=WeightDecay)["w"].rule.rule.rules
    assert (rules[0].lambda_, rules[2].lambda_) == (0.5, 0.2)
    assert adjust(state, ClipGrad(5), rule=ClipGrad)["w"].rule.rule.rules[1].rules == (ClipGrad(5),)
    with pytest.raises(RuleError, match="cannot pick Momentum: there is none in MixedPrecision"):
        adjust(state, 0.1, rule=Momentum)
    with pytest.raises(RuleError, match="cannot pick rule 7: the chain has 3 rules"):
        adjust(state, 0.1, rule=7)
    with pytest.raises(RuleError, match="cannot pick rule 0: Adam is not a chain"):
        adjust(setup(Adam(), {"w": np.ones(2)}), 0.1, rule=0)
    with pytest.raises(ArgumentError, match=r"rule= takes the class of a rule"):
        adjust(state, 0.1, rule=Adam(0.1))  # type: ignore[arg-type]
    assert adjust(chain, lambda_=0.5, rule=0).rules[0] == WeightDecay(0.5)


def test_a_bare_rule_is_adjusted_by_its_own_method() -> None:
    assert adjust(OptimiserChain(ClipGrad(2), Adam()), 0.2) == OptimiserChain(
        ClipGrad(2), Adam(0.2)
    )

    @dataclass(frozen=True)
    class Doubling(Rule):
        eta: float = 0.1

        def apply(self, state: Any, x: Any, dx: Any) -> Any:
            return state, self.eta * dx

        def adjust(self, **fields: Any) -> Any:
            return Doubling(2 * fields["eta"])

    assert adjust(Doubling(), 0.25) == Doubling(0.5)
    assert adjust(setup(Doubling(), {"w": np.ones(2)}), 0.25)["w"].rule == Doubling(0.5)


def test_an_unknown_name_raises_and_suggests_the_nearest() -> None:
    state = setup(OptimiserChain(ClipGrad(2), Adam()), {"w": np.ones(2)})
    for name, near in [("lr", "eta"), ("epsilom", "epsilon"), ("max_grad", None)]:
        with pytest.raises(RuleError, match=f"cannot adjust '{name}'") as caught:
            adjust(state, **{name: 0.1})
        assert near is None or f"did you mean '{near}'?" in str(caught.value)
    with pytest.raises(RuleError, match="cannot adjust 'delta': Adam has beta, epsilon, eta"):
        adjust(state, delta=1.0, rule=Adam)
    with pytest.raises(ArgumentError, match="needs a learning rate, a rule, or fields by name"):
        adjust(state)
    with pytest.raises(ArgumentError, match="expected a State"):
        adjust({"w": 1}, 0.1)


def test_impossible_values_raise_and_change_nothing() -> None:
    state = setup(Adam(), {"a": np.ones(2), "b": jnp.ones(3)})
    for fields, error, message in [
        ({"eta": -1}, RuleError, "eta must be finite and at least 0, got -1.0"),
        ({"eta": np.nan}, RuleError, "eta must be"),
        ({"beta": (0.9, 1.0)}, RuleError, "beta"),
        ({"eta": jnp.ones(2)}, RuleTypeError, r"eta must be one real number, got float32\[2\]"),
        ({"eta": 10**400}, RuleError, "eta must be finite and at least 0, got inf"),
        ({"beta": (0.9, 1 - 1e-9)}, RuleError, r"beta\[1\] must be at most 0.99999994 for"),
        ({"eta": "0.1"}, RuleTypeError, "must be a number, got '0.1'"),
    ]:
        with pytest.raises(error, match=message):
            adjust_(state, **fields)  # type: ignore[arg-type]
    assert state["a"].rule == state["b"].rule == Adam()


@pytest.mark.parametrize("eta", [np.ones(2), jnp.ones(2), jnp.ones((), jnp.complex64)])
def test_a_number_under_jit_is_one_real_number_too(eta: Any) -> None:
    model = {"a": jnp.ones(2), "b": jnp.ones(3)}
    state = setup(Descent(), model)
    for call in (
        lambda state, eta: setup(Descent(eta), model),
        lambda state, eta: setup(OptimiserChain(Adam(beta=(0.9, eta))), model),
        adjust,  # of two parameters: two rates would be broadcast, one for each
        lambda state, eta: adjust(state["a"], eta),
    ):
        with pytest.raises(RuleTypeError, match="must be one real number, got"):
            jax.jit(call)(state, eta)


def test_values_of_every_kind_are_taken() -> None:
    state = setup(Descent(), {"a": jnp.ones(2), "b": np.ones(2)})
    for value in (0.25, 1, np.float32(0.25), np.float64(0.25), np.array(0.25), jnp.float32(0.25)):
        assert adjust(state, value)["a"].rule.eta == float(value)
    model = {"a": jnp.ones(2)}
    state = setup(Descent(), model)

    @jax.jit
    def step(eta: Any, state: Any, model: Any) -> Any:
        return update(adjust(state, eta), model, model)

    assert float(step(0.25, state, model)[1]["a"][0]) == 0.75
    assert step(0.25, state, model)[0]["a"].rule == Descent(0.25)


def test_parts_and_selections_of_a_state() -> None:
    model = {"enc": [jnp.ones(2), jnp.ones(3)], "dec": {"w": jnp.ones(2), "b": np.ones(1)}}
    state = setup(Descent(0.1), model)

    def etas(state: Any) -> list[float]:
        places = (state["dec"]["b"], state["dec"]["w"], state["enc"][0], state["enc"][1])
        return [place.rule.eta for place in places]

    adjust_(state["enc"], 0.2)
    adjust_(state.dec, 0.3, "b")
    assert etas(state) == [0.3, 0.1, 0.2, 0.2]
    for where in ("enc/0", ("enc", 0), re.compile("^enc/0$"), lambda p, x: p == ("enc", 0)):
        assert etas(adjust(state, 0.5, where)) == [0.3, 0.1, 0.5, 0.2]
    assert etas(adjust(state, 0.5, lambda path, x: x.shape == (2,))) == [0.3, 0.5, 0.5, 0.2]
    assert etas(state) == [0.3, 0.1, 0.2, 0.2]
    with pytest.raises(StructureError, match="'encoder' selects no parameter"):
        adjust(state, 0.5, "encoder")
    part = adjust(state["enc"], 0.9)
    assert part[0].rule.eta == 0.9
    assert etas(state) == [0.3, 0.1, 0.2, 0.2]


def test_an_adjusted_copy_and_the_original_go_their_own_ways() -> None:
    model = {"w": jnp.ones(3), "big": jnp.ones((200, 200))}
    state = setup(Momentum(0.1), model)
    state, model = update(state, model, model)
    other = adjust(state, 0.2)
    kept, start = jax.tree.map(np.array, state["w"].state), jax.tree.map(jnp.array, model)
    for _ in range(2):
        other, model = update_(other, model, start)
    np.testing.assert_array_equal(state["w"].state, kept)
    assert update_(state, start, jax.tree.map(jnp.ones_like, start))[0] is state


# Whole rules


def trained(rule: Rule, steps: int = 2) -> tuple[Any, Any, Any]:
    model = model_of_all_kinds()
    grads, state = grads_like(model), setup(rule, model)
    for _ in range(steps):
        state, model = update(state, model, grads)
    return state, model, grads


def test_a_whole_rule_is_replaced_and_the_state_kept() -> None:
    state, model, grads = trained(OptimiserChain(ClipGrad(2), Adam(0.001)))
    new = adjust(state, OptimiserChain(ClipGrad(5), Adam(0.01)))
    assert_same(update(new, model, grads), update(adjust(state, 0.01, delta=5), model, grads))
    # Rules that carry nothing come and go.
    bare = adjust(state, Adam(0.001))
    moments = jax.tree.map(np.asarray, state["jax"].state[1])
    assert_same(jax.tree.map(np.asarray, bare["jax"].state), moments)
    again = adjust(bare, OptimiserChain(ClipGrad(2), Adam(0.001)))
    assert_same(update(again, model, grads), update(state, model, grads))
    with_norm = adjust(state, OptimiserChain(ClipGlobalNorm(1.0), ClipGrad(2), Adam(0.001)))
    assert get_path(with_norm, "jax/steps") == 2
    adjust_(state["list"], Adam(0.5))
    assert (state["list"][0].rule, type(state["jax"].rule)) == (Adam(0.5), OptimiserChain)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (Adam(), Momentum(), "cannot put Momentum.* into a running state: it needs a state"),
        (Adam(), Descent(), "the state of Adam has no place in it"),
        (Descent(), Adam(), "cannot put Adam"),
        (Adam(), AMSGrad(), "cannot put AMSGrad"),
        (OptimiserChain(Momentum(), Adam()), OptimiserChain(Adam(), Momentum()), "cannot put"),
        (Adam(), OptimiserChain(AccumGrad(2), Adam()), "cannot put AccumGrad"),
    ],
)
def test_a_rule_that_the_state_does_not_fit_raises(old: Rule, new: Rule, message: str) -> None:
    state = setup(old, {"w": jnp.ones(3)})
    with pytest.raises(RuleError, match=message) as caught:
        adjust_(state, new)
    assert 'model["w"]: ' in str(caught.value)
    assert state["w"].rule == old


def test_static_fields_are_adjusted_where_the_state_fits() -> None:
    state, model, grads = trained(AdamW(0.1, lambda_=0.1))
    loose = adjust(state, couple=False)
    assert loose["jax"].rule == AdamW(0.1, lambda_=0.1, couple=False)
    assert_same(loose["jax"].state, state["jax"].state)
    update(loose, model, grads)
    with pytest.raises((RuleError, RuleTypeError)):
        adjust(setup(RMSProp(), model), centred=True)
    with pytest.raises(ArgumentError, match="a whole rule or fields, not both"):
        adjust(state, Adam(), beta=(0.1, 0.1))


def test_mixed_precision_is_added_to_a_running_state_and_taken_off() -> None:
    model = {"w": jnp.array([1.0, 2.0], jnp.bfloat16), "v": jnp.ones(3)}
    grads = jax.tree.map(lambda x: jnp.full_like(x, 0.5), model)
    state = setup(Adam(1e-3), model)
    state, model = update(state, model, grads)
    mixed = adjust(state, MixedPrecision(Adam(1e-3)))
    assert_same(mixed["w"].state[1], state["w"].state)
    for _ in range(5):
        mixed, model = update(mixed, model, grads)
    np.testing.assert_allclose(mixed["w"].state[0], np.array([1, 2]) - 5e-3, atol=1e-4)
    off = adjust(mixed, Adam(1e-3))
    assert_same(off["w"].state, mixed["w"].state[1])
    assert get_path(off, "w/steps") == 6
    safe = adjust(off, SkipNonFinite(MixedPrecision(OptimiserChain(ClipGrad(1.0), Adam(1e-3)))))
    safe, _ = update(safe, model, grads)
    assert_same(adjust(safe, Adam(1e-3))["w"].state, update(off, model, grads)[0]["w"].state)


def test_the_layout_after_replacing_and_going_back_is_the_first_one() -> None:
    state, _, _ = trained(Adam())
    there = adjust(state, MixedPrecision(Adam()), "list/**")
    back = adjust(there, Adam(), "list/**")
    assert jax.tree.structure(back) == jax.tree.structure(state)
    assert_same(jax.tree.leaves(back), jax.tree.leaves(state))


def test_rprop_rescales_its_step_sizes() -> None:
    model = {"w": jnp.ones(3), "v": jnp.ones(2)}
    state = setup(Rprop(0.1), model)
    state, model = update(state, model, model)
    state, model = update(state, model, model)
    sizes = np.asarray(state["w"].state[1])
    new = adjust(state, 0.05, "w")
    np.testing.assert_allclose(new["w"].state[1], sizes / 2, rtol=1e-6)
    np.testing.assert_array_equal(new["v"].state[1], state["v"].state[1])
    np.testing.assert_allclose(adjust(adjust(state, 0), 0.3)["w"].state[1], 0.3, rtol=1e-6)
    replaced = adjust(state, Rprop(0.05))
    np.testing.assert_allclose(replaced["w"].state[1], sizes / 2, rtol=1e-6)
    chain = setup(OptimiserChain(ClipGrad(1.0), Rprop(0.1)), {"w": np.ones(3)})
    np.testing.assert_allclose(adjust(chain, 0.2)["w"].state[1][1], 0.2)


# What it costs


@pytest.mark.parametrize("rule", [Adam(), OptimiserChain(ClipGlobalNorm(1.0), AdamW())])
def test_a_hundred_learning_rates_cost_one_compile(rule: Rule) -> None:
    model: Any = {"a": jnp.ones(7), "b": jnp.ones((200, 130)), "c": [jnp.ones(7)]}
    state = setup(rule, model)
    grads = jax.tree.map(jnp.ones_like, model)
    kinds = (float, lambda v: 1, np.float32, np.float64, jnp.float32, np.array)
    state, model = update(adjust(state, 0.5), model, grads)

    def run(step: Any, state: Any, model: Any) -> None:
        for i in range(100):
            state = adjust(state, kinds[i % len(kinds)](0.001 * (i + 1)))
            state, model = step(state, model, grads)

    jax.block_until_ready([jnp.float32(0.5), model])
    with compiles() as count:
        run(update, state, model)
    assert count() == 0  # beyond the first step
    with compiles() as count:
        run(jax.jit(update), state, model)
    assert count() == 1


def test_a_hundred_adjustments_of_many_parameters_compile_nothing() -> None:
    model = [jnp.ones(5) for _ in range(60)] + [jnp.ones((130, 130))]
    state = setup(Adam(), model)
    adjust_(state, 0.1, lambda path, x: path[0] % 2 == 0)
    with compiles() as count:
        for i in range(100):
            adjust_(state, 0.5 * i, lambda path, x, i=i: path[0] >= i % 30)
    assert count() == 0
    assert [state[i].rule.eta for i in (0, 8, 9, 60)] == [45.0, 49.0, 49.5, 49.5]


def test_a_rule_is_replaced_inside_jit_too() -> None:
    model = {"a": jnp.ones(3), "big": jnp.ones((140, 130)), "half": jnp.ones(2, jnp.bfloat16)}
    state = setup(OptimiserChain(ClipGrad(2.0), Adam(0.1)), model)
    state, model = update(state, model, model)

    def changed(state: Any, model: Any, eta: Any) -> Any:
        state = adjust(state, MixedPrecision(Adam(0.1)), "half")
        return update(adjust(adjust(state, Adam(0.1), "a"), eta), model, model)

    inside, eager = jax.jit(changed)(state, model, 0.25), changed(state, model, 0.25)
    assert jax.tree.structure(inside) == jax.tree.structure(eager)
    for a, b in zip(jax.tree.leaves(inside), jax.tree.leaves(eager), strict=True):
        np.testing.assert_allclose(a.astype("float32"), b.astype("float32"), rtol=1e-6)
    assert inside[0]["half"].rule == MixedPrecision(Adam(0.25))


def test_values_are_taken_under_vmap() -> None:
    model = {"a": jnp.ones(3)}
    state = setup(Descent(), model)
    out = jax.vmap(lambda eta: update(adjust(state, eta), model, model)[1])(jnp.array([0.25, 0.5]))
    np.testing.assert_array_equal(out["a"][:, 0], [0.75, 0.5])
