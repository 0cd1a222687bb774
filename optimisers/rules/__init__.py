"""The rules: one file each, a formula on one array."""

from ..lazy import lazily

__getattr__, __dir__, __all__ = lazily(
    __name__,
    {
        "accum_grad": ["AccumGrad"],
        "adabelief": ["AdaBelief"],
        "adadelta": ["AdaDelta"],
        "adagrad": ["AdaGrad"],
        "adam": ["Adam"],
        "adamax": ["AdaMax"],
        "adamw": ["AdamW"],
        "amsgrad": ["AMSGrad"],
        "chain": ["OptimiserChain"],
        "clip_global_norm": ["ClipGlobalNorm"],
        "clip_grad": ["ClipGrad"],
        "clip_norm": ["ClipNorm"],
        "descent": ["Descent"],
        "lion": ["Lion"],
        "mixed_precision": ["MixedPrecision"],
        "momentum": ["Momentum"],
        "nadam": ["NAdam"],
        "nesterov": ["Nesterov"],
        "oadam": ["OAdam"],
        "radam": ["RAdam"],
        "rms_prop": ["RMSProp"],
        "rprop": ["Rprop"],
        "rule": ["Rule", "Step"],
        "sign_decay": ["SignDecay"],
        "skip_non_finite": ["SkipNonFinite"],
        "weight_decay": ["WeightDecay"],
    },
)
