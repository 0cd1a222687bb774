"""Keras' optimisers from the formulas of its documentation and source (3.15), in NumPy.

Keras would bring a framework of its own; where it is installed anyway, as in the CI run of other
libraries, `rules/test_peers.py` runs it beside these.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np


class Optimizer:
    """Keras' base: clipping by value, by each norm, or by the global norm; then `step`."""

    def __init__(self, learning_rate: float, **options: Any) -> None:
        self.lr, self.options, self.t = learning_rate, options, 0
        self.slots: dict[int, dict[str, Any]] = {}

    def __getattr__(self, name: str) -> Any:
        return {**self.defaults, **self.options}[name]

    defaults: ClassVar[dict[str, Any]] = {}

    def apply(self, grads: list[Any], xs: list[Any]) -> list[Any]:
        """Return the variables after one step."""
        self.t += 1
        grads = self._clipped(grads)
        return [
            x - self.step(g, x, self.slots.setdefault(i, {}))
            for i, (g, x) in enumerate(zip(grads, xs, strict=True))
        ]

    def _clipped(self, grads: list[Any]) -> list[Any]:
        if value := self.options.get("clipvalue"):
            return [np.clip(g, -value, value) for g in grads]
        if norm := self.options.get("clipnorm"):
            return [g * norm / max(norm, np.sqrt(np.sum(g * g))) for g in grads]
        if norm := self.options.get("global_clipnorm"):
            total = np.sqrt(sum(np.sum(g * g) for g in grads))
            return [g * norm / max(norm, total) for g in grads]
        return grads

    def step(self, g: Any, x: Any, slots: dict[str, Any]) -> Any:
        """Return what is subtracted from a variable."""
        raise NotImplementedError


class SGD(Optimizer):
    defaults: ClassVar[dict[str, Any]] = {"momentum": 0.0, "nesterov": False}

    def step(self, g: Any, x: Any, slots: dict[str, Any]) -> Any:
        m = slots["m"] = slots.get("m", 0) * self.momentum - self.lr * g
        return -(m * self.momentum - self.lr * g) if self.nesterov else -m


class RMSprop(Optimizer):
    defaults: ClassVar[dict[str, Any]] = {"rho": 0.9, "epsilon": 1e-7}

    def step(self, g: Any, x: Any, slots: dict[str, Any]) -> Any:
        v = slots["v"] = self.rho * slots.get("v", 0) + (1 - self.rho) * g * g
        return self.lr * g / np.sqrt(v + self.epsilon)


class Adam(Optimizer):
    defaults: ClassVar[dict[str, Any]] = {"beta_1": 0.9, "beta_2": 0.999, "epsilon": 1e-7}

    def step(self, g: Any, x: Any, slots: dict[str, Any]) -> Any:
        m, v = slots.get("m", 0), slots.get("v", 0)
        m = slots["m"] = m + (g - m) * (1 - self.beta_1)
        v = slots["v"] = v + (g * g - v) * (1 - self.beta_2)
        alpha = self.lr * np.sqrt(1 - self.beta_2**self.t) / (1 - self.beta_1**self.t)
        return m * alpha / (np.sqrt(v) + self.epsilon)


class AdamW(Adam):
    def step(self, g: Any, x: Any, slots: dict[str, Any]) -> Any:
        return x * self.weight_decay * self.lr + super().step(g, x, slots)


class Adamax(Optimizer):
    defaults: ClassVar[dict[str, Any]] = {"beta_1": 0.9, "beta_2": 0.999, "epsilon": 1e-7}

    def step(self, g: Any, x: Any, slots: dict[str, Any]) -> Any:
        m = slots["m"] = slots.get("m", 0) * self.beta_1 + (1 - self.beta_1) * g
        u = slots["u"] = np.maximum(self.beta_2 * slots.get("u", 0), np.abs(g))
        return self.lr * m / ((1 - self.beta_1**self.t) * (u + self.epsilon))


class Adagrad(Optimizer):
    defaults: ClassVar[dict[str, Any]] = {"initial_accumulator_value": 0.1, "epsilon": 1e-7}

    def step(self, g: Any, x: Any, slots: dict[str, Any]) -> Any:
        a = slots["a"] = slots.get("a", self.initial_accumulator_value) + g * g
        return self.lr * g / np.sqrt(a + self.epsilon)


class Adadelta(Optimizer):
    defaults: ClassVar[dict[str, Any]] = {"rho": 0.95, "epsilon": 1e-7}

    def step(self, g: Any, x: Any, slots: dict[str, Any]) -> Any:
        rho, eps = self.rho, self.epsilon
        a = slots["a"] = rho * slots.get("a", 0) + (1 - rho) * g * g
        delta = np.sqrt(slots.get("d", 0) + eps) * g / np.sqrt(a + eps)
        slots["d"] = rho * slots.get("d", 0) + (1 - rho) * delta * delta
        return self.lr * delta


class Lion(Optimizer):
    defaults: ClassVar[dict[str, Any]] = {"beta_1": 0.9, "beta_2": 0.99}

    def step(self, g: Any, x: Any, slots: dict[str, Any]) -> Any:
        m = slots.get("m", 0)
        slots["m"] = m * self.beta_2 + g * (1 - self.beta_2)
        return self.lr * np.sign(m * self.beta_1 + g * (1 - self.beta_1))
