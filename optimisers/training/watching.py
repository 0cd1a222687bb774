"""What goes on around a loop: the progress bar, and Ctrl-C."""

from __future__ import annotations

import importlib
import importlib.util
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Self


class Bar:
    """Batches with a progress bar, if tqdm is installed; there is none in pipes."""

    def __init__(self, data: Iterable[Any], wanted: bool) -> None:
        self._data, self._bar = data, None
        if wanted and importlib.util.find_spec("tqdm") is not None:
            tqdm = importlib.import_module("tqdm")
            self._bar = tqdm.tqdm(data, unit="batch", disable=None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        if self._bar is not None:
            self._bar.close()

    def __iter__(self) -> Iterator[Any]:
        return iter(self._data if self._bar is None else self._bar)

    def show(self, loss: float) -> None:
        """Write the loss beside the bar when it is next drawn."""
        if self._bar is not None and not self._bar.disable:
            self._bar.set_postfix(loss=f"{loss:.4g}", refresh=False)


class Interrupts:
    """Ctrl-C waits while something is written that must not be left half done.

    Outside the main thread, where Python gives no signals, and where Ctrl-C is handled by something
    that is not Python's, nothing is changed.
    """

    def __init__(self) -> None:
        self._handler: Callable[[int, FrameType | None], Any] | None = None
        self._holds = self._waiting = False

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            handler = signal.getsignal(signal.SIGINT)
            if callable(handler):
                self._handler = handler
                signal.signal(signal.SIGINT, self._caught)
        return self

    def __exit__(self, *exception: object) -> None:
        if self._handler is not None:
            signal.signal(signal.SIGINT, self._handler)

    def _caught(self, number: int, frame: FrameType | None) -> None:
        if self._holds:
            self._waiting = True
        elif self._handler is not None:
            self._handler(number, frame)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Let Ctrl-C wait until the end of the block."""
        self._holds = True
        try:
            yield
        finally:
            self._holds = False
            if self._waiting:
                self._waiting = False
                self._caught(signal.SIGINT, None)
