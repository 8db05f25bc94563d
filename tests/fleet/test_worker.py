"""Workers: each row is learned once, whatever happens to them. Borders: neighbours know them."""

from dataclasses import replace

import numpy as np
import pytest

from wgpr import WGPRegressor
from wgpr.estimators.units import Units
from wgpr.fleet.borders import border, told
from wgpr.fleet.worker import SNAPSHOT, District, Worker


def survey(n, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(0, 10, (n, 2))
    return X, np.sin(2 * X[:, 0]) + np.cos(3 * X[:, 1]) + 0.05 * rng.normal(size=n)


def beginning(X, y):
    model = WGPRegressor()
    model._validated(X, y, reset=True)
    state = model._initial_state(X, y)
    model._state = state.__class__(**{**state.__getstate__(), "units": Units.of(X[:20], y[:20], is_isotropic=False)})
    return model


def rows_of(X, y):
    return np.column_stack([X, y, np.ones(len(y))])


@pytest.fixture
def district(tmp_path):
    X, y = survey(600)
    made = District(tmp_path / "one", beginning(X, y))
    yield made
    made.close()


def learn_all(district):
    while district.n_lacking:
        district.model = district.learned(district.next_rows())


def test_rows_that_are_sent_again_are_taken_once(district):
    rows = rows_of(*survey(600))
    assert district.take(0, rows[:200]) == 200
    assert district.take(0, rows[:200]) == 200
    assert district.take(100, rows[100:300]) == 300
    assert district.take(400, rows[400:]) == 300  # some before are missing
    assert district.take(300, rows[300:]) == 600
    learn_all(district)
    assert district.model.n_samples_seen_ == 600


def test_a_district_learns_what_a_regressor_learns(district):
    X, y = survey(600)
    for first in range(0, 600, 150):
        district.take(first, rows_of(X, y)[first : first + 150])
    learn_all(district)
    alone = WGPRegressor().fit(X, y)
    places = survey(100, seed=1)[0]
    np.testing.assert_array_equal(district.model.predict(places), alone.predict(places))


@pytest.mark.parametrize("is_saved", [False, True])
def test_a_district_that_is_opened_again_goes_on(tmp_path, is_saved):
    X, y = survey(600)
    rows, start = rows_of(X, y), beginning(X, y)
    first = District(tmp_path / "one", start)
    first.take(0, rows[:400])
    first.model = first.learned(first.next_rows())
    if is_saved:
        first.save()
    first.take(400, rows[400:500])
    first.close()
    again = District(tmp_path / "one", start)
    assert again.n_learned == (400 if is_saved else 0)
    assert again.n_lacking == 500 - again.n_learned
    again.take(500, rows[500:])
    learn_all(again)
    places = survey(100, seed=1)[0]
    np.testing.assert_array_equal(again.model.predict(places), WGPRegressor().fit(X, y).predict(places))
    again.close()


def test_a_damaged_snapshot_is_an_error(tmp_path):
    X, y = survey(100)
    first = District(tmp_path / "one", beginning(X, y))
    first.take(0, rows_of(X, y))
    learn_all(first)
    first.save()
    first.close()
    (tmp_path / "one" / SNAPSHOT).write_bytes(b"no map")
    with pytest.raises(ValueError, match="map"):
        District(tmp_path / "one", beginning(X, y))


def test_a_fault_of_the_thread_that_learns_reaches_the_caller(tmp_path):
    X, y = survey(100)
    worker = Worker(str(tmp_path), beginning(X, y))
    worker.take("one", 0, np.full((50, 4), np.nan))
    worker._thread.join(timeout=120)
    with pytest.raises(ValueError, match="NaN"):
        worker.n_learned(["one"])
    worker.stop()


def test_a_district_that_was_opened_again_learns_its_journal_before_it_is_divided(tmp_path):
    X, y = survey(900)
    start = beginning(X, y)
    first = District(tmp_path / "one", start)
    first.take(0, rows_of(X, y)[:600])
    learn_all(first)
    first.save()
    first.take(600, rows_of(X, y)[600:])
    first.close()
    worker = Worker(str(tmp_path), start)
    assert worker.divide("one", ("two", "three")) is not None
    assert sum(worker.n_learned(["two", "three"])) == 900
    worker.stop()


# Borders


@pytest.fixture(scope="module")
def territories():
    return WGPRegressor().fit(*survey(2500))._state.ensemble


def right_of(position):
    return np.array([[position, -np.inf], [np.inf, np.inf]])


def test_a_neighbour_is_told_what_touches_it(territories):
    edge = territories.overview.grounds[:, 1, 0].max()
    position = np.sort(territories.overview.grounds[:, 1, 0])[-2] if np.isinf(edge) else edge
    made = border(territories, right_of(position), {}, 1e9)
    known = told(made.package, {}, territories.kernel, 2, ())
    touching = np.flatnonzero(territories.overview.grounds[:, 1, 0] >= position)
    assert sorted(known) == touching.tolist() == sorted(made.seen)
    for number, territory in known.items():
        source = territories.models[number]
        assert territory.theta.to_vector() == pytest.approx(source.theta.to_vector(), rel=1e-6)
        assert {tuple(place) for place in territory.data.Z.astype(np.float32)} <= {
            tuple(place) for place in source.data.Z.astype(np.float32)
        }


def test_what_did_not_grow_is_not_told_again(territories):
    ground = right_of(0.0)
    first = border(territories, ground, {}, 1e9)
    assert border(territories, ground, first.seen, 1e9) is None
    half = {number: n_seen // 3 for number, n_seen in first.seen.items()}
    assert border(territories, ground, half, 1e9).seen == first.seen


def test_a_half_of_new_rows_alone_is_told_when_they_were_looked_at(territories):
    ground = right_of(0.0)
    number = min(border(territories, ground, {}, 1e9).seen)
    new = replace(territories.models[number], n_known=0, mean=territories.models[number].mean + 100.0)
    changed = replace(territories, models=(*territories.models[:number], new, *territories.models[number + 1 :]))
    made = border(changed, ground, {}, 1e9)
    assert sorted(made.seen) == sorted(told(made.package, {}, territories.kernel, 2, ()))
    assert number not in made.seen
    assert number in border(territories, ground, made.seen, 1e9).seen


def test_no_more_bytes_are_told_than_allowed(territories):
    ground = right_of(-1e9)
    everything = border(territories, ground, {}, 1e9)
    limit = len(everything.package) / 3
    some = border(territories, ground, {}, limit)
    assert len(some.package) <= limit
    assert 0 < len(some.seen) < len(everything.seen)
    assert border(territories, ground, {}, 10.0) is None


def test_what_no_longer_touches_is_forgotten(territories):
    ground = right_of(-1e9)
    known = told(border(territories, ground, {}, 1e9).package, {}, territories.kernel, 2, ())
    seen = {number: territories.models[number].n_seen for number in range(len(territories))}
    narrow = right_of(np.sort(territories.overview.grounds[:, 0, 0])[-1])
    after = told(border(territories, narrow, seen, 1e9).package, known, territories.kernel, 2, ())
    assert 0 < len(after) < len(known)


def test_territories_outside_are_neighbours_and_do_not_learn(territories):
    X, y = survey(400)
    model = WGPRegressor().fit(X[:200], y[:200])
    ensemble, outside = model._state.ensemble, territories.models[:3]
    surrounded = ensemble.__class__(**{**ensemble.__getstate__(), "outside": outside})
    model._state = model._state.__class__(**{**model._state.__getstate__(), "ensemble": surrounded})
    model.partial_fit(X[200:], y[200:])
    after = model._state.ensemble
    assert after.outside is outside
    assert sum(each.n_seen for each in after.models) == 400
