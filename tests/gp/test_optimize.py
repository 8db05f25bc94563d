"""L-BFGS in a box: it stays inside, never ends lower, finds the maximum that SciPy finds, and stops early."""

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize

from reference import ALL_KERNELS, separated_points, waves
from wgpr.gp import optimize
from wgpr.gp.bound import Observations
from wgpr.gp.hyperparameters import LENGTHSCALE_FACTORS, HyperPrior, Scales, default_hyperparameters
from wgpr.gp.linalg import NotFactorizableError
from wgpr.gp.optimize import MIN_GAIN, _InverseHessian, maximize_lbfgs

# Evaluations that an iteration may take, at the most.
PER_ITERATION = 20

seeds = st.integers(0, 2**32 - 1)


@dataclass
class Hill:
    """A concave parabola `-1/2 (v - top)^T H (v - top)`, and the points where it was evaluated.

    box, start : where to maximise it; scale : typical distance to the top in each variable.
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
    """A parabola in variables of very different units; the box bounds about every other variable."""
    rng = np.random.default_rng(seed)
    n = n or int(rng.integers(1, 11))
    units, (Q, _) = np.exp(rng.uniform(-3, 3, n)), np.linalg.qr(rng.normal(size=(n, n)))
    H = (Q * np.geomspace(1.0, condition, n)) @ Q.T / np.outer(units, units)
    top, start = 3.0 * units * rng.normal(size=(2, n))
    half_way, room = (start + top) / 2, units * rng.uniform(0, 2, (2, n))
    return Hill(H, top, np.stack([np.minimum(start, half_way) - room[0], np.maximum(start, half_way) + room[1]]), start)


def rosenbrock(v):
    """Minus Rosenbrock's function in two dimensions or more: a curved ridge."""
    x, y = v[:-1], v[1:]
    gradient = np.zeros(len(v))
    gradient[:-1] += 2 * (1 - x) + 400 * x * (y - x**2)
    gradient[1:] -= 200 * (y - x**2)
    return -float(np.sum((1 - x) ** 2 + 100 * (y - x**2) ** 2)), gradient


class Watched:
    """An objective that records its points and values."""

    def __init__(self, objective):
        self.objective, self.visited, self.values = objective, [], []

    def __call__(self, v):
        self.visited.append(v.copy())
        value, gradient = self.objective(v)
        self.values.append(value)
        return value, gradient


def assert_inside(points, box):
    assert ((box[0] <= points) & (points <= box[1])).all()


# On any objective


@given(seeds, st.floats(0, 8), st.floats(-3, 3), st.integers(0, 30), st.sampled_from([0.0, 1e-6, MIN_GAIN, 10.0]))
def test_parabolas_are_maximised_inside_the_box_and_never_downhill(seed, digits, off, max_iter, min_gain):
    """Parabolas with condition numbers up to 1e8, and scales that are wrong by up to 1000 times."""
    hill = random_hill(seed, condition=10.0**digits)
    objective = Watched(hill)
    end = maximize_lbfgs(objective, hill.start, hill.box, 10.0**off * hill.scale, max_iter, min_gain)
    assert_inside(np.array([end, *objective.visited]), hill.box)
    np.testing.assert_array_equal(objective.visited[0], hill.start.clip(*hill.box))
    assert hill(end)[0] == max(objective.values)
    assert len(objective.visited) <= 1 + PER_ITERATION * max_iter


@given(seeds, st.integers(2, 5), st.floats(-3, 3))
def test_a_curved_ridge_is_climbed_inside_the_box_and_never_downhill(seed, n, off):
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


def test_a_start_outside_of_the_box_is_moved_to_its_bound():
    hill = random_hill(0, n=5)
    outside = hill.start + 10.0 * (hill.box[1] - hill.box[0])
    np.testing.assert_array_equal(maximize_lbfgs(hill, outside, hill.box, hill.scale, max_iter=0), hill.box[1])
    np.testing.assert_array_equal(hill.visited[0], hill.box[1])


