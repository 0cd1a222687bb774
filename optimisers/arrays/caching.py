"""A cache that keeps a function's types, which `functools.lru_cache` hides from type checkers."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TypeVar, cast

F = TypeVar("F", bound=Callable[..., object])


def cached(function: F) -> F:
    """Remember results by argument; for classes and static data, so that nothing large stays."""
    return cast(F, functools.lru_cache(maxsize=1024)(function))
