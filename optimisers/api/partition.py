"""partition and combine: what is trained apart from the rest, for AD libraries."""

from __future__ import annotations

from typing import Any

from ..errors import StructureError
from ..state import State
from ..state.plan import located
from ..state.state import checked
from ..tree import flatten, outline, program, rebuild


def partition(state: State, model: Any) -> tuple[Any, Any]:
    """Return what is trained of a model, and the rest: two trees nested like it.

    None stands in the first where something is frozen or not trained, in the second everywhere
    else. Neither shares a container with the model, which is left as it was. An AD library that
    differentiates the first spends nothing on the rest, and gives gradients that `update` takes.

    Args:
        state: says what is trained and not frozen; the whole, or a part of it.
        model: the model of the state, or the same part of it.

    Returns:
        `(trained, rest)`.

    Raises:
        StateError: the state of another model.
        ArgumentError: the first argument is not a state.

    Examples:
        >>> model = {"body": np.ones(2), "head": np.zeros(2), "name": "net"}
        >>> state = freeze(setup(Descent(0.1), model), "body")
        >>> partition(state, model)[0]
        {'body': None, 'head': array([0., 0.]), 'name': None}
    """
    leaves, moves = moving(state, model)
    mine = set(moves)
    steps = program(outline(model).nodes, range(len(leaves)))
    trained = [x if i in mine else None for i, x in enumerate(leaves)]
    rest = [None if i in mine else x for i, x in enumerate(leaves)]
    return rebuild(model, steps, trained, False), rebuild(model, steps, rest, False)


def moving(state: State, model: Any) -> tuple[list[Any], list[int]]:
    """Return the leaves of a model, and which of them are trained and not frozen."""
    layout = checked(state)._box.layout
    leaves, _, plan = located(layout, state._at, model, ())
    pairs = zip(layout.params, plan.places, strict=True)
    return leaves, sorted(i for param, places in pairs if not param.frozen for i in places)


def combine(trained: Any, rest: Any) -> Any:
    """Return the model again that `partition` took apart.

    Neither argument is changed. It can be called under any AD library's transformations.

    Args:
        trained: the first of what `partition` returned, or arrays nested like it.
        rest: the second.

    Returns:
        A new tree, nested like the model.

    Raises:
        StructureError: the two are not parts of one model.

    Examples:
        >>> combine({"w": 1.0, "name": None}, {"w": None, "name": "net"})
        {'w': 1.0, 'name': 'net'}
    """
    (mine, _), (others, _) = flatten(trained, "trained"), flatten(rest, "rest")
    places, elsewhere = outline(trained), outline(rest)
    known = dict(zip(elsewhere.paths, elsewhere.codes, strict=True))
    known.update(zip(places.paths, places.codes, strict=True))
    # By name, as JAX gives modules of NNX their attributes back in another order.
    other = dict(zip(elsewhere.paths, others, strict=True))
    strange = set(places.paths) ^ other.keys()
    if strange:
        raise StructureError(
            "cannot combine two trees that are not parts of one model: only one has "
            f"{known[strange.pop()]}"
        )
    merged = [
        _either(x, other[path], known[path]) for x, path in zip(mine, places.paths, strict=True)
    ]
    return rebuild(trained, program(places.nodes, range(len(mine))), merged, False)


def _either(a: Any, b: Any, code: str) -> Any:
    if a is not None and b is not None:
        raise StructureError(f"cannot combine two trees that both have something at {code}")
    return b if a is None else a
