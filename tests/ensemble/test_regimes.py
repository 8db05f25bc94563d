"""Another regime: found where there is one, and only where a cut separates it."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

import dense_reference as dense
from streams_of_rows import answers_of
from wgpr.ensemble.regimes import FEWEST_ROWS, _best_start, find_regime, rougher_part, separating_axis
from wgpr.ensemble.territories import Territories, TerritorySettings, learn
from wgpr.ensemble.territory import ALONE, Territory, fitted, forecast
from wgpr.gp.hyperparameters import HyperPrior, Scales, default_hyperparameters
from wgpr.gp.kernels import RationalQuadratic
from wgpr.gp.linalg import NotFactorizableError

RQ = RationalQuadratic()


def smooth(X, rng):
    return 0.3 * np.sin(0.5 * X[:, :1]) + 0.02 * rng.normal(size=(len(X), 1))


def rugged(X, rng):
    return 4.0 * np.sin(5.0 * X[:, :1]) + 0.02 * rng.normal(size=(len(X), 1))


def looked_at(old_X, new_X, *, is_another=True, seed=0):
    """A territory with new rows."""
    rng = np.random.default_rng(seed)
    territory = Territory.begin(RQ, old_X, smooth(old_X, rng), np.ones(len(old_X)))
    y = (rugged if is_another else smooth)(new_X, rng)
    return territory.with_rows(new_X, y, np.ones(len(new_X)), 0)


def regime_of(territory):
    return find_regime(territory, replace(fitted(territory, ALONE), n_known=territory.n_known), None)


def regime_unless_fitted(territory):
    """As if the hyperparameters could not follow the new rows: where is the cut?"""
    return find_regime(territory, territory, None)


def sides(regime, Z):
    is_above = Z[:, regime.axis] > regime.position
    return is_above if regime.is_above else ~is_above


@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize("is_another", [True, False])
def test_two_halves(sign, is_another):
    old, new = sign * np.linspace(0.0, 5.0, 60)[:, None], sign * np.linspace(5.1, 8.0, 60)[:, None]
    regime = regime_of(looked_at(old, new, is_another=is_another))
    assert (regime is not None) == is_another
    if regime is not None:
        assert regime.is_above == (sign > 0)
        assert not sides(regime, old).any()
        assert regime.position * sign == pytest.approx(5.05, abs=0.9)
        assert regime.theta.lengthscales[0] < 1.0


def test_rows_among_the_old_are_no_other_regime():
    rng = np.random.default_rng(1)
    assert regime_unless_fitted(looked_at(rng.uniform(0, 5, (60, 1)), rng.uniform(0, 5, (60, 1)))) is None


def test_rows_half_among_the_old_are_no_other_regime():
    old, new = np.linspace(0.0, 5.0, 60)[:, None], np.linspace(2.5, 7.5, 60)[:, None]
    assert regime_unless_fitted(looked_at(old, new)) is None


def test_rows_of_the_old_regime_come_first():
    """The cut is where the regime begins, not where the new rows begin."""
    rng = np.random.default_rng(0)
    old, new = np.linspace(0.0, 5.0, 60)[:, None], np.linspace(5.1, 12.0, 90)[:, None]
    territory = Territory.begin(RQ, old, smooth(old, rng), np.ones(60))
    y = np.where(new < 8.0, smooth(new, rng), rugged(new, rng))
    regime = regime_unless_fitted(territory.with_rows(new, y, np.ones(90), 0))
    assert regime.position == pytest.approx(8.0, abs=0.4)


@pytest.mark.parametrize("n_before", [5, 11, 18, 23, 30, 38, 45])
def test_the_beginning_of_a_regime_is_refined_to_the_row(n_before):
    rng = np.random.default_rng(0)
    old, new = np.linspace(0.0, 5.0, 60)[:, None], np.linspace(5.1, 12.0, 64)[:, None]
    territory = Territory.begin(RQ, old, smooth(old, rng), np.ones(60))
    y = np.where(np.arange(64)[:, None] < n_before, smooth(new, rng), 9.0 + rugged(new, rng))
    regime = regime_unless_fitted(territory.with_rows(new, y, np.ones(64), 0))
    assert (~sides(regime, new)).sum() == n_before


def test_log_evidence_of_another_regime():
    """Rows alone, with their weights and their own mean, minus the penalty; and those before the cut as forecast."""
    rng, weights = np.random.default_rng(0), np.random.default_rng(1).uniform(0.1, 10.0, 60)
    old, new = np.linspace(0.0, 5.0, 60)[:, None], np.linspace(5.1, 8.0, 60)[:, None]
    territory = Territory.begin(RQ, old, smooth(old, rng), np.ones(60))
    territory = territory.with_rows(new, 50.0 + rugged(new, rng), weights, 0)
    regime, rows = regime_unless_fitted(territory), territory.new_rows
    behind = sides(regime, rows.Z)
    np.testing.assert_allclose(regime.mean, rows.t[behind].mean(axis=0))
    alone = dense.log_evidence(
        RQ, regime.theta, rows.Z[behind], rows.t[behind] - regime.mean, 1.0 / weights[behind], behind[behind]
    )
    _, given_known = forecast(territory, None)
    penalty = 0.5 * (len(regime.theta.to_log()) + 1) * np.log1p(behind.sum())
    assert regime.log_evidence == pytest.approx(given_known[(~behind).sum()] + alone - penalty, rel=1e-6)


def with_lengthscale(territory, lengthscale):
    theta = replace(territory.theta, lengthscales=np.full_like(territory.theta.lengthscales, lengthscale))
    return replace(territory, theta=theta, log_evidence=-7.0)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_a_rougher_update_takes_what_is_around_the_new_rows(sign):
    territory = looked_at(sign * np.linspace(0.0, 5.0, 61)[:, None], sign * np.linspace(4.5, 5.5, 20)[:, None])
    territory, updated = with_lengthscale(territory, 0.4), with_lengthscale(territory, 0.2)
    part = rougher_part(territory, updated)
    begin = 4.5 - 0.5 * 0.2
    assert sign * part.position == pytest.approx(begin, abs=5.0 / 60.0)
    np.testing.assert_array_equal(sides(part, territory.data.Z), sign * territory.data.Z[:, 0] > begin)
    assert (part.theta, part.log_evidence) == (updated.theta, -7.0)
    values = territory.data[sides(part, territory.data.Z)]
    assert part.mean == pytest.approx(np.average(values.t, weights=values.precision[:, None], axis=0))
    assert rougher_part(territory, with_lengthscale(territory, 0.33)) is None  # not much rougher
    dense = with_lengthscale(territory, 1.0)  # its pseudo-data are 1/12 apart
    assert [rougher_part(dense, with_lengthscale(territory, each)) is None for each in (0.3, 0.27)] == [True, False]


@pytest.mark.parametrize(("n_left", "is_divided"), [(FEWEST_ROWS - 1, False), (FEWEST_ROWS, True)])
def test_a_rougher_update_leaves_enough_or_takes_all(n_left, is_divided):
    old = np.concatenate([np.linspace(0.0, 5.0, n_left), np.linspace(8.5, 9.0, 60 - n_left)])[:, None]
    territory = looked_at(old, np.linspace(8.9, 9.5, 20)[:, None])
    part = rougher_part(with_lengthscale(territory, 4.0), with_lengthscale(territory, 1.0))  # it begins at 8.9 - 0.5
    assert (part is not None) == is_divided


def test_a_rougher_update_takes_another_axis_if_the_first_leaves_too_few_beyond():
    rng = np.random.default_rng(0)
    north = np.concatenate([rng.uniform(0.0, 5.0, 50), rng.uniform(8.7, 9.5, 30)])
    territory = looked_at(
        np.column_stack([rng.uniform(0.0, 7.0, 80), north]),
        np.column_stack([np.full(12, 9.0), np.linspace(9.0, 9.5, 12)]),
    )
    part = rougher_part(with_lengthscale(territory, 2.0), with_lengthscale(territory, 0.5))
    assert (part.axis, part.is_above) == (1, True)
    np.testing.assert_array_equal(sides(part, territory.data.Z), territory.data.Z[:, 1] > 8.75)


def test_a_rougher_update_leaves_as_much_as_it_can():
    rng = np.random.default_rng(0)
    old = rng.uniform(0.0, 10.0, (150, 2))
    territory = looked_at(old, rng.uniform([8.0, 6.0], [9.0, 7.0], (12, 2)))
    part = rougher_part(with_lengthscale(territory, 2.0), with_lengthscale(territory, 0.5))
    assert (part.axis, part.is_above) == (0, True)


def test_a_rougher_update_of_new_rows_everywhere_takes_all():
    territory = looked_at(np.linspace(0.0, 5.0, 61)[:, None], np.linspace(-1.0, 6.0, 40)[:, None])
    assert rougher_part(with_lengthscale(territory, 0.4), with_lengthscale(territory, 0.2)) is None


def test_too_few_rows():
    old = np.linspace(0.0, 5.0, 60)[:, None]
    assert regime_unless_fitted(looked_at(old, np.linspace(5.1, 6.0, 14)[:, None])) is None
    assert separating_axis(looked_at(old, np.linspace(5.1, 6.0, 14)[:, None])) is None
    assert separating_axis(looked_at(old, np.linspace(5.1, 6.0, 15)[:, None])) == (0, 1.0)


def test_a_fit_starts_from_the_best_hyperparameters_that_can_be_evaluated():
    scales, values = Scales(np.ones(1), 1.0), iter([None, -3.0, -1.0, None, -2.0, -4.0, -5.0])
    starts = []

    def value_and_gradient(theta):
        starts.append(theta)
        if (value := next(values)) is None:
            raise NotFactorizableError
        return value, None

    prior = HyperPrior.of_new_model(RQ, scales)
    evidence = SimpleNamespace(value_and_gradient=value_and_gradient)
    best, value = _best_start(RQ, scales, prior, default_hyperparameters(RQ, scales), evidence)
    assert value == -1.0
    assert best is starts[2]


def line(y, n, backwards=False):
    x = np.linspace(0.0, 8.0, n)
    return np.column_stack([x[::-1] if backwards else x, np.full(n, y)])


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_a_parallel_line_of_equal_coordinates(sign):
    """Some of the rows are still on the old line; those on the new line have the same coordinate across it."""
    old, new = line(0.0, 60), np.concatenate([line(0.0, 60)[-2:], line(sign, 120, backwards=True)])
    regime = regime_unless_fitted(looked_at(old, new))
    assert regime is not None
    assert regime.axis == 1
    assert not sides(regime, old).any()
    np.testing.assert_array_equal(sides(regime, new), new[:, 1] == sign)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_one_new_row_far_on_the_other_side(sign):
    old = sign * np.linspace(0.0, 5.0, 60)[:, None]
    new = sign * np.concatenate([[-50.0], np.linspace(5.1, 8.0, 60)])[:, None]
    regime = regime_unless_fitted(looked_at(old, new))
    assert regime is not None
    assert not sides(regime, old).any()
    assert not sides(regime, new)[0]


@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize("n", [40, 41, 60])
def test_lines_are_learned(sign, n):
    rng = np.random.default_rng(0)
    X = np.concatenate([line(0.0, n), line(sign, 400, backwards=True)])
    y = np.concatenate([smooth(X[:n], rng), rugged(X[n:], rng)])
    territories = Territories.begin(RQ, X[:20], y[:20], np.ones(20))
    territories, _, _ = learn(territories, TerritorySettings(RQ), X[20:], y[20:], np.ones(len(y) - 20), 0)
    assert all(len(model.data) for model in territories.models)
    assert np.sqrt(np.mean((answers_of(territories, X).mean - y) ** 2)) < 0.4  # 2.8 if it is taken for noise