def test_arguments_are_not_changed():
    hill = random_hill(0, n=5)
    given = hill.start + 1.0, hill.box, hill.scale
    copies = [array.copy() for array in given]
    for max_iter in (0, 20):
        end = maximize_lbfgs(hill, *given, max_iter)
        assert not np.shares_memory(end, given[0])
        for array, copy in zip(given, copies, strict=True):
            np.testing.assert_array_equal(array, copy)


class Hills:
    """An objective with many maxima, which cannot be evaluated beyond an edge."""

    def __init__(self, edge):
        self.edge, self.seen, self.n_falls = edge, [], 0

    def __call__(self, v):
        if v[0] > self.edge:
            self.n_falls += 1
            raise NotFactorizableError("beyond the edge")
        self.seen.append(float(3 * np.cos(9 * v).sum() - v @ v))
        return self.seen[-1], -27 * np.sin(9 * v) - 2 * v


def test_the_best_of_all_visited_points_is_returned():
    box, rng = np.array([[-2.0, -3.0, -4.0], [4.0, 3.0, 2.0]]), np.random.default_rng(0)
    n_falls = n_overshot = 0
    for start, scale in zip(rng.uniform(-5, 5, (100, 3)), np.geomspace(0.01, 10.0, 100), strict=True):
        start_in_box = start.clip(*box)
        hills = Hills(edge=max(1.0, start_in_box[0]))
        top = maximize_lbfgs(hills, start, box, np.full(3, scale), max_iter=2)
        best, last = max(hills.seen), hills.seen[-1]
        assert ((box[0] <= top) & (top <= box[1])).all()
        assert hills.seen[0] == hills(start_in_box)[0]
        assert hills(top)[0] == best
        n_falls, n_overshot = n_falls + hills.n_falls, n_overshot + (last < best)
    assert min(n_falls, n_overshot) > 0  # or this would show nothing


# To the maximum


@pytest.mark.parametrize(("n", "condition"), [(1, 1.0), (2, 10.0), (5, 1.0), (5, 10.0), (5, 100.0), (20, 10.0)])
def test_the_maximum_of_a_parabola_in_a_box_is_found(n, condition):
    """Within 30 times the least gain of a step, for the worst of 30 parabolas."""
    for seed in range(30):
        hill = random_hill(seed, n, condition)
        end = maximize_lbfgs(hill, hill.start, hill.box, hill.scale, max_iter=100, min_gain=1e-6)
        assert hill.height - hill(end)[0] < 3e-5


@pytest.mark.parametrize(("n", "condition"), [(1, 1.0), (2, 10.0), (5, 10.0), (20, 10.0)])
def test_by_default_a_twentieth_of_a_nat_is_left_on_average(n, condition):
    left = []
    for seed in range(30):
        hill = random_hill(seed, n, condition)
        left.append(hill.height - hill(maximize_lbfgs(hill, hill.start, hill.box, hill.scale, max_iter=100))[0])
    assert np.mean(left) < MIN_GAIN
    assert np.max(left) < 10 * MIN_GAIN


@pytest.mark.parametrize("off", [1e-3, 1e-2, 0.1, 10.0, 100.0, 1000.0])
def test_the_maximum_is_found_with_wrong_scales(off):
    for seed in range(50):
        hill = random_hill(seed, 5)
        end = maximize_lbfgs(hill, hill.start, hill.box, off * hill.scale, max_iter=100, min_gain=1e-6)
        assert hill.height - hill(end)[0] < 3e-5, f"of parabola {seed}"


