"""What holds for every test: strict JAX, seeded Hypothesis, and where torch is needed.

A test that needs torch asks for the fixture `torch` (or is marked so), and imports it nowhere else:
then the suite also runs where torch is not installed. Under CI a missing library is a failure.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import jax
import pytest
from hypothesis import HealthCheck, settings

# Without examples kept from earlier runs and with a fixed seed, a failure is one for everybody.
settings.register_profile(
    "quick",
    max_examples=20,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("ci", settings.get_profile("quick"), max_examples=100)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))

# Our own code must say which dtype and which rank it means, as users may run it in this mode too.
jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what asks for a library; where one is missing, and not under CI, leave out its tests."""
    for item in items:
        needed = _needed(item)
        if "torch" in needed:
            item.add_marker("torch")
        if needed - {"torch"}:
            item.add_marker("interop")
    if os.environ.get("CI"):
        return
    without = [item for item in items if not all(map(_is_there, _needed(item)))]
    if without:
        config.hook.pytest_deselected(items=without)
        items[:] = [item for item in items if item not in without]


def _needed(item: pytest.Item) -> set[str]:
    """Return the libraries without which a test cannot run, beyond those of the extra `test`."""
    marks = {name for mark in item.iter_markers("needs") for name in mark.args}
    return marks | {"torch"}.intersection(getattr(item, "fixturenames", ()))


@functools.cache
def _is_there(library: str) -> bool:
    # tinygrad compiles with clang, which no package of Python's brings along.
    compiler = library != "tinygrad" or shutil.which("clang") is not None
    return compiler and importlib.util.find_spec(library) is not None


def pytest_report_header() -> list[str]:
    """Say where torch is missing, so that nobody takes the shorter run for the whole one."""
    if importlib.util.find_spec("torch"):
        return []
    return ["torch is not installed: tests that need it are left out (under CI they fail)"]


@pytest.fixture
def torch() -> ModuleType:
    """Return torch; whatever asks for it is marked `torch`."""
    return importlib.import_module("torch")


@pytest.fixture(autouse=True)
def lenient_for_peers(request: pytest.FixtureRequest) -> Iterator[None]:
    """Switch JAX's strictness off around another library's code, which was not written for it."""
    if not request.node.get_closest_marker("peers"):
        yield
        return
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Return where a state may be saved."""
    return tmp_path / "state.safetensors"


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Take Ctrl-C as Python does, also where a shell started the tests in its background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
