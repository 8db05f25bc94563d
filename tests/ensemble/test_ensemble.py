"""The ensemble: what is kept of its models, and which of them are near."""

import numpy as np
import pytest

from streams import scattered_ensemble
from wgpr.ensemble.ensemble import log_closeness


def test_a_model_joins_or_takes_the_place_of_another():
    ensemble = scattered_ensemble(3)
    newcomer = scattered_ensemble(1, seed=5).models[0]
    joined, replaced = ensemble.with_model(newcomer), ensemble.with_model(newcomer, 1)
    assert tuple(joined.models) == (*ensemble.models, newcomer)
    assert tuple(replaced.models) == (ensemble.models[0], newcomer, ensemble.models[2])
    for changed in (joined, replaced):
        assert changed.n_learned == sum(model.n_seen for model in changed.models)
        for number, model in enumerate(changed.models):
            np.testing.assert_array_equal(changed.centres[number], model.centre)
            np.testing.assert_array_equal(changed.input_means[number], model.inputs.mean(axis=0))
            np.testing.assert_array_equal(changed.lengthscales[number], model.theta.lengthscales)
            assert changed.n_seen[number] == model.n_seen
            assert (changed.index.owners(model.inputs)[:, 0] == number).all()


def test_a_model_takes_the_place_of_two():
    ensemble = scattered_ensemble(4)
    newcomer = scattered_ensemble(1, seed=5).models[0]
    merged = ensemble.with_merged((2, 0), newcomer)
    assert tuple(merged.models) == (newcomer, ensemble.models[1], ensemble.models[3])


class FailingOnce:
    """A learner that cannot condition the second model, and notes the rows that it gets."""

    def __init__(self, ensemble, replacement):
        self.ensemble, self.replacement, self.rows = ensemble, replacement, {}

    def condition(self, model, X, y):
        number = self.ensemble.models.index(model)
        self.rows[number] = X, y
        if number == 1:
            raise ArithmeticError
        return self.replacement


def test_a_row_conditions_the_model_nearest_to_it_if_that_is_possible():
    ensemble, newcomer = scattered_ensemble(3), scattered_ensemble(1, seed=5).models[0]
    X = np.concatenate([model.inputs[:2] for model in ensemble.models[:2]])
    y = np.arange(4.0)
    learner = FailingOnce(ensemble, newcomer)
    conditioned = ensemble.conditioned(learner, X, y)
    assert tuple(conditioned.models) == (newcomer, *ensemble.models[1:])
    assert set(learner.rows) == {0, 1}
    for number, (rows, targets) in learner.rows.items():
        np.testing.assert_array_equal(rows, X[2 * number : 2 * number + 2])
        np.testing.assert_array_equal(targets, y[2 * number : 2 * number + 2])


def test_nearest_by_mean_compares_the_means_of_the_pseudo_inputs():
    ensemble, point = scattered_ensemble(8), np.array([4.0, 6.0])
    distances = [np.linalg.norm(model.inputs.mean(axis=0) - point) for model in ensemble.models]
    assert ensemble.nearest_by_mean(point, 3) == np.argsort(distances)[:3].tolist()
    assert sorted(ensemble.nearest_by_mean(point, 100)) == list(range(8))


@pytest.mark.parametrize("spread", [1.0, 1e4, 1e8], ids="{:g}".format)
def test_log_closeness_is_exact_however_far_apart_models_are(spread):
    """As with seconds since 1970 and length-scales of seconds."""
    rng = np.random.default_rng(0)
    centres, widths = spread * rng.normal(size=(4, 2)), rng.uniform(0.5, 2.0, (4, 2))
    rows = np.repeat(centres, 3, axis=0) + rng.normal(size=(12, 2))
    expected = [[-0.5 * sum(((x - c) / w) ** 2) for c, w in zip(centres, widths, strict=True)] for x in rows]
    np.testing.assert_allclose(log_closeness(rows, centres, widths), expected, rtol=1e-6)
