"""The one table of rules and their limits; no other file lists rules, or skips one by its name."""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import optimisers.rules as R
from optimisers.rules.checks import names_of
from optimisers.rules.rule import Rule, Wrapper

DATA = Path(__file__).parent / "data"


@dataclass(frozen=True)
class Case:
    """A rule, and what cannot be asked of it.

    call: the rule, as the call that makes it.
    decays: a zero gradient moves a parameter, even from a fresh state.
    real: there is no meaning for complex parameters.
    whole: more than one element matters to a step.
    trains: with which numbers, in place of its defaults, it reaches the bottom of a valley in 800
        steps (rules/test_convergence.py); empty for modifiers, which do not train by themselves.
    """

    call: str
    decays: bool = False
    real: bool = False
    whole: bool = False
    trains: str = ""

    @functools.cached_property
    def rule(self) -> Rule:
        """The rule itself."""
        return make(self.call)

    @property
    def around(self) -> bool:
        """Whether it goes around whole rules, and so stands in no chain."""
        return isinstance(self.rule, Wrapper) and self.rule.outside > 0


def make(call: str) -> Rule:
    """Return the rule that a call describes."""
    rules = {name: getattr(R, name) for name in R.__all__}
    rule: Rule = eval(call, {**rules, "np": np, "jnp": jnp})
    return rule


CASES = [
    Case("Descent()", trains="Descent(0.05)"),
    Case("Momentum()", trains="Momentum(0.02)"),
    Case("Nesterov()", trains="Nesterov(0.02)"),
    Case("Rprop()", real=True, trains="Rprop(0.1)"),
    Case("Rprop(0.01, gamma=(0.008, 0.011))", real=True),
    Case("RMSProp()", trains="RMSProp(0.03)"),
    Case("RMSProp(centred=True)", trains="RMSProp(0.01, centred=True)"),
    Case("Adam()", trains="Adam(0.1)"),
    Case("AdamW()", trains="AdamW(0.1)"),
    Case("AdamW(lambda_=0.01)", decays=True, trains="AdamW(0.1, lambda_=0.001)"),
    Case("AdamW(lambda_=0.01, couple=False)", decays=True,
         trains="AdamW(0.1, lambda_=1e-4, couple=False)"),
    Case("RAdam()", trains="RAdam(0.1)"),
    Case("RAdam(beta=(0.9, 0.9))", trains="RAdam(0.1, (0.9, 0.9))"),
    Case("AdaMax()", trains="AdaMax(0.1)"),
    Case("OAdam()", trains="OAdam(0.03)"),
    Case("AdaGrad()", trains="AdaGrad(0.5)"),
    Case("AdaDelta()", trains="AdaDelta(0.99, 1e-5)"),
    Case("AMSGrad()", trains="AMSGrad(0.1)"),
    Case("NAdam()", trains="NAdam(0.1)"),
    Case("AdaBelief()", trains="AdaBelief(0.1)"),
    Case("Lion()", real=True, trains="Lion(0.02)"),
    Case("WeightDecay()", decays=True),
    Case("SignDecay()", decays=True, real=True),
    Case("ClipGrad(0.5)", real=True),
    Case("ClipNorm(1.0)", whole=True),
    Case("ClipNorm(0.7, 3)", whole=True),
    Case("ClipNorm(0.7, 1)", whole=True),
    Case("ClipNorm(0.7, float('inf'))", whole=True),
    Case("ClipNorm(0.05, float('-inf'))", whole=True),
    Case("ClipNorm(3.0, 0)", whole=True),
    Case("ClipNorm(0.03, -1.5)", whole=True),
    Case("ClipGlobalNorm(1.0)", whole=True),
    Case("AccumGrad(2)"),
    Case("OptimiserChain()"),
    Case("OptimiserChain(ClipNorm(1.0), WeightDecay(0.1), Adam(0.01))", decays=True, whole=True,
         trains="OptimiserChain(ClipNorm(1.0), WeightDecay(1e-3), Adam(0.1))"),
    Case("OptimiserChain(SignDecay(0.01), ClipGrad(0.5), Momentum(0.05))", decays=True, real=True,
         trains="OptimiserChain(SignDecay(1e-3), ClipGrad(0.5), Momentum(0.05))"),
    Case("OptimiserChain(AccumGrad(2), WeightDecay(0.01), Adam())", decays=True,
         trains="OptimiserChain(AccumGrad(2), WeightDecay(1e-3), Adam(0.2))"),
    Case("OptimiserChain(ClipGlobalNorm(1.0), AdamW())", whole=True,
         trains="OptimiserChain(ClipGlobalNorm(1.0), AdamW(0.1))"),
    Case("MixedPrecision(Adam())", trains="MixedPrecision(Adam(0.1))"),
    Case("SkipNonFinite(Momentum())", whole=True, trains="SkipNonFinite(Momentum(0.02))"),
]  # fmt: skip

ALL = pytest.mark.parametrize("case", CASES, ids=lambda case: case.call)


def all_where(**limits: Any) -> Any:
    """Return the mark that runs a test for each case with these limits."""
    chosen = [c for c in CASES if all(getattr(c, name) == v for name, v in limits.items())]
    return pytest.mark.parametrize("case", chosen, ids=lambda case: case.call)


WITH_EPSILON = pytest.mark.parametrize(
    "case", [c for c in CASES if "epsilon" in names_of(c.rule)], ids=lambda case: case.call
)
TRAINING = pytest.mark.parametrize(
    "case", [c for c in CASES if c.trains], ids=lambda case: case.trains
)

DTYPES = {
    name: jnp.dtype(name)
    for name in ("float16", "bfloat16", "float32", "float64", "complex64", "complex128")
}
REAL_DTYPES = [name for name in DTYPES if not name.startswith("complex")]


@functools.cache
def reference() -> dict[str, Any]:
    """Return the published trajectories: start, gradients, parameters after each step."""
    return json.loads((DATA / "trajectories.json").read_text(encoding="utf-8"))  # type: ignore[no-any-return]


def gradients(steps: int, shape: tuple[int, ...] = (7,), seed: int = 0) -> Any:
    """Return gradients of several sizes, in float64; no element of them is nearly zero."""
    rng = np.random.default_rng(seed)
    g = rng.normal(size=(steps, *shape))
    scale = 10.0 ** rng.uniform(-1, 0.5, size=shape)
    return np.where(np.abs(g) < 0.1, 0.1, g) * scale
