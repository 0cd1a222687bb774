# The names of `__init__.py`, which imports each when it is asked for, as type checkers read them.

from . import ad as ad, errors as errors, rules as rules
from .api.adjust import adjust as adjust, adjust_ as adjust_
from .api.destructure import Restructure as Restructure, destructure as destructure
from .api.freeze import freeze as freeze, freeze_ as freeze_, thaw as thaw, thaw_ as thaw_
from .api.partition import combine as combine, partition as partition
from .api.paths import get_path as get_path, has_path as has_path, set_path as set_path
from .api.read import steps as steps, total_gradients as total_gradients, trainables as trainables
from .api.saving import (
    load as load,
    load_state_dict as load_state_dict,
    save as save,
    state_dict as state_dict,
)
from .api.setup import setup as setup
from .api.summary import summary as summary
from .api.update import update as update, update_ as update_
from .interop.optax_rule import from_optax as from_optax
from .interop.optax_transformation import to_optax as to_optax
from .rules import (
    AccumGrad as AccumGrad,
    AdaBelief as AdaBelief,
    AdaDelta as AdaDelta,
    AdaGrad as AdaGrad,
    Adam as Adam,
    AdaMax as AdaMax,
    AdamW as AdamW,
    AMSGrad as AMSGrad,
    ClipGlobalNorm as ClipGlobalNorm,
    ClipGrad as ClipGrad,
    ClipNorm as ClipNorm,
    Descent as Descent,
    Lion as Lion,
    MixedPrecision as MixedPrecision,
    Momentum as Momentum,
    NAdam as NAdam,
    Nesterov as Nesterov,
    OAdam as OAdam,
    OptimiserChain as OptimiserChain,
    RAdam as RAdam,
    RMSProp as RMSProp,
    Rprop as Rprop,
    Rule as Rule,
    SignDecay as SignDecay,
    SkipNonFinite as SkipNonFinite,
    Step as Step,
    WeightDecay as WeightDecay,
)
from .state.state import State as State
from .training.loop import train as train
from .training.step import TrainState as TrainState, make_step as make_step
from .tree.register import register as register, trainable as trainable

__version__: str
