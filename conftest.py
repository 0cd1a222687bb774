"""What the examples in docstrings take as given: the package's names, and `np` and `jnp`."""

from __future__ import annotations

from typing import Any

import pytest

# Adapters without examples, which cannot be imported where their library is not installed.
collect_ignore = [
    f"optimisers/arrays/{name}_.py" for name in ("keras", "mlx", "penzai", "tensorflow", "tinygrad")
]


@pytest.fixture(autouse=True)
def _names_for_doctests(request: pytest.FixtureRequest) -> None:
    if not isinstance(request.node, pytest.DoctestItem):
        return
    # Imported here: tests/conftest.py sets JAX's mode first.
    import jax.numpy as jnp
    import numpy as np

    import optimisers

    names: dict[str, Any] = request.getfixturevalue("doctest_namespace")
    names.update({name: getattr(optimisers, name) for name in optimisers.__all__}, np=np, jnp=jnp)
