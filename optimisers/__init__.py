"""Optimisation rules and tree updates for any automatic differentiation library."""

from . import rules
from .lazy import lazily

__version__ = "0.1.0"
__getattr__, __dir__, __all__ = lazily(
    __name__,
    {
        "rules": dir(rules),
        "api.adjust": ["adjust", "adjust_"],
        "api.destructure": ["Restructure", "destructure"],
        "api.freeze": ["freeze", "freeze_", "thaw", "thaw_"],
        "api.partition": ["combine", "partition"],
        "api.paths": ["get_path", "has_path", "set_path"],
        "api.read": ["steps", "total_gradients", "trainables"],
        "api.saving": ["load", "load_state_dict", "save", "state_dict"],
        "api.setup": ["setup"],
        "api.summary": ["summary"],
        "api.update": ["update", "update_"],
        "interop.optax_rule": ["from_optax"],
        "interop.optax_transformation": ["to_optax"],
        "state.state": ["State"],
        "training.loop": ["train"],
        "training.step": ["TrainState", "make_step"],
        "tree.register": ["register", "trainable"],
    },
    rooms=["ad", "errors", "rules"],
)
