"""Scores against their definitions, and the running ones against those of all rows at once."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.integrate import quad
from scipy.stats import norm

from wgpr.metrics import RunningScores, scores

NUMBERS = st.floats(-1e6, 1e6)
DEVIATIONS = st.floats(1e-3, 1e6)


@st.composite
def predictions(draw):
    """Targets, means and standard deviations, and where to cut them into pieces."""
    n = draw(st.integers(1, 30))
    y, mean = draw(arrays(float, n, elements=NUMBERS)), draw(arrays(float, n, elements=NUMBERS))
    return y, mean, draw(arrays(float, n, elements=DEVIATIONS)), draw(st.lists(st.integers(0, n)).map(sorted))


def crps_by_integration(y, mean, std):
    def squared_gap(x):
        return (norm.cdf(x, mean, std) - (x >= y)) ** 2

    ends = sorted([y, mean - 12 * std, mean + 12 * std])
    return sum(quad(squared_gap, low, high, limit=200)[0] for low, high in pairwise(ends))


def test_scores_are_their_definitions():
    rng = np.random.default_rng(0)
    y, mean, std = rng.normal(size=200), rng.normal(size=200), rng.uniform(0.1, 2.0, size=200)
    found = scores(y, mean, std)
    assert found.rmse == pytest.approx(np.sqrt(np.mean((y - mean) ** 2)))
    assert found.mae == pytest.approx(np.mean(np.abs(y - mean)))
    assert found.nlpd == pytest.approx(-norm.logpdf(y, mean, std).mean())
    assert found.coverage == np.mean((norm.ppf(0.025, mean, std) <= y) & (y <= norm.ppf(0.975, mean, std)))
    assert found.smse == pytest.approx(np.mean((y - mean) ** 2) / y.var())


@pytest.mark.parametrize(("y", "mean", "std"), [(0.0, 0.0, 1.0), (3.0, 1.0, 0.5), (-2.0, 5.0, 10.0), (1.0, 0.9, 0.01)])
def test_crps_is_the_integral(y, mean, std):
    assert scores([y], [mean], [std]).crps == pytest.approx(crps_by_integration(y, mean, std), rel=1e-6)


def test_honest_predictions_cover_95_percent():
    rng = np.random.default_rng(1)
    std = rng.uniform(0.5, 3.0, size=50_000)
    assert scores(std * rng.normal(size=50_000), np.zeros(50_000), std).coverage == pytest.approx(0.95, abs=0.005)


@given(predictions())
def test_pieces_add_up_to_the_whole(case):
    y, mean, std, cuts = case
    running = RunningScores()
    for piece in zip(*(np.split(array, cuts) for array in (y, mean, std)), strict=True):
        running.add(*piece)
    assert running.n_rows == len(y)
    assert running.result()[:5] == pytest.approx(scores(y, mean, std)[:5], rel=1e-9, abs=1e-9)


def test_the_variance_survives_a_large_offset():
    y = 1e9 + np.random.default_rng(2).normal(size=1000)
    running = RunningScores()
    for piece in np.split(y, 10):
        running.add(piece, np.full(100, 1e9))
    assert running.result().smse == pytest.approx(np.mean((y - 1e9) ** 2) / y.var(), rel=1e-6)


@given(predictions())
def test_crps_is_less_than_the_absolute_error_plus_the_spread(case):
    y, mean, std, _ = case
    found = scores(y, mean, std)
    assert found.crps >= 0
    assert found.crps <= found.mae + std.mean()


def test_sure_predictions_give_numbers():
    right, wrong = scores([1.0, 2.0], [1.0, 2.0], [0.0, 0.0]), scores([1.0, 2.0], [1.0, 3.0], [0.0, 0.0])
    assert right.crps == right.rmse == right.smse == 0.0
    assert right.coverage == 1.0
    assert right.nlpd < -200 < 1e100 < wrong.nlpd
    assert wrong.crps == wrong.mae == 0.5
    assert scores([1e80], [0.0], [0.0]).nlpd == np.inf


def test_without_a_standard_deviation_there_is_no_score_of_it():
    found = scores([1.0, 2.0], [1.0, 3.0])
    assert found.rmse == pytest.approx(np.sqrt(0.5))
    assert found.nlpd is found.crps is found.coverage is None


def test_targets_that_are_all_alike():
    assert scores([2.0, 2.0], [2.0, 3.0]).smse == np.inf
    assert scores([2.0, 2.0], [2.0, 2.0]).smse == 0.0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([1.0], [1.0, 2.0]), "equally long"),
        (([[1.0]], [1.0]), "y must have one dimension"),
        (([1.0], [np.nan]), "mean must be finite"),
        (([1.0], [1.0], [-1.0]), "std must be finite and at least 0"),
    ],
)
def test_bad_input_is_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        scores(*arguments)


def test_no_rows_no_scores():
    with pytest.raises(ValueError, match="before the first row"):
        RunningScores().add([], [], []).result()
