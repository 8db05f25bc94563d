"""Climbing an objective inside a box by L-BFGS, and only as long as it pays.

SciPy's L-BFGS-B finds the same hills. It spends 3 ms on the bounds of 400 variables before it begins, the time of some
evaluations, and begins with a step of length one, whatever a variable means. Here every variable comes with its scale,
and a step that promises too little is not taken.
"""

from collections import deque
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from wgpr.gp.linalg import Array, NotFactorizableError

# A step that gains less than this many nats is not worth its time, nor its drift: on a stationary stream,
# pseudo-inputs that wander for nothing lose more than they find.
MIN_GAIN = 0.05

# Pairs of steps and changes of the gradient that tell the curvature.
_MEMORY = 10

# A step must gain this part of what the slope promises, or it is shortened, by these factors, so often.
_SUFFICIENT = 1e-4
_SHORTENED = (0.05, 0.5)
_MOST_ATTEMPTS = 20

# Before a step has told the curvature, a promise may be so much too small.
_UNSURE = 0.02

# A step that gains this part of what its slope promises is on a straight way, and is lengthened, so often.
_STRAIGHT = 0.8
_LENGTHENED = 10.0
_MOST_LENGTHENINGS = 3

Objective = Callable[[Array], tuple[float, Array]]
_Found = tuple[Array, float, Array, bool]


def maximize_lbfgs(
    objective: Objective, start: Array, box: Array, scale: Array, max_iter: int, worthwhile: float = MIN_GAIN
) -> Array:
    """The best point that is visited, never worse than the start.

    Parameters
    ----------
    objective : value and gradient (n,) at a point (n,); to be maximised. A point that cannot be
        factorised, or is not finite, counts as infinitely bad.
    start : (n,), clipped into box : (2, n).
    scale : (n,) how far it is to the top, about, in each variable.
    worthwhile : gain of a step that is worth its time.
    """
    point = start.clip(*box)
    value, gradient = _evaluated(objective, point)
    curvature = _Curvature(scale**2)
    for _ in range(max_iter):
        is_free = _is_free(point, gradient, box)
        direction = np.where(is_free, curvature.newton_step(np.where(is_free, gradient, 0.0)), 0.0)
        promised = 0.5 * (gradient @ direction)  # by a step to the top of a parabola
        if promised < (worthwhile if curvature.is_known else _UNSURE * worthwhile):
            break
        found = _line_search(objective, point, value, gradient, direction, box)
        if found is not None and not curvature.is_known:
            found = _lengthened(objective, point, value, gradient, found, box)
        if found is None:
            if not curvature.forget():
                break
            continue
        new_point, new_value, new_gradient, is_bent = found
        curvature.learn(new_point - point, gradient - new_gradient)
        gain, point, value, gradient = new_value - value, new_point, new_value, new_gradient
        if gain < worthwhile and not is_bent:
            break
    return point


def _evaluated(objective: Objective, point: Array) -> tuple[float, Array]:
    try:
        value, gradient = objective(point)
    except NotFactorizableError:
        return -np.inf, np.zeros_like(point)
    if not (np.isfinite(value) and np.isfinite(gradient).all()):
        return -np.inf, np.zeros_like(point)
    return value, gradient


def _is_free(point: Array, gradient: Array, box: Array) -> NDArray[np.bool_]:
    """Which variables are not pressed against a wall."""
    return ~(((point <= box[0]) & (gradient < 0.0)) | ((point >= box[1]) & (gradient > 0.0)))


def _line_search(
    objective: Objective, point: Array, value: float, gradient: Array, direction: Array, box: Array
) -> _Found | None:
    """A better point along the direction, value and gradient there, and whether a wall bent the way; or None."""
    length = 1.0
    for _ in range(_MOST_ATTEMPTS):
        straight = point + length * direction
        new_point = straight.clip(*box)
        slope = float(gradient @ (new_point - point))
        new_value, new_gradient = _evaluated(objective, new_point)
        if new_value >= value + _SUFFICIENT * slope and new_value > value:
            return new_point, new_value, new_gradient, bool((new_point != straight).any())
        length *= _shortening(slope, new_value - value)
        if length > (room := _room(point, direction, box)) > 0.0:  # a bent way may leave the ridge: go straight
            length = room
    return None


def _lengthened(objective: Objective, point: Array, value: float, gradient: Array, found: _Found, box: Array) -> _Found:
    """The step that was found, or a longer one that is better: where it is flat, the scales are too short."""
    for _ in range(_MOST_LENGTHENINGS):
        step = found[0] - point
        part = (found[1] - value) / float(gradient @ step)  # 1 - half the way to the top of a parabola
        if part < _STRAIGHT:
            break
        straight = point + min(_LENGTHENED, 0.5 / max(1.0 - part, 1e-3)) * step
        new_point = straight.clip(*box)
        new_value, new_gradient = _evaluated(objective, new_point)
        if new_value <= found[1]:
            break
        found = new_point, new_value, new_gradient, bool((new_point != straight).any())
    return found


def _room(point: Array, direction: Array, box: Array) -> float:
    """How far the way along the direction is straight, as part of it."""
    ahead = np.where(direction > 0.0, box[1], box[0]) - point
    with np.errstate(divide="ignore", invalid="ignore"):
        return float(np.where(direction != 0.0, ahead / direction, np.inf).min(initial=np.inf))


def _shortening(slope: float, gain: float) -> float:
    """Where the parabola with this slope that leads to such a (small) gain has its top."""
    least, most = _SHORTENED
    if not np.isfinite(gain):
        return least
    return float(np.clip(0.5 * slope / (slope - gain), least, most)) if slope > gain else most


class _Curvature:
    """The inverse of the negative Hessian, as far as gradients have told it (Nocedal and Wright, algorithm 7.4)."""

    def __init__(self, initial: Array) -> None:
        self._initial = initial
        self._factor = 1.0
        self._pairs: deque[tuple[Array, Array, float]] = deque(maxlen=_MEMORY)

    def learn(self, step: Array, change: Array) -> None:
        """That the gradient fell by `change` (n,) along `step` (n,). What is not concave there tells nothing."""
        product = float(step @ change)
        scaled = float(change @ (self._initial * change))
        if product > 1e-8 * scaled:
            self._pairs.append((step, change, 1.0 / product))
            self._factor = product / scaled

    @property
    def is_known(self) -> bool:
        """Or only guessed from the scales."""
        return bool(self._pairs)

    def forget(self) -> bool:
        """All but the scales; whether there was anything to forget."""
        had_learned = self.is_known
        self._pairs.clear()
        self._factor = 1.0
        return had_learned

    def newton_step(self, gradient: Array) -> Array:
        """The gradient (n,) times the inverse."""
        direction = gradient.copy()
        shares = []
        for step, change, weight in reversed(self._pairs):
            share = weight * (step @ direction)
            shares.append(share)
            direction -= share * change
        direction *= self._factor * self._initial
        for (step, change, weight), share in zip(self._pairs, reversed(shares), strict=True):
            direction += (share - weight * (change @ direction)) * step
        return direction
