"""Every exception and warning of the package; each is also the built-in a caller would expect.

As a tree, with the built-in that each also is:

    OptimiserError
    ├── StructureError      (ValueError)  trees that do not fit: missing, extra, wrong container
    │   └── ShapeError                    an array whose shape differs from its parameter's
    ├── ArgumentError       (TypeError)   not a gradient, not a state, arguments swapped
    ├── DtypeError          (TypeError)   a dtype that cannot be computed, or was narrowed
    ├── RuleError           (ValueError)  impossible number, unknown field, missing gradient
    ├── RuleTypeError       (TypeError)   a rule class that cannot work as written
    ├── StateError          (ValueError)  a state that is not this model's, deleted or vmapped
    ├── AliasError          (ValueError)  memory that would be written twice
    ├── NonFiniteError      (ValueError)  a number that is not finite where one was demanded
    │   └── NonFiniteLossError            the loss of a batch, in `train`
    ├── DeviceError         (ValueError)  an array on a device that JAX does not have
    └── MissingLibraryError (ImportError) an optional library is not installed

    OptimiserWarning        (UserWarning) legal, but probably not meant
"""

from __future__ import annotations

from typing import Any


class OptimiserError(Exception):
    """Base of every error that this package raises on purpose."""


class StructureError(OptimiserError, ValueError):
    """Two trees do not fit: a missing item, an extra key, another kind of container."""


class ShapeError(StructureError):
    """An array has another shape than its parameter; shapes are never broadcast."""


class ArgumentError(OptimiserError, TypeError):
    """An argument is of a kind that cannot stand in its place."""


class DtypeError(OptimiserError, TypeError):
    """A dtype cannot be computed, or an array was narrowed on its way here."""


class RuleError(OptimiserError, ValueError):
    """A hyper-parameter is impossible or unknown, or a rule lacks what it needs."""


class RuleTypeError(OptimiserError, TypeError):
    """A rule class or its use is wrong in a way that no number can mend."""


class StateError(OptimiserError, ValueError):
    """A state does not belong to the model, or cannot be used as it is."""


class AliasError(OptimiserError, ValueError):
    """Two parameters share memory, so that writing one would change the other."""


class NonFiniteError(OptimiserError, ValueError):
    """A number is infinite or NaN where finite ones are insisted on.

    In `train`, `.state` and `.model` are as they were before the batch that it happened in.
    """

    def __init__(self, message: str, state: Any = None, model: Any = None) -> None:
        super().__init__(message)
        self.state, self.model = state, model


class NonFiniteLossError(NonFiniteError):
    """The loss of a batch is infinite or NaN."""


class DeviceError(OptimiserError, ValueError):
    """An array lives on a device that JAX cannot reach."""


class MissingLibraryError(OptimiserError, ImportError):
    """An optional library is not installed; the message holds the line that installs it."""


class OptimiserWarning(UserWarning):
    """Something legal that is probably not what was meant."""
