"""What MLX, TensorFlow and tinygrad have in common: arrays taken over, values looked at."""

from __future__ import annotations

from typing import Any

from ..arrays import adapter_of
from ..errors import ArgumentError
from .backend import Arrays, viewed


def taken_over(arrays: Arrays, kind: type) -> list[Any]:
    """Return arrays as those of a library, of which `kind` is the class; one stays one.

    Those that are the library's already are returned themselves.
    """
    adapter = adapter_of(kind)
    assert adapter is not None
    made: dict[int, Any] = {}
    for x in arrays:
        if id(x) not in made:
            made[id(x)] = x if adapter.is_array_type(type(x)) else adapter.array(viewed(x))
    return [made[id(x)] for x in arrays]


def check_value(value: Any, kind: type) -> None:
    """Raise where a function returns something else than an array of the library."""
    if not isinstance(value, kind):
        raise ArgumentError(
            f"cannot differentiate a {type(value).__name__}, which does not depend on the model: "
            f"return what {kind.__module__.partition('.')[0]} computed"
        )
