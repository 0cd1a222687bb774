"""Where JAX's arrays live: one device, copies on several, or pieces; also what a tracer tells."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax.core import Tracer
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P


def place_of(x: Any) -> tuple[Any, bool]:
    """Return a key that is equal for arrays that live alike, and whether they may be in pieces."""
    if isinstance(x, Tracer):
        return _place_in_program(x)
    if not isinstance(x, jax.Array):
        return None, False
    sharding: Any = x.sharding
    if len(sharding.device_set) == 1:
        return next(iter(sharding.device_set)).id, False
    return sharding, not sharding.is_fully_replicated


def _place_in_program(x: Any) -> tuple[Any, bool]:
    """Tell what a program can know: axes of a mesh that are explicit stand in the type."""
    sharding: Any = jax.typeof(x).sharding
    kinds = set(sharding.mesh.axis_types)
    if not kinds <= {AxisType.Explicit, AxisType.Manual} or not kinds:
        # Nobody knows before the program is compiled, and one device has no pieces.
        return None, jax.device_count() > 1
    cut = any(part is not None for part in sharding.spec)
    return (sharding if cut else sharding.mesh), cut


def alike(x: Any, y: Any) -> Any:
    """Return `y`, which in a compiled program is to be cut as `x` is.

    Zeros depend on nothing, so that the compiler would leave them whole, or on one device.
    """
    # Not `shard_alike`: JAX lowers its uses with equal shapes once, and all are then cut alike. The
    # barrier is for simplifiers, which run before the compiler spreads what is cut how.
    return jnp.where(x == x, y, jax.lax.optimization_barrier(y))


def whole(sharding: Any) -> Any:
    """Return the sharding, valid for any shape, that has a copy on each of the same devices."""
    return NamedSharding(sharding.mesh, P()) if isinstance(sharding, NamedSharding) else sharding


def beside(a: Any, home: Any) -> Any:
    """Return an array with this sharding; what is traced is where its program puts it."""
    if home is None or isinstance(a, Tracer) or getattr(a, "sharding", None) == home:
        return a
    return jax.device_put(a, home)
