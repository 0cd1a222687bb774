"""An Optax transformation traced on a few like parameters.

Optax sees a whole tree of parameters, a rule of ours one array. The tree that it is shown here says
of each number in the state whose it is, and gives no name away.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import jax

from ..arrays import describe
from ..errors import RuleTypeError

JAX = str(Path(jax.__file__).parent)
TREE_UTIL = jax.tree_util.keystr.__code__.co_filename


class Peer:
    """The place of one of the like parameters; what its name is must not matter."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __str__(self) -> str:
        frame = sys._getframe(1)
        while frame.f_back is not None and frame.f_code.co_filename == TREE_UTIL:
            frame = frame.f_back
        if not frame.f_code.co_filename.startswith(JAX):  # which writes names into its notes
            _looked_at()
        return "a parameter"

    __repr__ = __str__

    def __getattr__(self, name: str) -> NoReturn:
        _looked_at()

    def __eq__(self, other: object) -> bool:
        _looked_at()

    __hash__ = object.__hash__


def _looked_at() -> NoReturn:
    raise RuleTypeError(
        "it looks at the names of parameters, of which a rule for one of them knows none; give "
        "setup a rule for each pattern of names"
    )


PEERS = tuple(map(Peer, range(3)))


class Peers:
    """The tree of like parameters that Optax is shown."""

    def __init__(self, *each: Any) -> None:
        self.each = each


jax.tree_util.register_pytree_with_keys(
    Peers,
    lambda peers: (tuple(zip(PEERS, peers.each, strict=False)), None),
    lambda _, each: Peers(*each),
    lambda peers: (peers.each, None),
)


class Program(NamedTuple):
    """What a transformation does to `peers` parameters of one shape and dtype.

    init: from the parameters to the leaves of the state. update: from the leaves of the state, the
    gradients and the parameters to the leaves of the next state and the updates.
    leaves: for each leaf of the state, the number of the parameter that it belongs to (or None),
    and its place in the state as it is for one parameter.
    tree: the structure of that.
    """

    peers: int
    init: Any
    update: Any
    leaves: tuple[tuple[int | None, int], ...]
    tree: Any


def traced(tx: Any, peers: int, shape: tuple[Any, ...], dtype: Any) -> Program:
    """Trace `init` and `update` of a transformation on like parameters."""
    xs = [jax.ShapeDtypeStruct(shape, dtype)] * peers
    trees: list[Any] = []

    # Flat lists, because JAX writes the names of what it traces into its notes.
    def init(xs: Any) -> list[Any]:
        state = jax.tree.map(jax.numpy.asarray, tx.init(Peers(*xs)))
        trees.append(state)
        return jax.tree.leaves(state)

    def update(leaves: Any, grads: Any, xs: Any) -> tuple[list[Any], list[Any]]:
        state = jax.tree.unflatten(jax.tree.structure(trees[0]), leaves)
        updates, new = tx.update(Peers(*grads), state, Peers(*xs))
        return like(new, trees[0]), like(updates, Peers(*xs))

    with jax.disable_jit():  # loops are unrolled, so that they can be followed
        first, leaves = jax.make_jaxpr(init, return_shape=True)(xs)
        step = jax.make_jaxpr(update)(leaves, xs, xs)
    return Program(
        peers, first, step, tuple(_places(trees[0])), jax.tree.structure(first_of(trees[0]))
    )


def _places(state: Any) -> Iterator[tuple[int | None, int]]:
    """Yield for each leaf of a state whose it is, and where the first parameter has its like."""
    known: dict[Any, int] = {}
    for path, _ in jax.tree_util.tree_flatten_with_path(state)[0]:
        owner = next((key.number for key in path if isinstance(key, Peer)), None)
        alike = tuple(key for key in path if not isinstance(key, Peer))
        yield owner, known.setdefault(alike, len(known))


def is_literal(v: Any) -> bool:
    """Tell whether an operand is a constant rather than a variable."""
    return hasattr(v, "val")  # its class is in jax.extend.core, which takes 0.15 s to import


def programs_in(params: Mapping[str, Any]) -> list[tuple[Any, Sequence[Any]]]:
    """Return the programs among the parameters of an equation, with their constants."""
    found: list[tuple[Any, Sequence[Any]]] = []
    for _, value in sorted(params.items()):
        for part in value if isinstance(value, tuple) else (value,):
            if hasattr(part, "eqns"):
                whole = hasattr(part, "jaxpr")
                found.append((part.jaxpr, part.consts) if whole else (part, ()))
    return found


def like(new: Any, old: Any) -> list[Any]:
    """Return the leaves of a state or of updates, which must be as they were, shape by shape."""
    leaves, before = jax.tree.leaves(new), jax.tree.leaves(old)
    structures: list[Any] = [jax.tree.structure(new), jax.tree.structure(old)]
    if structures[0] != structures[1]:
        raise RuleTypeError("its update returns a tree of another structure than it was given")
    for a, b in zip(leaves, before, strict=True):
        if jax.numpy.shape(a) != jax.numpy.shape(b):
            raise RuleTypeError(f"its update turns {describe(b)} into {describe(a)}")
    return leaves


def first_of(state: Any) -> Any:
    """Return the state as it is for the first of the parameters alone."""
    return jax.tree.map(
        lambda part: part.each[0] if isinstance(part, Peers) else part,
        state,
        is_leaf=lambda part: isinstance(part, Peers),
    )
