"""Counting how many programs JAX compiles."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import jax.monitoring

_seen: list[str] = []


def _note(event: str, duration: float, **_: Any) -> None:
    if event.endswith("backend_compile_duration"):
        _seen.append(event)


jax.monitoring.register_event_duration_secs_listener(_note)


@contextmanager
def compiles() -> Iterator[Callable[[], int]]:
    """Give a function that says how many programs were compiled since the block began."""
    begin = len(_seen)
    yield lambda: len(_seen) - begin
