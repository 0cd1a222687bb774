"""state_dict, load_state_dict, save and load: a state outside this process."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from os import PathLike
from typing import Any

from ..errors import ArgumentError, OptimiserWarning, StateError
from ..state import State
from ..state.entries import Reader, entries, places_of
from ..state.relayout import relaid
from ..state.state import Box, checked
from . import files

MOST_PROBLEMS = 20


def state_dict(state: State) -> dict[str, Any]:
    r"""Return a state as a flat mapping from path to arrays, numbers and strings.

    It is the same whatever the packing, and shares no memory with the state. Paths are written with
    "/" between keys; a "/" inside a key is written `\/`. A schedule is left out: its count of steps
    is there, its function comes from the state that the mapping is loaded into.

    Args:
        state: the whole, or a part of it with paths from there.

    Returns:
        For a parameter at `enc/w`: `enc/w/param` ("float32[3, 4]"), `enc/w/rule`, `enc/w/frozen`,
        `enc/w/steps`, `enc/w/hyperparameters/eta` and so on, and NumPy arrays `enc/w/state/0` and
        so on; at the first place of a tied parameter also `enc/w/tied`.

    Raises:
        StateError: arrays are traced; two parameters are written the same.
        ArgumentError: the argument is not a state.

    Examples:
        >>> state_dict(setup(Momentum(0.1), {"w": np.zeros(2)}))
        {'w/param': 'float64[2]', 'w/rule': 'Momentum(eta, rho)', 'w/frozen': False, 'w/steps': 0,
         'w/hyperparameters/eta': 0.1, 'w/hyperparameters/rho': 0.9, 'w/state': array([0., 0.])}
    """
    return entries(checked(state))


def load_state_dict(state: State, found: Mapping[str, Any], strict: bool = True) -> State:
    """Return a state with the arrays, counts, frozen flags and numbers of a mapping.

    The given state is left as it was; it says which parameters and rules there are, and on which
    devices. Rules must agree in type and static fields, parameters in path, shape and dtype; tied
    places must be the same.

    Args:
        state: for instance a fresh one from `setup`; the whole, or a part of it.
        found: what `state_dict` returned.
        strict: whether everything must fit; otherwise what does not fit is kept from the given
            state, and one warning lists it.

    Returns:
        A new state.

    Raises:
        StateError: what does not fit, all of it at once.
        ArgumentError: the first argument is not a state, or the second no mapping.

    Warns:
        OptimiserWarning: with `strict=False`, what does not fit.

    Examples:
        >>> state = setup(Momentum(0.1), {"w": np.zeros(2)})
        >>> again = load_state_dict(setup(Momentum(0.5), {"w": np.ones(2)}), state_dict(state))
        >>> again["w"].rule
        Momentum(eta=0.1, rho=0.9)
    """
    if not isinstance(found, Mapping):
        raise ArgumentError(f"expected what state_dict returned, got {type(found).__name__}")
    reader = Reader(checked(state), found)
    read = {i: reader.parameter(i, places) for i, places in places_of(state)}
    reader.strangers()
    if reader.problems:
        shown = [*reader.problems[:MOST_PROBLEMS]]
        if len(reader.problems) > MOST_PROBLEMS:
            shown.append(f"and {len(reader.problems) - MOST_PROBLEMS} more")
        listed = "".join(f"\n  {line}" for line in shown)
        if strict:
            raise StateError(f"what was saved does not fit the state:{listed}")
        warnings.warn(
            f"what was saved does not fit the state everywhere; kept from the state is:{listed}",
            OptimiserWarning,
            stacklevel=2,
        )
    box, fits = state._box, {i: one for i, one in read.items() if one is not None}
    layout, arrays = relaid(box.layout, box.arrays, {i: one.kept for i, one in fits.items()})
    layout = layout.with_frozen({i: one.frozen for i, one in fits.items()})
    return State(Box(layout, arrays), state._at)


def save(file: str | PathLike[str], state: State) -> None:
    """Write a state to a file, all of it or nothing: a crash midway leaves the old file whole.

    Args:
        file: where to; what was there is replaced when everything is written. The format is
            safetensors, with a checksum.
        state: the whole, or a part of it.

    Returns:
        Nothing; the file is there when it returns.

    Raises:
        MissingLibraryError: safetensors is not installed.
        OSError: the file cannot be written; what was there is still there.
        StateError: as in `state_dict`.

    Examples:
        >>> import tempfile, pathlib
        >>> file = pathlib.Path(tempfile.mkdtemp()) / "state.safetensors"
        >>> state = setup(Adam(), {"w": np.ones(2)})
        >>> save(file, state)
        >>> load(file, state)["w"].rule == state["w"].rule
        True
    """
    files.write(file, state_dict(state))


def load(file: str | PathLike[str], state: State, strict: bool = True) -> State:
    """Return a state with what a file holds; nothing in the file is ever run or unpickled.

    The given state is left as it was.

    Args:
        file: what `save` wrote.
        state: as in `load_state_dict`.
        strict: as in `load_state_dict`.

    Returns:
        A new state.

    Raises:
        MissingLibraryError: safetensors is not installed.
        StateError: the file is cut short, damaged, or of another kind; or it does not fit.
        OSError: the file cannot be read.

    Examples:
        >>> import os, tempfile
        >>> file = os.path.join(tempfile.mkdtemp(), "state.safetensors")
        >>> save(file, setup(Descent(0.5), {"w": np.ones(3)}))
        >>> load(file, setup(Descent(0.1), {"w": np.ones(3)}))["w"].rule
        Descent(eta=0.5)
    """
    return load_state_dict(checked(state), files.read(file), strict)