@pytest.mark.parametrize("off", [0.1, 10.0, 100.0, 1000.0])
def test_wrong_scales_do_not_stop_the_search_early(off):
    """Scales that are a hundred times too small are left out: the first step then promises too little."""
    for seed in range(50):
        hill = random_hill(seed, 5)
        end = maximize_lbfgs(hill, hill.start, hill.box, off * hill.scale, max_iter=100)
        to_gain = hill.height - hill(hill.start)[0]
        assert hill.height - hill(end)[0] < max(0.5, 0.02 * to_gain), f"of parabola {seed}"


def test_the_search_goes_on_along_a_bound():
    """Two correlated variables: the direction of steepest ascent leads into the bound, the way up along it."""
    for seed in range(200):
        hill = random_hill(seed, 2, condition=1e3)
        end = maximize_lbfgs(hill, hill.start, hill.box, hill.scale, max_iter=500, min_gain=1e-6)
        assert hill.height - hill(end)[0] < 1e-2, f"of parabola {seed}"


# Bounds


def test_a_variable_stays_at_its_bound():
    """The top is beyond the bound of the first variable; the second is free, and correlated with it."""
    H = np.array([[2.0, 0.5], [0.5, 1.0]])
    hill = Hill(H, np.array([5.0, 3.0]), np.array([[-1.0, -10.0], [1.0, 10.0]]), np.array([1.0, -4.0]))
    end = maximize_lbfgs(hill, hill.start, hill.box, hill.scale, max_iter=50, min_gain=1e-9)
    assert {point[0] for point in hill.visited} == {1.0}
    np.testing.assert_allclose(end, [1.0, 3.0 + 0.5 * 4.0], atol=1e-4)


def test_a_variable_leaves_its_bound_when_its_gradient_turns():
    """The gradient points out of the box at the start, and into it where the second variable ends."""
    H = np.array([[1.0, -0.8], [-0.8, 1.0]])
    hill = Hill(H, np.array([2.0, 2.0]), np.array([[0.0, -10.0], [5.0, 10.0]]), np.array([0.0, -6.0]))
    assert hill(hill.start)[1][0] < 0
    end = maximize_lbfgs(hill, hill.start, hill.box, hill.scale, max_iter=50, min_gain=1e-9)
    assert hill.visited[2][0] == 0.0
    np.testing.assert_allclose(end, [2.0, 2.0], atol=1e-4)


def test_in_a_box_of_one_point_that_is_the_result():
    hill = random_hill(0, n=3)
    point = np.stack([hill.start, hill.start])
    np.testing.assert_array_equal(maximize_lbfgs(hill, hill.start, point, hill.scale, max_iter=20), hill.start)


# Points without a value

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
    """A parabola with its top at the origin, and regions where it has no value."""

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
def test_a_start_without_a_value_is_returned(failure):
    objective = Pitted(lambda v: True, failure)
    start = np.array([3.0, -4.0])
    np.testing.assert_array_equal(maximize_lbfgs(objective, start, WIDE, np.ones(2), max_iter=20), start)
    assert objective.n_asked <= 1 + PER_ITERATION


@every_failure
def test_a_step_to_a_point_without_a_value_is_shortened(failure):
    """The first step goes beyond the edge; the search ends close to it."""
    objective = Pitted(lambda v: v[0] < 2.0, failure)
    end = maximize_lbfgs(objective, np.array([6.0, 8.0]), WIDE, np.full(2, 0.9), max_iter=20)
    assert objective.n_pits > 0
    assert end[0] >= 2.0
    assert -0.5 * end @ end > -40.0  # of 50 at the start


@given(seeds, st.sampled_from(list(FAILURES.values())))
def test_half_of_all_points_may_be_without_a_value(seed, failure):
    """In stripes."""
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


# Stopping


def test_at_the_maximum_only_the_start_is_evaluated():
    hill = random_hill(0, n=3)
    at_top = maximize_lbfgs(hill, hill.top, np.stack([hill.top - 1, hill.top + 1]), hill.scale, max_iter=20)
    np.testing.assert_array_equal(at_top, hill.top)
    assert len(hill.visited) == 1


