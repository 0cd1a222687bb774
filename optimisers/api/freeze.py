"""freeze and thaw: holding parameters still, and letting them go."""

from __future__ import annotations

from ..state import State
from ..state.state import checked, copied
from ..tree.select import Where
from .select import selected


def freeze(state: State, where: Where = None) -> State:
    """Return a state in which parameters are held still: no step, no decay, their state kept.

    The given state is left as it was.

    Args:
        state: the whole, or a part.
        where: which parameters; all if None.

    Returns:
        A new state, sharing arrays with the given one.

    Raises:
        StructureError: the pattern selects nothing.
        ArgumentError: the first argument is not a state.

    Examples:
        >>> state = setup(Descent(0.1), {"enc": np.ones(3), "dec": np.ones(3)})
        >>> freeze(state, "enc")["enc"].frozen
        True
    """
    return _set_frozen(copied(checked(state)), where, True)


def freeze_(state: State, where: Where = None) -> State:
    """Hold parameters of the given state still, and return it.

    Args:
        state: as in `freeze`.
        where: as in `freeze`.

    Returns:
        The given state.

    Raises:
        StructureError: the pattern selects nothing.
        ArgumentError: the first argument is not a state.

    Examples:
        >>> state = setup(Descent(0.1), {"enc": np.ones(2), "dec": np.ones(2)})
        >>> freeze_(state, "enc") is state, state["enc"].frozen, state["dec"].frozen
        (True, True, False)
    """
    return _set_frozen(checked(state), where, True)


def thaw(state: State, where: Where = None) -> State:
    """Return a state in which parameters are trained again, from the state that they had.

    The given state is left as it was.

    Args:
        state: as in `freeze`.
        where: as in `freeze`.

    Returns:
        A new state, sharing arrays with the given one.

    Raises:
        StructureError: the pattern selects nothing.
        ArgumentError: the first argument is not a state.

    Examples:
        >>> state = freeze(setup(Descent(0.1), {"enc": np.ones(3), "dec": np.ones(3)}))
        >>> thaw(state, "dec")["dec"].frozen
        False
    """
    return _set_frozen(copied(checked(state)), where, False)


def thaw_(state: State, where: Where = None) -> State:
    """Train parameters of the given state again, and return it.

    Args:
        state: as in `freeze`.
        where: as in `freeze`.

    Returns:
        The given state.

    Raises:
        StructureError: the pattern selects nothing.
        ArgumentError: the first argument is not a state.

    Examples:
        >>> state = freeze(setup(Descent(0.1), {"w": np.ones(2)}))
        >>> thaw_(state) is state, state["w"].frozen
        (True, False)
    """
    return _set_frozen(checked(state), where, False)


def _set_frozen(state: State, where: Where, frozen: bool) -> State:
    box = state._box
    layout = box.layout.with_frozen(dict.fromkeys(selected(state, where), frozen))
    box.become(layout, box.arrays)
    return state
