"""Optimisation rules and tree updates for any automatic differentiation library."""

from . import ad, errors, rules
from .api import *
from .api import __all__ as _api
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
    "make_step",
    "register",
    "rules",
    "train",
    "trainable",
    *_api,
    *_rules,
]
