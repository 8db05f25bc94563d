"""Climbing: inside the box, never down, to the top that SciPy finds, and only as long as it pays."""

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize

from reference import ALL_KERNELS, select_by_variance, waves
from wgpr.gp import optimize
from wgpr.gp.bound import Observations
from wgpr.gp.hyperparameters import LENGTHSCALE_FACTORS, Prior, Scales, default_hyperparameters
from wgpr.gp.linalg import NotFactorizableError
from wgpr.gp.optimize import MIN_GAIN, maximize_lbfgs

# Evaluations that an iteration may take, at the most.
PER_ITERATION = 20

seeds = st.integers(0, 2**32 - 1)


@dataclass
class Hill:
    """A concave parabola `-1/2 (v - top)^T H (v - top)`, and what was asked of it.

    box, start : to climb in, and from; scale : how far the top is, about, for a step of one nat.
    """

    H: np.ndarray
    top: np.ndarray
    box: np.ndarray
    start: np.ndarray
    visited: list = field(default_factory=list)

    def __call__(self, v):
        self.visited.append(v.copy())
        downhill = self.H @ (v - self.top)
        return -0.5 * float((v - self.top) @ downhill), -downhill

    @property
    def scale(self):
        return 1.0 / np.sqrt(self.H.diagonal())

    @cached_property
    def height(self):
        """Of the constrained top."""
        result = minimize(
            lambda v: tuple(-part for part in self(v)),
            self.start.clip(*self.box),
            jac=True,
            method="L-BFGS-B",
            bounds=self.box.T,
            options={"maxiter": 2000, "maxfun": 10_000, "ftol": 1e-15, "gtol": 1e-10},
        )
        return -result.fun


def random_hill(seed, n=None, condition=10.0):
    """In variables of very different units, with a box whose walls are in the way of about every other variable."""
    rng = np.random.default_rng(seed)
    n = n or int(rng.integers(1, 11))
    units, (Q, _) = np.exp(rng.uniform(-3, 3, n)), np.linalg.qr(rng.normal(size=(n, n)))
    H = (Q * np.geomspace(1.0, condition, n)) @ Q.T / np.outer(units, units)
    top, start = 3.0 * units * rng.normal(size=(2, n))
    half_way, room = (start + top) / 2, units * rng.uniform(0, 2, (2, n))
    return Hill(H, top, np.stack([np.minimum(start, half_way) - room[0], np.maximum(start, half_way) + room[1]]), start)


def rosenbrock(v):
    """A curved ridge that gets higher slowly: Rosenbrock's valley, upside down, in two dimensions or more."""
    x, y = v[:-1], v[1:]
    gradient = np.zeros(len(v))
    gradient[:-1] += 2 * (1 - x) + 400 * x * (y - x**2)
    gradient[1:] -= 200 * (y - x**2)
    return -float(np.sum((1 - x) ** 2 + 100 * (y - x**2) ** 2)), gradient


class Watched:
    """An objective, the points where it was asked, and the best value that it told."""

    def __init__(self, objective):
        self.objective, self.visited, self.values = objective, [], []

    def __call__(self, v):
        self.visited.append(v.copy())
        value, gradient = self.objective(v)
        self.values.append(value)
        return value, gradient


def assert_inside(points, box):
    assert ((box[0] <= points) & (points <= box[1])).all()


# Wherever it goes


@given(seeds, st.floats(0, 8), st.floats(-3, 3), st.integers(0, 30), st.sampled_from([0.0, 1e-6, MIN_GAIN, 10.0]))
def test_a_climb_stays_in_the_box_and_ends_at_the_best_point_that_it_saw(seed, digits, off, max_iter, worthwhile):
    """Parabolas with condition numbers up to 1e8, and scales that are wrong by up to 1000 times."""
    hill = random_hill(seed, condition=10.0**digits)
    objective = Watched(hill)
    end = maximize_lbfgs(objective, hill.start, hill.box, 10.0**off * hill.scale, max_iter, worthwhile)
    assert_inside(np.array([end, *objective.visited]), hill.box)
    np.testing.assert_array_equal(objective.visited[0], hill.start.clip(*hill.box))
    assert hill(end)[0] == max(objective.values)
    assert len(objective.visited) <= 1 + PER_ITERATION * max_iter


@given(seeds, st.integers(2, 5), st.floats(-3, 3))
def test_nor_does_it_leave_the_box_or_end_lower_on_a_curved_ridge(seed, n, off):
    rng = np.random.default_rng(seed)
    box, objective = np.sort(rng.uniform(-2, 2, (2, n)), axis=0), Watched(rosenbrock)
    end = maximize_lbfgs(objective, rng.uniform(-3, 3, n), box, np.full(n, 10.0**off), max_iter=20)
    assert_inside(np.array([end, *objective.visited]), box)
    assert rosenbrock(end)[0] == max(objective.values)


