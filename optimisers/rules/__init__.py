"""The rules: one file each, a formula on one array."""

from .adam import Adam
from .chain import OptimiserChain
from .clip_grad import ClipGrad
from .clip_norm import ClipNorm
from .descent import Descent
from .momentum import Momentum
from .rule import Rule, Step
from .weight_decay import WeightDecay

__all__ = [
    "Adam",
    "ClipGrad",
    "ClipNorm",
    "Descent",
    "Momentum",
    "OptimiserChain",
    "Rule",
    "Step",
    "WeightDecay",
]
