"""Optimisation rules and tree updates for any automatic differentiation library."""

from . import ad, errors, rules
from .api import *
from .api import __all__ as _api
from .interop import from_optax, to_optax
from .rules import *
from .rules import __all__ as _rules
from .state import State
from .training import TrainState, make_step, train
from .tree import register, trainable

__version__ = "0.1.0"
__all__ = [
    "State",
    "TrainState",
    "ad",
    "errors",
    "from_optax",
    "make_step",
    "register",
    "rules",
    "to_optax",
    "train",
    "trainable",
    *_api,
    *_rules,
]
