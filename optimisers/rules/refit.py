"""The state of a rule under another one: what fits is kept, what would be lost is an error.

Rules that carry nothing for each element (decay, clipping, and the rules that go around others)
come and go freely. Every other rule must meet one of its own class, in the same order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from ..errors import RuleError
from .chain import OptimiserChain
from .mixed_precision import MixedPrecision
from .pick import walked
from .rule import Rule, Wrapper, restart, start
from .skip_non_finite import SkipNonFinite

PROBE = (3, 5)
FORWARDING = (OptimiserChain, MixedPrecision, SkipNonFinite)


def refitted(new: Rule, old: Rule, state: Any, fresh: Callable[[Rule], Any]) -> Any:
    """Return the state for `new`, made of the state that `old` had.

    Args:
        new: the rule that takes over.
        old: the rule that made the state.
        state: its state for one parameter.
        fresh: makes the first state of a rule for the parameter, whose value it does not know.

    Raises:
        RuleError: a state of `old` has no place in `new`, or `new` needs one that is not there.
    """
    around: dict[type[Rule], Any] = {}
    while isinstance(old, Wrapper) and old.outside:
        around[type(old)] = state[0]
        inner: Any = old
        old, state = inner.rule, state[1]
    links = _links(old, state)
    found = _found(new, around, links, fresh)
    for rule, _ in links:
        if _has_moments(rule):
            raise RuleError(
                f"cannot replace {old!r} by {new!r}: the state of {type(rule).__name__} has no "
                "place in it; for a fresh state, call setup"
            )
    return found


def _links(rule: Rule, state: Any) -> list[tuple[Rule, Any]]:
    """Return the rules of a chain with their states, chains inside it opened too."""
    if not isinstance(rule, OptimiserChain):
        return [(rule, state)]
    pairs = zip(rule.rules, state, strict=True)
    return [link for part, own in pairs for link in _links(part, own)]


def _found(
    new: Rule,
    around: dict[type[Rule], Any],
    links: list[tuple[Rule, Any]],
    fresh: Callable[[Rule], Any],
) -> Any:
    """Build the state of `new` from what is there, taking it away from `links`."""
    if isinstance(new, OptimiserChain):
        return tuple(_found(part, around, links, fresh) for part in new.rules)
    if isinstance(new, Wrapper) and new.outside:
        inner: Any = new
        own = around[type(new)] if type(new) in around else fresh(new)[0]
        return own, _found(inner.rule, around, links, fresh)
    for i, (rule, state) in enumerate(links):
        if type(rule) is type(new):
            # What was skipped may not return later in the chain: rules keep their order.
            skipped = [part for part, _ in links[:i] if _has_moments(part)]
            if skipped:
                break
            del links[: i + 1]
            return restart(new, rule, state)
    if _has_moments(new):
        there = ", ".join(type(rule).__name__ for rule, _ in links) or "nothing more"
        raise RuleError(
            f"cannot put {new!r} into a running state: it needs a state of its own, and there is "
            f"{there}; for a fresh state, call setup"
        )
    return fresh(new)


def _has_moments(rule: Rule) -> bool:
    """Tell whether a rule's state holds anything as large as the parameter."""
    if isinstance(rule, Wrapper) and type(rule) not in FORWARDING:
        return True
    probe = jax.ShapeDtypeStruct(PROBE, np.float32)
    state = jax.eval_shape(lambda x: jax.tree.map(jax.numpy.asarray, start(rule, x)), probe)
    return any(leaf.shape != () for leaf in jax.tree.leaves(state))


def follows(rule: Rule) -> bool:
    """Tell whether a rule, or one inside it, changes its state when it is adjusted."""
    return any(type(part).adjust_state not in _KEEPING for part in walked(rule))


_KEEPING = {cls.adjust_state for cls in (Rule, *FORWARDING)}