def test_a_curved_ridge_is_climbed_to_its_end():
    end = maximize_lbfgs(
        rosenbrock, np.array([-1.2, 1.0]), np.array([[-2.0, -2.0], [2.0, 2.0]]), np.full(2, 0.1), 200, 1e-9
    )
    np.testing.assert_allclose(end, [1.0, 1.0], atol=1e-3)


def test_a_start_outside_of_the_box_is_moved_to_its_wall():
    hill = random_hill(0, n=5)
    outside = hill.start + 10.0 * (hill.box[1] - hill.box[0])
    np.testing.assert_array_equal(maximize_lbfgs(hill, outside, hill.box, hill.scale, max_iter=0), hill.box[1])
    np.testing.assert_array_equal(hill.visited[0], hill.box[1])


def test_a_climb_leaves_what_it_was_given_as_it_was():
    hill = random_hill(0, n=5)
    given = hill.start + 1.0, hill.box, hill.scale
    copies = [array.copy() for array in given]
    for max_iter in (0, 20):
        end = maximize_lbfgs(hill, *given, max_iter)
        assert not np.shares_memory(end, given[0])
        for array, copy in zip(given, copies, strict=True):
            np.testing.assert_array_equal(array, copy)


# To the top


@pytest.mark.parametrize(("n", "condition"), [(1, 1.0), (2, 10.0), (5, 1.0), (5, 10.0), (5, 100.0), (20, 10.0)])
def test_the_top_of_a_parabola_in_a_box_is_found_to_within_what_is_worthwhile(n, condition):
    """What is left after a step that gained so little is more than it, but not much: the worst of 30 parabolas."""
    for seed in range(30):
        hill = random_hill(seed, n, condition)
        end = maximize_lbfgs(hill, hill.start, hill.box, hill.scale, max_iter=100, min_gain=1e-6)
        assert hill.height - hill(end)[0] < 3e-5


@pytest.mark.parametrize(("n", "condition"), [(1, 1.0), (2, 10.0), (5, 10.0), (20, 10.0)])
def test_by_default_that_is_a_twentieth_of_a_nat_on_average(n, condition):
    left = []
    for seed in range(30):
        hill = random_hill(seed, n, condition)
        left.append(hill.height - hill(maximize_lbfgs(hill, hill.start, hill.box, hill.scale, max_iter=100))[0])
    assert np.mean(left) < MIN_GAIN
    assert np.max(left) < 10 * MIN_GAIN


@pytest.mark.parametrize("off", [1e-3, 1e-2, 0.1, 10.0, 100.0, 1000.0])
def test_a_bad_scale_does_not_keep_it_from_the_top(off):
    for seed in range(50):
        hill = random_hill(seed, 5)
        end = maximize_lbfgs(hill, hill.start, hill.box, off * hill.scale, max_iter=100, min_gain=1e-6)
        assert hill.height - hill(end)[0] < 3e-5, f"of parabola {seed}"


@pytest.mark.parametrize("off", [0.1, 10.0, 100.0, 1000.0])
def test_a_bad_scale_does_not_make_it_give_up_where_much_is_to_be_gained(off):
    """Where a scale is a hundred times too small, though, the first step promises too little to be tried."""
    for seed in range(50):
        hill = random_hill(seed, 5)
        end = maximize_lbfgs(hill, hill.start, hill.box, off * hill.scale, max_iter=100)
        to_gain = hill.height - hill(hill.start)[0]
        assert hill.height - hill(end)[0] < max(0.5, 0.02 * to_gain), f"of parabola {seed}"


def test_a_wall_that_is_near_does_not_hold_it():
    """Two variables that depend on each other: the way up leads along the wall, and the shortest way to it into it."""
    for seed in range(200):
        hill = random_hill(seed, 2, condition=1e3)
        end = maximize_lbfgs(hill, hill.start, hill.box, hill.scale, max_iter=500, min_gain=1e-6)
        assert hill.height - hill(end)[0] < 1e-2, f"of parabola {seed}"


# Walls


def test_a_variable_against_a_wall_stays_there():
    """The top is beyond the wall of the first variable; the second is free, and depends on the first."""
    H = np.array([[2.0, 0.5], [0.5, 1.0]])
    hill = Hill(H, np.array([5.0, 3.0]), np.array([[-1.0, -10.0], [1.0, 10.0]]), np.array([1.0, -4.0]))
    end = maximize_lbfgs(hill, hill.start, hill.box, hill.scale, max_iter=50, min_gain=1e-9)
    assert {point[0] for point in hill.visited} == {1.0}
    np.testing.assert_allclose(end, [1.0, 3.0 + 0.5 * 4.0], atol=1e-4)


