"""An Optax transformation as a part of a rule: comparable, and with a name."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, NoReturn

import jax
import jax.numpy as jnp
import numpy as np
from jax.export import symbolic_shape

from ..arrays.numbers import is_wide, precision, x64_enabled
from ..errors import RuleTypeError
from ..state.spec import PROBE, WIDTH
from .alike import Alike, alike
from .elementwise import is_elementwise, text
from .programs import Peers, Program, traced


class Transformation:
    """A transformation, equal to another one if their functions are the same objects."""

    def __init__(self, tx: Any) -> None:
        self.init, self.update = tx.init, tx.update

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Transformation) and self._functions == other._functions

    def __hash__(self) -> int:
        return hash(self._functions)

    @property
    def _functions(self) -> tuple[Any, Any]:
        return self.init, self.update

    def __repr__(self) -> str:
        # In files, too, where the address of a function would be another one each time.
        return self.name

    @functools.cached_property
    def name(self) -> str:
        """What can be told of it: the function that made it, and of what kinds its states are."""
        return f"{_maker(self.update)}({', '.join(_kinds(self.first))})"

    @property
    def state_kind(self) -> Any:
        """What two transformations share that can have each other's state."""
        return self.name, jax.tree.structure(self.first)

    @functools.cached_property
    def first(self) -> Any:
        """The first state for some parameter."""
        with standard(), jax.ensure_compile_time_eval():
            return self.init(jnp.ones(PROBE, np.float32))

    @functools.cached_property
    def elementwise(self) -> bool:
        """Whether it treats each element by itself."""
        return self.packs(PROBE, np.float32)

    def packs(self, shape: tuple[int, ...], dtype: Any) -> bool:
        """Tell whether parameters of a shape can be cut into rows: whether all shapes are one."""
        return all(self.is_plain(each, dtype) for each in (shape, PROBE, (WIDTH,)))

    def is_plain(self, shape: tuple[int, ...], dtype: Any) -> bool:
        """Tell whether what happens to parameters of a shape is elementwise, as for any shape."""
        with _mode(dtype):
            return _is_plain(self, shape, np.dtype(dtype).name, x64_enabled())

    def alike(self, shape: tuple[int, ...], dtype: Any) -> Alike:
        """Return what it does to parameters of a shape and dtype; raise where that is no rule."""
        with _mode(dtype):
            try:
                return _alike(self, shape, np.dtype(dtype).name, x64_enabled())
            except Exception as error:  # noqa: BLE001 - whatever its functions raise
                _refuse(self.update, error)


@functools.lru_cache(maxsize=512)
def _traced(tx: Transformation, peers: int, shape: Any, dtype: str, wide: bool) -> Program:
    return traced(tx, peers, shape, dtype)


@functools.lru_cache(maxsize=512)
def _alike(tx: Transformation, shape: Any, dtype: str, wide: bool) -> Alike:
    return alike(lambda peers: _traced(tx, peers, shape, dtype, wide))


@functools.lru_cache(maxsize=512)
def _is_plain(tx: Transformation, shape: tuple[int, ...], dtype: str, wide: bool) -> bool:
    known = _plain_text(tx, dtype, wide)
    try:
        return known is not None and known == text(_traced(tx, 2, shape, dtype, wide))
    except Exception:  # noqa: BLE001 - what it cannot do for a shape, `alike` says
        return False


@functools.lru_cache(maxsize=512)
def _plain_text(tx: Transformation, dtype: str, wide: bool) -> Any:
    """Return the program for any shape, None if there is no such, or it is not elementwise."""
    shape = tuple(symbolic_shape("a, b"))
    try:
        program = _alike(tx, shape, dtype, wide).program
    except Exception:  # noqa: BLE001 - whatever becomes of sizes that are symbols
        return None
    return text(program) if is_elementwise(program, shape) else None


def _mode(dtype: Any) -> ExitStack:
    stack = standard()
    stack.enter_context(precision(is_wide(dtype)))
    return stack


def standard() -> ExitStack:
    """Return the context of other people's code, which was not written for JAX's strict mode."""
    stack = ExitStack()
    stack.enter_context(jax.numpy_dtype_promotion("standard"))
    stack.enter_context(jax.numpy_rank_promotion("allow"))
    return stack


def _refuse(update: Any, error: Exception) -> NoReturn:
    reason = str(error).strip().partition("\n")[0].rstrip(".")
    if missing := re.search(r"missing \d+ required keyword-only arguments?: (.*)", reason):
        names = missing[1].replace("'", "")
        reason = f"its update needs {names}, and update(state, model, grads) has gradients alone"
    elif Peers.__name__ in str(error):
        reason = "it wants parameters in a tree of its own; give setup a rule for each of its parts"
    elif not isinstance(error, RuleTypeError):
        reason = f"it raises {type(error).__name__}: {reason}"
    raise RuleTypeError(f"cannot make a rule of {_maker(update)}: {reason}") from error


def _maker(update: Any) -> str:
    """Return the name of the function that made this one."""
    name: str = getattr(update, "__qualname__", type(update).__name__)
    return name.partition(".")[0]


def _kinds(state: Any) -> Iterator[str]:
    """Yield the names of the classes of a transformation's states."""
    if hasattr(state, "_fields"):
        yield type(state).__name__
    elif isinstance(state, tuple | list):
        for part in state:
            yield from _kinds(part)
    elif isinstance(state, dict):
        yield from _kinds(list(state.values()))
