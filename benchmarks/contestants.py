"""Who is measured: each holds its own copy of the numbers and can take one step."""

from __future__ import annotations

import importlib
import importlib.util
import os
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
import optax  # type: ignore[import-untyped]  # it says nothing to mypy

import optimisers
from optimisers import Adam, AdamW, ClipGlobalNorm, Descent, Momentum, OptimiserChain

HAS_TORCH = importlib.util.find_spec("torch") is not None
ETA, DECAY, NORM = 1e-3, 1e-2, 1.0

OURS: Mapping[str, optimisers.Rule] = {
    "Descent": Descent(ETA),
    "Momentum": Momentum(ETA, 0.9),
    "Adam": Adam(ETA),
    "AdamW, norm clipped": OptimiserChain(
        ClipGlobalNorm(NORM), AdamW(ETA, lambda_=DECAY, couple=True)
    ),
}
OPTAX: Mapping[str, Callable[[], optax.GradientTransformation]] = {
    "Descent": partial(optax.sgd, ETA),
    "Momentum": partial(optax.sgd, ETA, momentum=0.9),
    "Adam": partial(optax.adam, ETA),
    "AdamW, norm clipped": lambda: optax.chain(
        optax.clip_by_global_norm(NORM), optax.adamw(ETA, weight_decay=DECAY)
    ),
}


class Contestant(Protocol):
    """What can be measured: `model` is compared, `setup_time` is reported."""

    model: Any
    setup_time: float

    def step(self) -> None:
        """Take one step and wait for its parameters."""


class Ours:
    """`update` or `update_`, on arrays of the kind that `make` makes."""

    def __init__(self, rule: str, params: Any, grads: Any, make: Any, way: Any) -> None:
        self.model, self.grads = jax.tree.map(make, (params, grads))
        self.way = way
        started = time.perf_counter()
        self.state = jax.block_until_ready(optimisers.setup(OURS[rule], self.model))
        self.setup_time = time.perf_counter() - started

    def step(self) -> None:
        """Take one step and wait for its parameters."""
        self.state, self.model = self.way(self.state, self.model, self.grads)
        jax.block_until_ready(self.model)


class Optax:
    """The step that Optax's documentation shows, jitted."""

    def __init__(self, rule: str, params: Any, grads: Any, donate: tuple[int, ...]) -> None:
        transformation = OPTAX[rule]()
        # Copies: an array that shares NumPy's memory could not be donated.
        self.model, self.grads = jax.tree.map(jnp.array, (params, grads))

        def update(state: Any, model: Any, grads: Any) -> tuple[Any, Any]:
            updates, state = transformation.update(grads, state, model)
            return state, optax.apply_updates(model, updates)

        self.update = jax.jit(update, donate_argnums=donate)
        started = time.perf_counter()
        self.state = jax.block_until_ready(transformation.init(self.model))
        self.setup_time = time.perf_counter() - started

    def step(self) -> None:
        """Take one step and wait for its parameters."""
        self.state, self.model = self.update(self.state, self.model, self.grads)
        jax.block_until_ready(self.model)


class Torch:
    """An optimiser of torch, with the gradients already where `backward` would leave them."""

    setup_time = 0.0

    def __init__(self, rule: str, params: Any, grads: Any, **options: Any) -> None:
        # Not a plain import: its type stubs would be checked for minutes, and it may be missing.
        self.torch = torch = importlib.import_module("torch")
        trained = [torch.nn.Parameter(torch.tensor(x)) for x in jax.tree.leaves(params)]
        self.model = [parameter.detach() for parameter in trained]  # the same memory
        for parameter, grad in zip(trained, jax.tree.leaves(grads), strict=True):
            parameter.grad = torch.tensor(grad)
        self.trained, self.clip = trained, rule.endswith("clipped")
        self.gradients = [torch.tensor(g) for g in jax.tree.leaves(grads)]
        rules = {
            "Descent": partial(torch.optim.SGD, lr=ETA),
            "Momentum": partial(torch.optim.SGD, lr=ETA, momentum=0.9),
            "Adam": partial(torch.optim.Adam, lr=ETA),
            "AdamW, norm clipped": partial(torch.optim.AdamW, lr=ETA, weight_decay=DECAY),
        }
        self.rule = rules[rule](trained, **options)
        self.taken = 0
        self.choose_threads()

    def choose_threads(self) -> None:
        """Warm up, then keep one thread or all: on a busy machine all may be 400 times slower."""
        times = {}
        for threads in (1, os.cpu_count() or 1):
            self.torch.set_num_threads(threads)
            started = time.perf_counter()
            for _ in range(3):
                self.step()
                self.taken += 1
            times[threads] = time.perf_counter() - started
        self.torch.set_num_threads(min(times, key=lambda threads: times[threads]))

    def step(self) -> None:
        """Take one step; on a CPU torch returns when it is done."""
        if self.clip:  # in place, so that the gradients have to be there anew
            self.torch._foreach_copy_([p.grad for p in self.trained], self.gradients)
            self.torch.nn.utils.clip_grad_norm_(self.trained, NORM, foreach=True)
        self.rule.step()


class Bound:
    """What memory alone would allow: a copy that moves as many bytes as one step of Adam."""

    setup_time = 0.0

    def __init__(self, rule: str, params: Any, grads: Any) -> None:
        # Adam reads x, g, m and v, and writes x, m and v: seven arrays; a copy moves two.
        size = sum(x.nbytes for x in jax.tree.leaves(params)) * 7 // 2
        self.model: Any = None
        self.source, self.target = np.ones(size, np.uint8), np.zeros(size, np.uint8)

    def step(self) -> None:
        """Move the bytes."""
        np.copyto(self.target, self.source)


def tensor(x: Any) -> Any:
    """Return a torch tensor with its own memory."""
    return importlib.import_module("torch").tensor(x)


CONTESTANTS: Mapping[str, Callable[[str, Any, Any], Contestant]] = {
    "update_": partial(Ours, make=jnp.array, way=optimisers.update_),
    "update": partial(Ours, make=jnp.array, way=optimisers.update),
    "update_ in jit": partial(
        Ours, make=jnp.array, way=jax.jit(optimisers.update, donate_argnums=(0, 1))
    ),
    "update_, NumPy": partial(Ours, make=np.array, way=optimisers.update_),
    "update_, torch": partial(Ours, make=tensor, way=optimisers.update_),
    "Optax": partial(Optax, donate=(0, 1)),
    "Optax, not donated": partial(Optax, donate=()),
    "torch fused": partial(Torch, fused=True),
    "torch foreach": partial(Torch, foreach=True),
    "bytes alone": Bound,
}
NEEDS_TORCH = ("update_, torch", "torch fused", "torch foreach")