def test_a_variable_comes_back_from_a_wall_when_its_gradient_turns():
    """At the start the first variable is pressed against its wall; where the second one ends, it is not any more."""
    H = np.array([[1.0, -0.8], [-0.8, 1.0]])
    hill = Hill(H, np.array([2.0, 2.0]), np.array([[0.0, -10.0], [5.0, 10.0]]), np.array([0.0, -6.0]))
    assert hill(hill.start)[1][0] < 0
    end = maximize_lbfgs(hill, hill.start, hill.box, hill.scale, max_iter=50, min_gain=1e-9)
    assert hill.visited[2][0] == 0.0
    np.testing.assert_allclose(end, [2.0, 2.0], atol=1e-4)


def test_a_box_without_room_is_one_point():
    hill = random_hill(0, n=3)
    point = np.stack([hill.start, hill.start])
    np.testing.assert_array_equal(maximize_lbfgs(hill, hill.start, point, hill.scale, max_iter=20), hill.start)


# Where there is no value

FAILURES = {
    "cannot be factorised": None,
    "nan": (np.nan, np.zeros(2)),
    "minus infinity": (-np.inf, np.zeros(2)),
    "plus infinity": (np.inf, np.zeros(2)),
    "a gradient of nan": (1e9, np.array([0.0, np.nan])),
    "a gradient of infinity": (1e9, np.array([np.inf, 0.0])),
}
every_failure = pytest.mark.parametrize("failure", FAILURES.values(), ids=FAILURES)
WIDE = np.array([[-10.0, -10.0], [10.0, 10.0]])


class Pitted:
    """A parabola with its top at the origin, and places where it has no value."""

    def __init__(self, is_pit, failure):
        self.is_pit, self.failure, self.n_pits, self.n_asked = is_pit, failure, 0, 0

    def __call__(self, v):
        self.n_asked += 1
        if not self.is_pit(v):
            return -0.5 * float(v @ v), -v
        self.n_pits += 1
        if self.failure is None:
            raise NotFactorizableError("a pit")
        return self.failure


@every_failure
def test_a_start_without_a_value_is_where_it_ends(failure):
    objective = Pitted(lambda v: True, failure)
    start = np.array([3.0, -4.0])
    np.testing.assert_array_equal(maximize_lbfgs(objective, start, WIDE, np.ones(2), max_iter=20), start)
    assert objective.n_asked <= 1 + PER_ITERATION


@every_failure
def test_a_step_into_a_pit_is_shortened(failure):
    """On the way to the top the ground falls away: the climb gets near to the edge, though its first step is beyond."""
    objective = Pitted(lambda v: v[0] < 2.0, failure)
    end = maximize_lbfgs(objective, np.array([6.0, 8.0]), WIDE, np.full(2, 0.9), max_iter=20)
    assert objective.n_pits > 0
    assert end[0] >= 2.0
    assert -0.5 * end @ end > -40.0  # of 50 at the start


@given(seeds, st.sampled_from(list(FAILURES.values())))
def test_pits_everywhere_are_survived(seed, failure):
    """Half of all points, in stripes."""
    rng = np.random.default_rng(seed)
    direction, start = rng.normal(size=2), rng.uniform(-10, 10, 2)
    objective = Pitted(lambda v: np.sin(5.0 * direction @ v) > 0, failure)
    end = maximize_lbfgs(objective, start, WIDE, np.ones(2), max_iter=10)
    assert_inside(end, WIDE)
    assert end @ end <= start @ start
    assert (end == start).all() or not objective.is_pit(end)


def test_other_errors_are_not_hidden():
    def broken(v):
        raise ZeroDivisionError("of the objective")

    with pytest.raises(ZeroDivisionError):
        maximize_lbfgs(broken, np.zeros(2), WIDE, np.ones(2), max_iter=5)


# Only as long as it pays


def test_nothing_is_tried_where_nothing_is_to_be_gained():
    hill = random_hill(0, n=3)
    at_top = maximize_lbfgs(hill, hill.top, np.stack([hill.top - 1, hill.top + 1]), hill.scale, max_iter=20)
    np.testing.assert_array_equal(at_top, hill.top)
    assert len(hill.visited) == 1


@pytest.mark.parametrize(("to_gain", "is_climbed"), [(0.01 * MIN_GAIN, False), (2.0 * MIN_GAIN, True)])
def test_a_step_is_taken_only_if_it_promises_what_is_worthwhile(to_gain, is_climbed):
    hill = Hill(np.diag([4.0, 0.25]), np.zeros(2), WIDE, np.array([np.sqrt(to_gain / 4.0), np.sqrt(to_gain / 0.25)]))
    assert hill(hill.start)[0] == pytest.approx(-to_gain)
    end = maximize_lbfgs(hill, hill.start, hill.box, hill.scale, max_iter=20)
    assert (hill(end)[0] > -to_gain) == is_climbed
    assert (len(hill.visited) > 3) == is_climbed


