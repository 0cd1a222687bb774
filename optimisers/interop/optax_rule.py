"""from_optax: a transformation of Optax as a rule on one array."""

from __future__ import annotations

import functools
from dataclasses import dataclass, make_dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from ..arrays.numbers import compute_dtype
from ..errors import ArgumentError
from ..rules.across import ALONE, Across
from ..rules.fields import dynamic_field
from ..rules.rule import Rule
from ..state.spec import PROBE
from .injected import fields_in, with_numbers
from .reader import Reader, Term
from .transformation import Transformation, standard


def from_optax(tx: Any) -> Rule:
    """Return the rule that does to each parameter what a transformation of Optax does to it.

    Ties, None, frozen parameters, rules per path, `adjust` and chains work as with any other rule.
    Norms and other sums over the whole tree are taken over all parameters under this rule.

    What Optax adds to a parameter is what a rule subtracts, with its sign turned. In a chain of
    rules a part such as `optax.clip` therefore needs `optax.scale(-1)` after it; a whole optimiser
    of Optax turns the sign itself.

    Args:
        tx: the transformation, as `optax.adamw(1e-3)` returns it. Numbers that are to be adjusted
            are injected: `optax.inject_hyperparams(optax.adamw)(1e-3)`; the rule has them as
            fields, `learning_rate` as `eta`.

    Returns:
        A rule. Parameters of 16 bits are computed, and their state is kept, in float32.

    Raises:
        ArgumentError: not a transformation.
        RuleTypeError: one parameter's update depends on something else than its own gradient, its
            value, and sums over all; the error says on what. In `setup`, if it depends on that for
            parameters of some shape only.

    Examples:
        >>> import optax
        >>> state = setup(from_optax(optax.inject_hyperparams(optax.sgd)(0.1)), {"w": np.ones(2)})
        >>> state = adjust(state, 0.5)
        >>> update(state, {"w": np.ones(2)}, {"w": np.array([1.0, 2.0])})[1]
        {'w': array([0.5, 0. ])}
    """
    if isinstance(tx, type) or not (hasattr(tx, "init") and hasattr(tx, "update")):
        raise ArgumentError(
            "from_optax takes a transformation such as optax.adam(1e-3), "
            f"got {getattr(tx, '__name__', type(tx).__name__)}"
        )
    shared = Transformation(tx)
    shared.alike(PROBE, np.float32)
    fields = fields_in(shared.first)
    cls = _class_with(tuple((name, field) for name, (field, _) in fields.items()))
    return cls(shared, *(value for _, value in fields.values()))


@dataclass(frozen=True, repr=False)
class OptaxRule(Rule):
    """Do to each parameter what an Optax transformation does to it; made by `from_optax`.

    Update:
        step $= -u$, where $u$ is the update that the transformation returns

    State:
        What the transformation's `init` returns for one array.

    Args:
        tx: the transformation.

    References:
        DeepMind, Optax, https://optax.readthedocs.io
    """

    tx: Transformation
    injected: ClassVar[dict[str, str]] = {}
    advice: ClassVar[str] = (
        "numbers of Optax are fields where optax.inject_hyperparams made the transformation, "
        "and no schedule gives them"
    )

    @property
    def elementwise(self) -> bool:  # type: ignore[override]
        """Whether it was found to treat each element by itself."""
        return self.tx.elementwise

    def packs(self, shape: tuple[int, ...], dtype: Any) -> bool:
        """Tell whether it treats parameters of this shape as those of any other."""
        return self.tx.packs(shape, compute_dtype(dtype))

    @property
    def circle(self) -> str:
        """Each transformation sums over its own parameters, as it would in Optax."""
        return f"{super().circle} {id(self.tx.update)}"

    def __repr__(self) -> str:
        numbers = (f", {name}={getattr(self, name)!r}" for name in self.injected.values())
        return f"from_optax({self.tx}{''.join(numbers)})"

    def init(self, x: Any) -> Any:
        """Return the transformation's first state."""
        if not self.tx.is_plain(x.shape, x.dtype):
            self.tx.alike(x.shape, x.dtype)
        with standard():
            return jax.tree.map(jnp.asarray, self.tx.init(x))

    def apply(self, state: Any, x: Any, dx: Any, *, across: Across = ALONE) -> tuple[Any, Any]:
        """Return the transformation's next state, and its update as a step."""
        state = with_numbers(state, {o: getattr(self, name) for o, name in self.injected.items()})
        with standard():
            plain = self.tx.is_plain(x.shape, x.dtype)
            if not plain and self.tx.alike(x.shape, x.dtype).reduces:
                return self._reduced(state, x, dx, across)
            update, state = self.tx.update(dx, state, x)
            return state, -update

    def _reduced(self, state: Any, x: Any, dx: Any, across: Across) -> tuple[Any, Any]:
        """Compute one parameter's part of the program for several."""
        program = self.tx.alike(x.shape, x.dtype).program
        reader, held, n = Reader(across, x.shape), jax.tree.leaves(state), len(program.leaves)
        terms = [
            reader.term("state", place, of=owner, value=held[place])
            for owner, place in program.leaves
        ]
        terms += [reader.term("g", of=i, value=dx) for i in range(program.peers)]
        terms += [reader.term("x", of=i, value=x) for i in range(program.peers)]
        given = [
            term._replace(value=term.value.astype(aval.dtype))
            for term, aval in zip(terms, program.update.in_avals, strict=True)
        ]
        outs: list[Term] = reader.read(program.update, program.peers, given)
        places = (owner for owner, _ in program.leaves)
        new = [out.value for out, owner in zip(outs[:n], places, strict=True) if owner in (None, 0)]
        return jax.tree.unflatten(program.tree, new), -outs[n].value


@functools.lru_cache(maxsize=512)
def _class_with(names: tuple[tuple[str, str], ...]) -> type[OptaxRule]:
    """Return the class of rules that have injected numbers as fields."""
    if not names:
        return OptaxRule
    anything = {field: (-np.inf, np.inf) for _, field in names}  # Optax has its own limits
    return make_dataclass(
        "OptaxRule",
        [(field, float, dynamic_field()) for _, field in names],
        bases=(OptaxRule,),
        namespace={"injected": dict(names), "limits": anything, "__module__": __name__},
        frozen=True,
        repr=False,
    )
