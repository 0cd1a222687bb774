"""Each rule again, written from its paper in plain NumPy loops.

An oracle is a generator: it is sent `(x, g)` and yields the step to subtract, or None where nothing
moves. Powers of beta are powers of a counter here, where the package keeps running products.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Generator, Iterable, Sequence
from typing import Any

import numpy as np

from optimisers.rules.rule import Rule

Oracle = Generator[Any, tuple[Any, Any], None]


def follow(rule: Rule, x: Any, grads: Iterable[Any]) -> list[Any]:
    """Return the parameter after each step of the oracle of a rule."""
    oracle, found = oracle_of(rule), []
    for g in grads:
        step = oracle.send((x, g))
        x = x if step is None else x - step
        found.append(x)
    return found


def oracle_of(rule: Rule) -> Oracle:
    """Return the oracle of a rule, ready to be sent its first gradient."""
    fields = {field.name: getattr(rule, field.name) for field in dataclasses.fields(rule)}
    fields.pop("throw", None)
    oracle = ORACLES[type(rule).__name__](**fields)
    next(oracle)
    return oracle


def modulus2(g: Any) -> Any:
    return (g * np.conj(g)).real


def descent(eta: float) -> Oracle:
    _, g = yield
    while True:
        _, g = yield eta * g


def momentum(eta: float, rho: float) -> Oracle:
    v = 0.0
    _, g = yield
    while True:
        v = rho * v + eta * g
        _, g = yield v


def nesterov(eta: float, rho: float) -> Oracle:
    # Sutskever's form: the gradient is taken at x + rho v, and it is that point that is kept.
    v = 0.0
    _, g = yield
    while True:
        v_before, v = v, rho * v - eta * g
        _, g = yield -(-rho * v_before + (1 + rho) * v)


def rprop(eta: float, ell: Sequence[float], gamma: Sequence[float]) -> Oracle:
    _, g = yield
    before, size = np.zeros_like(g), np.full_like(g, eta)
    while True:
        g = g.copy()
        for i in range(g.size):
            agree = g.flat[i] * before.flat[i]
            if agree > 0:
                size.flat[i] = min(size.flat[i] * ell[1], gamma[1])
            elif agree < 0:
                size.flat[i] = max(size.flat[i] * ell[0], gamma[0])
                g.flat[i] = 0
        before = g
        _, g = yield size * np.sign(g)


def rms_prop(eta: float, rho: float, epsilon: float, centred: bool) -> Oracle:
    square, mean = 0.0, 0.0
    _, g = yield
    while True:
        square = rho * square + (1 - rho) * modulus2(g)
        mean = rho * mean + (1 - rho) * g if centred else 0.0
        spread = np.sqrt(np.maximum(square - modulus2(mean), 0))
        _, g = yield eta * g / (spread + epsilon)


def moments(beta: Sequence[float], g: Any, m: Any, v: Any) -> tuple[Any, Any]:
    return (
        beta[0] * m + (1 - beta[0]) * g,
        beta[1] * v + (1 - beta[1]) * modulus2(g),
    )


def adam(eta: float, beta: Sequence[float], epsilon: float) -> Oracle:
    m, v, t = 0.0, 0.0, 0
    _, g = yield
    while True:
        t += 1
        m, v = moments(beta, g, m, v)
        m_hat, v_hat = m / (1 - beta[0] ** t), v / (1 - beta[1] ** t)
        _, g = yield eta * m_hat / (np.sqrt(v_hat) + epsilon)


def adam_w(
    eta: float, beta: Sequence[float], lambda_: float, epsilon: float, couple: bool
) -> Oracle:
    inner = adam(eta, beta, epsilon)
    next(inner)
    x, g = yield
    while True:
        step = inner.send((x, g))
        x, g = yield step + (eta if couple else 1.0) * lambda_ * x


def radam(eta: float, beta: Sequence[float], epsilon: float) -> Oracle:
    m, v, t = 0.0, 0.0, 0
    longest = 2 / (1 - beta[1]) - 1
    _, g = yield
    while True:
        t += 1
        m, v = moments(beta, g, m, v)
        m_hat = m / (1 - beta[0] ** t)
        length = longest - 2 * t * beta[1] ** t / (1 - beta[1] ** t)
        if length > 4:
            above = (length - 4) * (length - 2) * longest
            rectify = np.sqrt(above / ((longest - 4) * (longest - 2) * length))
            step = eta * rectify * m_hat / (np.sqrt(v / (1 - beta[1] ** t)) + epsilon)
        else:
            step = eta * m_hat
        _, g = yield step


def adamax(eta: float, beta: Sequence[float], epsilon: float) -> Oracle:
    m, u, t = 0.0, 0.0, 0
    _, g = yield
    while True:
        t += 1
        m = beta[0] * m + (1 - beta[0]) * g
        u = np.maximum(beta[1] * u, np.abs(g))
        _, g = yield eta / (1 - beta[0] ** t) * m / (u + epsilon)


def oadam(eta: float, beta: Sequence[float], epsilon: float) -> Oracle:
    inner, last = adam(eta, beta, epsilon), 0.0
    next(inner)
    x, g = yield
    while True:
        step = inner.send((x, g))
        x, g = yield 2 * step - last
        last = step


def adagrad(eta: float, epsilon: float) -> Oracle:
    total = epsilon
    _, g = yield
    while True:
        total = total + modulus2(g)
        _, g = yield eta * g / (np.sqrt(total) + epsilon)


def adadelta(rho: float, epsilon: float) -> Oracle:
    squares, steps = 0.0, 0.0
    _, g = yield
    while True:
        squares = rho * squares + (1 - rho) * modulus2(g)
        step = np.sqrt(steps + epsilon) / np.sqrt(squares + epsilon) * g
        steps = rho * steps + (1 - rho) * modulus2(step)
        _, g = yield step


def amsgrad(eta: float, beta: Sequence[float], epsilon: float) -> Oracle:
    m, v, top = 0.0, epsilon, epsilon
    _, g = yield
    while True:
        m, v = moments(beta, g, m, v)
        top = np.maximum(top, v)
        _, g = yield eta * m / (np.sqrt(top) + epsilon)


def nadam(eta: float, beta: Sequence[float], epsilon: float) -> Oracle:
    m, v, t = 0.0, 0.0, 0
    _, g = yield
    while True:
        t += 1
        m, v = moments(beta, g, m, v)
        next_m = beta[0] * m / (1 - beta[0] ** (t + 1))
        this_g = (1 - beta[0]) * g / (1 - beta[0] ** t)
        _, g = yield (
            eta * (next_m + this_g) / (np.sqrt(beta[1] * v / (1 - beta[1] ** t)) + epsilon)
        )


def adabelief(eta: float, beta: Sequence[float], epsilon: float) -> Oracle:
    m, s, t = 0.0, 0.0, 0
    _, g = yield
    while True:
        t += 1
        m = beta[0] * m + (1 - beta[0]) * g
        s = beta[1] * s + (1 - beta[1]) * modulus2(g - m) + epsilon
        m_hat, s_hat = m / (1 - beta[0] ** t), s / (1 - beta[1] ** t)
        _, g = yield eta * m_hat / (np.sqrt(s_hat) + epsilon)


def lion(eta: float, beta: Sequence[float]) -> Oracle:
    m = 0.0
    _, g = yield
    while True:
        c = beta[0] * m + (1 - beta[0]) * g
        m = beta[1] * m + (1 - beta[1]) * g
        _, g = yield eta * np.sign(c)


def weight_decay(lambda_: float) -> Oracle:
    x, g = yield
    while True:
        x, g = yield g + lambda_ * x


def sign_decay(lambda_: float) -> Oracle:
    x, g = yield
    while True:
        x, g = yield g + lambda_ * np.sign(x)


def clip_grad(delta: float) -> Oracle:
    _, g = yield
    while True:
        _, g = yield np.minimum(np.maximum(g, -delta), delta)


def clip_norm(omega: float, p: float = 2.0) -> Oracle:
    _, g = yield
    while True:
        norm = np.linalg.norm(np.ravel(g), p)
        _, g = yield g if norm <= omega else g * (omega / norm)


def optimiser_chain(rules: Sequence[Rule]) -> Oracle:
    oracles = [oracle_of(rule) for rule in rules]
    x, g = yield
    while True:
        for oracle in oracles:
            if g is not None:
                g = oracle.send((x, g))
        x, g = yield g


def accum_grad(n: int) -> Oracle:
    batch: list[Any] = []
    _, g = yield
    while True:
        batch.append(g)
        step = None
        if len(batch) == n:
            step = np.mean(batch, axis=0)
            batch = []
        _, g = yield step


def wrapper(rule: Rule, dtype: Any = None) -> Oracle:
    # On float64 and finite gradients both wrappers are the rule inside them.
    return (yield from optimiser_chain([rule]))


ORACLES = {
    "Descent": descent,
    "Momentum": momentum,
    "Nesterov": nesterov,
    "Rprop": rprop,
    "RMSProp": rms_prop,
    "Adam": adam,
    "AdamW": adam_w,
    "RAdam": radam,
    "AdaMax": adamax,
    "OAdam": oadam,
    "AdaGrad": adagrad,
    "AdaDelta": adadelta,
    "AMSGrad": amsgrad,
    "NAdam": nadam,
    "AdaBelief": adabelief,
    "Lion": lion,
    "WeightDecay": weight_decay,
    "SignDecay": sign_decay,
    "ClipGrad": clip_grad,
    "ClipNorm": clip_norm,
    "ClipGlobalNorm": clip_norm,
    "OptimiserChain": optimiser_chain,
    "AccumGrad": accum_grad,
    "MixedPrecision": wrapper,
    "SkipNonFinite": wrapper,
}
