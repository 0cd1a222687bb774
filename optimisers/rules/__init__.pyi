# The names of `__init__.py`, which imports each when it is asked for, as type checkers read them.

from .accum_grad import AccumGrad as AccumGrad
from .adabelief import AdaBelief as AdaBelief
from .adadelta import AdaDelta as AdaDelta
from .adagrad import AdaGrad as AdaGrad
from .adam import Adam as Adam
from .adamax import AdaMax as AdaMax
from .adamw import AdamW as AdamW
from .amsgrad import AMSGrad as AMSGrad
from .chain import OptimiserChain as OptimiserChain
from .clip_global_norm import ClipGlobalNorm as ClipGlobalNorm
from .clip_grad import ClipGrad as ClipGrad
from .clip_norm import ClipNorm as ClipNorm
from .descent import Descent as Descent
from .lion import Lion as Lion
from .mixed_precision import MixedPrecision as MixedPrecision
from .momentum import Momentum as Momentum
from .nadam import NAdam as NAdam
from .nesterov import Nesterov as Nesterov
from .oadam import OAdam as OAdam
from .radam import RAdam as RAdam
from .rms_prop import RMSProp as RMSProp
from .rprop import Rprop as Rprop
from .rule import Rule as Rule, Step as Step
from .sign_decay import SignDecay as SignDecay
from .skip_non_finite import SkipNonFinite as SkipNonFinite
from .weight_decay import WeightDecay as WeightDecay