@pytest.mark.parametrize(("to_gain", "is_climbed"), [(0.01 * MIN_GAIN, False), (2.0 * MIN_GAIN, True)])
def test_a_step_is_taken_only_if_it_promises_the_least_gain(to_gain, is_climbed):
    hill = Hill(np.diag([4.0, 0.25]), np.zeros(2), WIDE, np.array([np.sqrt(to_gain / 4.0), np.sqrt(to_gain / 0.25)]))
    assert hill(hill.start)[0] == pytest.approx(-to_gain)
    end = maximize_lbfgs(hill, hill.start, hill.box, hill.scale, max_iter=20)
    assert (hill(end)[0] > -to_gain) == is_climbed
    assert (len(hill.visited) > 3) == is_climbed


def test_the_inverse_hessian_returns_to_its_scales():
    hessian, gradient = _InverseHessian(np.array([4.0, 9.0])), np.array([1.0, -2.0])
    np.testing.assert_array_equal(hessian.times(gradient), [4.0, -18.0])
    hessian.learn(np.array([1.0, 0.0]), np.array([0.5, 0.1]))
    assert abs(hessian.times(gradient) - [4.0, -18.0]).min() > 0.1
    hessian.reset()
    np.testing.assert_array_equal(hessian.times(gradient), [4.0, -18.0])


def test_the_search_ends_with_the_first_step_below_the_least_gain():
    """Without bounds; a step that a bound cut short does not count."""
    for seed in range(20):
        hill, no_bounds = random_hill(seed, 10, condition=100.0), np.array([[-np.inf] * 10, [np.inf] * 10])
        objective = Watched(hill)
        maximize_lbfgs(objective, hill.start, no_bounds, hill.scale, max_iter=100, min_gain=1.0)
        best_so_far = np.maximum.accumulate(objective.values)
        gains = np.diff(np.unique(best_so_far))
        assert (gains[:-1] >= 1.0).all()


def test_a_smaller_least_gain_takes_more_evaluations():
    n_asked = []
    for min_gain in (10.0, 0.1, 1e-6):
        hills = [random_hill(seed, 10, condition=100.0) for seed in range(10)]
        for hill in hills:
            maximize_lbfgs(hill, hill.start, hill.box, hill.scale, max_iter=100, min_gain=min_gain)
        n_asked.append(sum(len(hill.visited) for hill in hills))
    assert n_asked[0] < n_asked[1] < n_asked[2]


@pytest.mark.parametrize("max_iter", [0, 1, 2, 5])
def test_there_are_at_most_max_iter_iterations(max_iter):
    """On a long ridge every iteration ends at a higher point, so that all are taken."""
    start, box = np.array([-1.2, 1.0]), np.array([[-2.0, -2.0], [2.0, 2.0]])
    objective = Watched(rosenbrock)
    maximize_lbfgs(objective, start, box, np.full(2, 0.01), max_iter, min_gain=0.0)
    n_steps = len(np.unique(np.maximum.accumulate(objective.values))) - 1
    n_lengthenings = 1 if max_iter else 0  # of the first step, whose scale is too short
    assert n_steps == max_iter + n_lengthenings
    assert len(objective.visited) <= 1 + PER_ITERATION * max_iter


# The bound


def maximized_by_scipy(objective, start, box, scale, max_iter, min_gain=MIN_GAIN):
    """SciPy's L-BFGS-B, until an iteration gains less than `min_gain`."""
    best, previous = (-np.inf, start.clip(*box)), np.inf

    def loss(v):
        nonlocal best
        try:
            value, gradient = objective(v)
        except NotFactorizableError:
            return np.inf, np.zeros_like(v)
        best = max(best, (value, v.copy()), key=lambda each: each[0])
        return -value, -gradient

    def stop_at_a_small_gain(intermediate_result):
        nonlocal previous
        gain, previous = previous - intermediate_result.fun, intermediate_result.fun
        if gain < min_gain:
            raise StopIteration

    options = {"maxiter": max_iter, "maxfun": 2 * max_iter}
    settings = {"jac": True, "method": "L-BFGS-B", "bounds": box.T, "options": options}
    minimize(loss, best[1], callback=stop_at_a_small_gain, **settings)
    return best[1]


