"""Optax both ways: its transformations as rules, and rules as its transformations."""

from .optax_rule import from_optax
from .optax_transformation import to_optax

__all__ = ["from_optax", "to_optax"]