def test_it_ends_with_the_first_step_that_was_not_worthwhile():
    """Of the values on the way up, only the last may be so little above the one before; a wall is another matter."""
    for seed in range(20):
        hill, no_walls = random_hill(seed, 10, condition=100.0), np.array([[-np.inf] * 10, [np.inf] * 10])
        objective = Watched(hill)
        maximize_lbfgs(objective, hill.start, no_walls, hill.scale, max_iter=100, min_gain=1.0)
        best_so_far = np.maximum.accumulate(objective.values)
        gains = np.diff(np.unique(best_so_far))
        assert (gains[:-1] >= 1.0).all()


def test_who_asks_for_less_evaluates_more():
    n_asked = []
    for worthwhile in (10.0, 0.1, 1e-6):
        hills = [random_hill(seed, 10, condition=100.0) for seed in range(10)]
        for hill in hills:
            maximize_lbfgs(hill, hill.start, hill.box, hill.scale, max_iter=100, min_gain=worthwhile)
        n_asked.append(sum(len(hill.visited) for hill in hills))
    assert n_asked[0] < n_asked[1] < n_asked[2]


@pytest.mark.parametrize("max_iter", [0, 1, 2, 5])
def test_it_takes_no_more_iterations_than_it_may(max_iter):
    """Each ends at a higher point: on a long ridge there are as many as are allowed."""
    start, box = np.array([-1.2, 1.0]), np.array([[-2.0, -2.0], [2.0, 2.0]])
    objective = Watched(rosenbrock)
    maximize_lbfgs(objective, start, box, np.full(2, 0.01), max_iter, min_gain=0.0)
    n_steps = len(np.unique(np.maximum.accumulate(objective.values))) - 1
    n_lengthenings = 1 if max_iter else 0  # of the first step, whose scale is too short
    assert n_steps == max_iter + n_lengthenings
    assert len(objective.visited) <= 1 + PER_ITERATION * max_iter


# The bound


def climbed_by_scipy(objective, start, box, scale, max_iter, min_gain=MIN_GAIN):
    """What `climb` was before: L-BFGS-B, until an iteration gains less than what is worthwhile."""
    best, previous = (-np.inf, start.clip(*box)), np.inf

    def loss(v):
        nonlocal best
        try:
            value, gradient = objective(v)
        except NotFactorizableError:
            return np.inf, np.zeros_like(v)
        best = max(best, (value, v.copy()), key=lambda each: each[0])
        return -value, -gradient

    def stop_when_not_worthwhile(intermediate_result):
        nonlocal previous
        gain, previous = previous - intermediate_result.fun, intermediate_result.fun
        if gain < worthwhile:
            raise StopIteration

    options = {"maxiter": max_iter, "maxfun": 2 * max_iter}
    settings = {"jac": True, "method": "L-BFGS-B", "bounds": box.T, "options": options}
    minimize(loss, best[1], callback=stop_when_not_worthwhile, **settings)
    return best[1]


def best_bound(kernel, d, stretch, learn_inputs):
    """The bound, with the prior, that climbing ends at, and how often it was computed."""
    rng = np.random.default_rng(d)
    X = select_by_variance(60, d, rng)
    y = waves(X, rng)
    y, scales = y - y.mean(), Scales.of(X, y, y.mean())
    observations, prior = Observations(kernel, X, y), Prior.of_new_model(kernel, scales)
    theta, Z = default_hyperparameters(kernel, scales, stretch), X[rng.choice(60, 12, replace=False)]
    fit = optimize.maximize_bound(observations, theta, Z, scales, prior, max_iter=40, learn_inputs=learn_inputs)
    return fit.value + prior.log_density(fit.theta.to_log())[0], observations.n_fits


WORLDS = [(kernel, d, stretch) for kernel in ALL_KERNELS for d in (1, 2) for stretch in LENGTHSCALE_FACTORS]


@pytest.mark.parametrize("learn_inputs", [False, True], ids=["hyperparameters", "pseudo-inputs too"])
def test_the_bound_is_climbed_as_high_as_by_scipy_and_computed_less_often(learn_inputs, monkeypatch):
    ours, n_ours = np.transpose([best_bound(*world, learn_inputs) for world in WORLDS])
    monkeypatch.setattr(search, "climb", climbed_by_scipy)
    scipys, n_scipys = np.transpose([best_bound(*world, learn_inputs) for world in WORLDS])
    assert n_ours.sum() < n_scipys.sum()
    assert np.mean(ours - scipys) > -0.5
    if not learn_inputs:  # pseudo-inputs have many hills, and each finds the higher one about as often
        assert np.min(ours - scipys) > -0.5