def best_bound(kernel, d, stretch, learn_inputs):
    """The largest bound plus log prior that is found, and the number of evaluations."""
    rng = np.random.default_rng(d)
    X = separated_points(60, d, rng)
    y = waves(X, rng)
    y, scales = y - y.mean(), Scales.of(X, y, y.mean())
    observations, prior = Observations(kernel, X, y), HyperPrior.of_new_model(kernel, scales)
    theta, Z = default_hyperparameters(kernel, scales, stretch), X[rng.choice(60, 12, replace=False)]
    fit = optimize.maximize_bound(observations, theta, Z, scales, prior, max_iter=40, learn_inputs=learn_inputs)
    return fit.value + prior.log_density(fit.theta.to_log())[0], observations.n_fits


PROBLEMS = [(kernel, d, stretch) for kernel in ALL_KERNELS for d in (1, 2) for stretch in LENGTHSCALE_FACTORS]


@pytest.mark.parametrize("learn_inputs", [False, True], ids=["hyperparameters", "pseudo-inputs too"])
def test_the_bound_gets_as_large_as_by_scipy_with_fewer_evaluations(learn_inputs, monkeypatch):
    ours, n_ours = np.transpose([best_bound(*problem, learn_inputs) for problem in PROBLEMS])
    monkeypatch.setattr(optimize, "maximize_lbfgs", maximized_by_scipy)
    scipys, n_scipys = np.transpose([best_bound(*problem, learn_inputs) for problem in PROBLEMS])
    assert n_ours.sum() < n_scipys.sum()
    assert np.mean(ours - scipys) > -0.5
    if (
        not learn_inputs
    ):  # with pseudo-inputs there are many maxima, and each search finds the higher one about as often
        assert np.min(ours - scipys) > -0.5


def test_the_best_fit_is_returned_and_not_the_last(monkeypatch):
    def search(objective, start, *_):
        objective(start)
        objective(start + 3.0)  # a step that is not taken
        return start

    monkeypatch.setattr(optimize, "maximize_lbfgs", search)
    kernel, X = ALL_KERNELS[0], np.linspace(0.0, 5.0, 20)[:, None]
    y = np.sin(2.0 * X[:, 0])
    scales, observations = Scales.of(X, y, 0.0), Observations(kernel, X, y)
    theta, prior = default_hyperparameters(kernel, scales), HyperPrior.of_new_model(kernel, scales)
    fit = optimize.maximize_bound(observations, theta, X[::4], scales, prior, max_iter=10)
    assert fit.value == pytest.approx(observations.explained_by(theta, X[::4]).value)


def test_the_unit_of_the_inputs_does_not_matter():
    """In powers of two, which change no digit."""
    kernel, rng = ALL_KERNELS[0], np.random.default_rng(0)
    X, fits = rng.uniform(0.0, 5.0, (60, 2)), []
    y = np.sin(2.0 * X[:, 0]) * X[:, 1] + 0.1 * rng.normal(size=60)
    for unit in (1.0, 1024.0):
        scales = Scales.of(unit * X, y, 0.0)
        theta, prior = default_hyperparameters(kernel, scales), HyperPrior.of_new_model(kernel, scales)
        observations = Observations(kernel, unit * X, y)
        fits.append(optimize.maximize_bound(observations, theta, unit * X[:12], scales, prior, max_iter=10))
    assert fits[1].value == pytest.approx(fits[0].value, rel=1e-6)
    np.testing.assert_allclose(fits[1].Z / 1024.0, fits[0].Z, rtol=1e-6)
