"""destructure: all parameters of a model as one vector, and back."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..arrays import Adapter, adapter_of, describe
from ..arrays.ops import is_traced_type, total
from ..errors import ArgumentError, ShapeError, StructureError
from ..tree import Path, flatten, match, outline, program, rebuild
from ..tree.paths import Place, found as found_path
from . import inputs
from .found import Found, Ties, parameters
from .update import Tied


def destructure(model: Any, *, ties: Ties = None) -> tuple[Any, Restructure]:
    """Return all parameters of a model as one vector, and what makes models of such vectors.

    The model is not changed. `update` trains the vector like any other parameter.

    Args:
        model: as for `setup`.
        ties: as for `setup`: a tied parameter stands in the vector once. Inside a JAX
            transformation identities are lost, and a state says which places are one.

    Returns:
        `(flat, rebuild)`: a vector of the first parameter's library, in the dtype to which those of
        all parameters promote; and a `Restructure`, called as `rebuild(flat)`.

    Raises:
        OptimiserError: what `setup` raises for a model and its ties.

    Examples:
        >>> model = {"w": np.ones((2, 2)), "b": np.zeros(1), "act": "tanh"}
        >>> flat, rebuild = destructure(model)
        >>> flat
        array([0., 1., 1., 1., 1.])
        >>> rebuild(2 * flat)["w"]
        array([[2., 2.],
               [2., 2.]])
    """
    rebuild = Restructure(model, ties)
    flat = rebuild.flatten(model)
    adapter = adapter_of(type(flat))
    assert adapter is not None
    # A vector to begin from, not one that remembers how it was made.
    return (adapter.array(adapter.view(flat)) if adapter.host else flat), rebuild


class Slices(Mapping[Any, slice]):
    """Where each path has its part of a vector; a path is a tuple of keys or written as text."""

    def __init__(self, slices: dict[Path, slice]) -> None:
        self._slices = slices

    def __getitem__(self, place: Place) -> slice:
        try:
            return self._slices[found_path(place, self._slices, "the vector")]
        except StructureError as error:
            raise KeyError(str(error)) from None

    def __iter__(self) -> Iterator[Path]:
        return iter(self._slices)

    def __len__(self) -> int:
        return len(self._slices)

    def __repr__(self) -> str:
        return repr(self._slices)


class Restructure:
    """Makes models of vectors, and vectors of models and gradients, all in one layout.

    `rebuild(flat)` returns a model: what is not trained comes from the model that was given to
    `destructure`. Where the vector is of a leaf's library, the leaf is too, in its own dtype;
    otherwise leaves are arrays of the vector's library, so that derivatives pass. It is hashable by
    identity, and so may be a static argument of `jax.jit`.
    """

    def __init__(self, model: Any, ties: Ties = None) -> None:
        leaves, _ = flatten(model)
        self._outline = outline(model)
        self._found = _light(parameters(self._outline, leaves, ties, warn=False)[0])
        index = {path: i for i, path in enumerate(self._outline.paths)}
        self._places = [tuple(index[path] for path in f.param.paths) for f in self._found]
        trained = {i for places in self._places for i in places}
        self._program = program(self._outline.nodes, range(len(leaves)))
        self._leaves = [None if i in trained else x for i, x in enumerate(leaves)]
        self._rest = rebuild(model, self._program, self._leaves, False)
        ends = np.cumsum([0, *(int(np.prod(f.param.shape)) for f in self._found)]).tolist()
        self._cuts = [slice(a, b) for a, b in itertools.pairwise(ends)]
        self._dtype = _promoted([f.param.dtype for f in self._found])

    @functools.cached_property
    def slices(self) -> Slices:
        """For each path its slice of the vector; the places of a tied parameter share one."""
        pairs = zip(self._found, self._cuts, strict=True)
        return Slices({path: cut for f, cut in pairs for path in f.param.paths})

    def __len__(self) -> int:
        return self._cuts[-1].stop if self._cuts else 0

    def __repr__(self) -> str:
        return f"Restructure({self._dtype}[{len(self)}] -> {type(self._rest).__name__})"

    def __call__(self, flat: Any) -> Any:
        """Return the model with its parameters from a vector.

        Args:
            flat: a vector of `len(self)` numbers, of any library.

        Returns:
            A new model, nested as the one that was taken apart.

        Raises:
            ShapeError: a vector of another length, or no vector.
            ArgumentError: no array.
        """
        adapter, new = self._checked(flat), list(self._leaves)
        for f, places, cut in zip(self._found, self._places, self._cuts, strict=True):
            x = adapter.piece(flat, cut, f.param.shape, f.param.dtype)
            for i in places:
                new[i] = x
        return rebuild(self._rest, self._program, new, False)

    def into_(self, model: Any, flat: Any) -> Any:
        """Write a vector into a model: arrays of NumPy and torch in place, others are replaced.

        Args:
            model: nested as the one that was taken apart.
            flat: a vector of `len(self)` numbers.

        Returns:
            The model; containers that can be written keep their identity.

        Raises:
            StructureError: the model is another one. Nothing is written then.
            ShapeError: as in `rebuild(flat)`.
        """
        adapter = self._checked(flat)
        leaves, places = self._leaves_of(model)
        new = list(leaves)
        for f, at, cut in zip(self._found, places, self._cuts, strict=True):
            part, x = adapter.piece(flat, cut, f.param.shape, f.param.dtype), leaves[at[0]]
            own = adapter_of(type(x))
            assert own is not None
            if own.host:
                value = np.asarray(adapter.view(part))
                result = own.write(x, value) if own.may_write(x) else own.like(x, value)
            else:
                result = own.like(x, adapter.view(part))
            for i in at:
                new[i] = result
        return rebuild(
            model, program(outline(model).nodes, {i for p in places for i in p}), new, True
        )

    def flatten(self, model: Any) -> Any:
        """Return the parameters of a model as a vector.

        Args:
            model: nested as the one that was taken apart, names matched by name.

        Returns:
            A vector of the first parameter's library; it can be differentiated.

        Raises:
            StructureError: the model is another one.
        """
        leaves, places = self._leaves_of(model)
        return self._joined([leaves[at[0]] for at in places])

    def flatten_gradients(self, grads: Any, *, tied: Tied = "parts") -> Any:
        """Return gradients as a vector: None gives zeros, those of tied places are added.

        Args:
            grads: nested like the model, as in `update`.
            tied: as in `update`.

        Returns:
            A vector laid out like the parameters.

        Raises:
            StructureError: gradients that do not fit the model.
        """
        given, _ = flatten(grads, "grads")
        trained = [i for places in self._places for i in places]
        found = match(self._outline, outline(grads, "grads"), trained)
        given = [*given, None]
        inputs.check_pruned(found.prunes, given)
        parts = []
        for f, places in zip(self._found, self._places, strict=True):
            known = []
            for i in places:
                g = inputs.gradient(given[found.gradient[i]], self._outline.codes[i])
                if g is not None:
                    inputs.check_one(g, self._outline.codes[i], f.param.shape, f.param.dtype)
                    known.append(g)
            known = known[:1] if tied == "total" else known
            parts.append(
                total(known, f.param.dtype) if known else np.zeros(f.param.shape, self._dtype)
            )
        return self._joined(parts)

    def _checked(self, flat: Any) -> Adapter:
        adapter = adapter_of(type(flat))
        wanted = f"a vector of {len(self)} numbers"
        if adapter is None:
            raise ArgumentError(f"cannot rebuild from {type(flat).__name__}; expected {wanted}")
        if tuple(flat.shape) != (len(self),):
            raise ShapeError(f"cannot rebuild from {describe(flat)}; expected {wanted}")
        return adapter

    def _leaves_of(self, model: Any) -> tuple[list[Any], list[tuple[int, ...]]]:
        """Return a model's leaves, and for each parameter where it stands among them."""
        leaves, _ = flatten(model)
        index = {path: i for i, path in enumerate(outline(model).paths)}
        places = []
        for f in self._found:
            if any(path not in index for path in f.param.paths):
                raise StructureError(
                    f"the model is not the one that was taken apart: it has no {f.param.codes[0]}"
                )
            at = tuple(index[path] for path in f.param.paths)
            if tuple(getattr(leaves[at[0]], "shape", ())) != f.param.shape:
                raise ShapeError(
                    f"the model does not fit at {f.param.codes[0]}: got {describe(leaves[at[0]])}, "
                    f"expected shape {list(f.param.shape)}"
                )
            places.append(at)
        return leaves, places

    def _joined(self, parts: Sequence[Any]) -> Any:
        """Return arrays of any libraries as one vector, of the first parameter's library."""
        if not parts:
            return jnp.zeros((0,))
        traced = next((x for x in parts if is_traced_type(type(x))), None)
        lead = adapter_of(type(traced)) if traced is not None else self._lead(parts)
        assert lead is not None
        return lead.joined([_moved(x, lead) for x in parts], self._dtype)

    def _lead(self, parts: Sequence[Any]) -> Adapter | None:
        boxed = next((x for x in parts if _name(x) == "autograd"), None)
        return self._found[0].adapter if boxed is None else adapter_of(type(boxed))


def _light(found: Sequence[Found]) -> list[Found]:
    """Leave the arrays out, which need not live as long as this does."""
    return [f._replace(x=None) for f in found]


def _name(x: Any) -> str:
    adapter = adapter_of(type(x))
    return "" if adapter is None else adapter.name


def _moved(x: Any, lead: Adapter) -> Any:
    own = adapter_of(type(x))
    if own is lead or own is None:
        return x
    return lead.array(np.asarray(own.view(x)))


def _promoted(dtypes: Sequence[str]) -> str:
    if not dtypes:
        return "float32"
    with jax.numpy_dtype_promotion("standard"), jax.enable_x64(True):
        return str(functools.reduce(jnp.promote_types, map(jnp.dtype, dtypes)))
