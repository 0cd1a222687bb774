"""The rules: one file each, a formula on one array."""

from .accum_grad import AccumGrad
from .adabelief import AdaBelief
from .adadelta import AdaDelta
from .adagrad import AdaGrad
from .adam import Adam
from .adamax import AdaMax
from .adamw import AdamW
from .amsgrad import AMSGrad
from .chain import OptimiserChain
from .clip_global_norm import ClipGlobalNorm
from .clip_grad import ClipGrad
from .clip_norm import ClipNorm
from .descent import Descent
from .lion import Lion
from .mixed_precision import MixedPrecision
from .momentum import Momentum
from .nadam import NAdam
from .nesterov import Nesterov
from .oadam import OAdam
from .radam import RAdam
from .rms_prop import RMSProp
from .rprop import Rprop
from .rule import Rule, Step
from .sign_decay import SignDecay
from .skip_non_finite import SkipNonFinite
from .weight_decay import WeightDecay

__all__ = [
    "AMSGrad",
    "AccumGrad",
    "AdaBelief",
    "AdaDelta",
    "AdaGrad",
    "AdaMax",
    "Adam",
    "AdamW",
    "ClipGlobalNorm",
    "ClipGrad",
    "ClipNorm",
    "Descent",
    "Lion",
    "MixedPrecision",
    "Momentum",
    "NAdam",
    "Nesterov",
    "OAdam",
    "OptimiserChain",
    "RAdam",
    "RMSProp",
    "Rprop",
    "Rule",
    "SignDecay",
    "SkipNonFinite",
    "Step",
    "WeightDecay",
]
