"""gradient and value_and_gradient: one way to ask, whichever library answers."""

from __future__ import annotations

from typing import Any

from ..errors import ArgumentError
from .backend import Backend
from .find import backend_of


def gradient(f: Any, model: Any, *data: Any, ad: Backend | None = None) -> Any:
    """Return the gradients of `f(model, *data)` with respect to the model.

    Nothing is changed, but for what `f` itself changes. Only what `setup` would train is
    differentiated; everything else reaches `f` as it is.

    Args:
        f: returns one real number.
        model: as for `setup`.
        *data: further arguments of `f`, which are not differentiated.
        ad: the backend, such as `AutoTorch()`. None: the one that the model's arrays and containers
            ask for; NumPy arrays mean `AutoJAX()`.

    Returns:
        A tree nested like the model, as `update` takes it without a flag: None where there is no
        gradient, complex ones as descent directions, those of a tied array as contributions at
        each place, or as a total at one of them and None at the others.

    Raises:
        ArgumentError: `ad` is no backend, or none or several are found; nothing in the model is
            trainable; `f` returns something else than a number.
        ShapeError: `f` returns an array.
        MissingLibraryError: the library is not installed.

    Examples:
        >>> model = {"w": np.array([1.0, 2.0]), "act": np.tanh, "n": 3}
        >>> ad.gradient(lambda m, x: (m["w"] * x).sum(), model, np.array([3.0, 4.0]))
        {'w': array([3., 4.]), 'act': None, 'n': None}
    """
    _check(f)
    return backend_of(ad, model).value_and_gradient(f, model, *data)[1]


def value_and_gradient(
    f: Any, model: Any, *data: Any, ad: Backend | None = None, has_aux: bool = False
) -> tuple[Any, Any]:
    """Return the value of `f(model, *data)`, and its gradients with respect to the model.

    Nothing is changed, but for what `f` itself changes.

    Args:
        f: returns one real number; with `has_aux` a pair of that and anything else.
        model: as in `gradient`.
        *data: as in `gradient`.
        ad: as in `gradient`.
        has_aux: whether `f` returns `(value, aux)`.

    Returns:
        `(value, gradients)`; with aux `((value, aux), gradients)`.

    Raises:
        OptimiserError: whatever `gradient` raises.

    Examples:
        >>> ad.value_and_gradient(lambda w: ((w**2).sum(), "aux"), np.array([3.0]), has_aux=True)
        ((array(9.), 'aux'), array([6.]))
    """
    _check(f)
    return backend_of(ad, model).value_and_gradient(f, model, *data, has_aux=has_aux)


def _check(f: Any) -> None:
    if not callable(f):
        raise ArgumentError(
            f"the function comes first: gradient(f, model, *data); got {type(f).__name__} for it"
        )
