"""The terrain is where it should be, the aircraft flies straight lines, and what is held out stays out."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.interpolate import LinearNDInterpolator

from wgpr.survey import Terrain, fly, hold_out, jacksboro


@pytest.fixture(scope="module")
def terrain():
    return jacksboro()


@pytest.fixture(scope="module")
def survey(terrain):
    return fly(terrain, n_test=None, random_state=0)


def places(X):
    return set(map(tuple, X.round(6)))


def test_the_terrain_is_about_30_by_32_km(terrain):
    west, east, south, north = terrain.region
    assert terrain.elevation.shape == (len(terrain.north), len(terrain.east)) == (344, 403)
    assert (east - west, north - south) == pytest.approx((29.9, 31.8), abs=0.1)
    assert terrain.spacing == pytest.approx((0.0744, 0.0927), abs=1e-4)  # 3" at 36.6 degrees north


def test_the_first_row_is_the_southernmost(terrain):
    assert terrain.elevation[0, 0] == pytest.approx(terrain.elevation[:5, :5].mean(), abs=100)
    south, north = terrain.elevation[:100], terrain.elevation[-100:]
    assert south.std() > 1.5 * north.std()  # the mountains are in the south-west, the valley in the south-east
    assert south[:, :200].mean() > south[:, -100:].mean() + 200


def test_the_survey_is_that_of_the_design(survey):
    assert len(survey.y) == 8686
    assert len(survey.y) // len(np.unique(survey.X[:, 1])) == 202
    assert len(survey.y_test) == (344 - 43) * 403


def test_lines_are_parallel_and_evenly_spaced(survey):
    lines = survey.X.reshape(43, 202, 2)
    assert (lines[:, :, 1] == lines[:, :1, 1]).all()
    np.testing.assert_allclose(np.diff(lines[:, 0, 1]), 0.74, atol=0.01)
    np.testing.assert_allclose(np.abs(np.diff(lines[:, :, 0])), 0.15, atol=0.01)


def test_the_aircraft_turns_at_the_end_of_a_line_and_never_jumps(survey):
    steps = np.diff(survey.X, axis=0)
    assert np.hypot(*steps.T).max() < 0.75
    directions = np.sign(np.diff(survey.X.reshape(43, 202, 2)[:, :, 0]))
    assert (directions == directions[:, :1]).all()
    assert (directions[1:, 0] == -directions[:-1, 0]).all()


def test_the_altimeter_is_noisy_and_the_truth_is_not(terrain, survey):
    nodes = dict(zip(_nodes(terrain), terrain.elevation.ravel(), strict=True))
    errors = survey.y - [nodes[place] for place in map(tuple, survey.X)]
    assert errors.std() == pytest.approx(5.0, abs=0.2)
    assert abs(errors.mean()) < 0.3
    assert (survey.y_test == [nodes[place] for place in map(tuple, survey.X_test)]).all()


def _nodes(terrain):
    east, north = np.meshgrid(terrain.east, terrain.north)
    return zip(east.ravel().tolist(), north.ravel().tolist(), strict=True)


def test_linear_interpolation_is_as_good_as_in_the_design(terrain, survey):
    """28.2 m there: at all nodes between the outermost lines, those on lines included."""
    predicted = LinearNDInterpolator(survey.X, survey.y)(*np.meshgrid(terrain.east, terrain.north))
    assert np.sqrt(np.nanmean((predicted - terrain.elevation) ** 2)) == pytest.approx(28.2, abs=1.0)


def test_no_node_of_a_line_is_held_out(survey):
    assert not set(survey.X_test[:, 1]) & set(survey.X[:, 1])


def test_the_seed_decides_noise_and_what_is_held_out(terrain):
    first, same, other = (fly(terrain, n_test=100, random_state=seed) for seed in (1, 1, 2))
    assert len(first.y_test) == 100
    assert (first.y == same.y).all()
    assert (first.X_test == same.X_test).all()
    assert (first.y != other.y).any()
    assert (first.X_test != other.X_test).any()


def test_a_part_of_the_terrain_keeps_its_place(terrain):
    part = terrain.part(slice(10, 20), slice(30, 50))
    assert part.elevation.shape == (10, 20)
    assert part.elevation[3, 4] == terrain.elevation[13, 34]
    assert (part.east[4], part.north[3]) == (terrain.east[34], terrain.north[13])


@given(st.integers(5, 60), st.integers(5, 60), st.floats(0.1, 8.0), st.floats(0.1, 8.0))
def test_every_terrain_can_be_flown(n_rows, n_columns, line_spacing, along_spacing):
    flat = Terrain(np.zeros((n_rows, n_columns)), np.arange(n_columns) * 0.5, np.arange(n_rows) * 0.25)
    survey = fly(flat, line_spacing=line_spacing, along_spacing=along_spacing, n_test=None, random_state=0)
    assert len(places(survey.X)) == len(survey.y) > 0
    assert not places(survey.X) & places(survey.X_test)


def test_names_have_units(survey):
    assert survey.unit == "m"
    X, y = survey.rows(slice(3, 5))
    assert list(X.columns) == ["east [km]", "north [km]"]
    assert y.name == "elevation [m]"
    np.testing.assert_array_equal(X.to_numpy(), survey.X[3:5])


# The user's own rows


@given(st.integers(2, 500), st.floats(0.0, 0.9), st.integers(2, 50), st.integers(0, 5))
def test_what_is_held_out_is_not_learned_and_nothing_is_lost(n_rows, test_part, n_segments, seed):
    X, y = np.arange(2.0 * n_rows).reshape(n_rows, 2), np.arange(float(n_rows))
    survey = hold_out(X, y, test_part=test_part, n_segments=n_segments, random_state=seed)
    assert sorted([*survey.y, *survey.y_test]) == y.tolist()
    assert len(survey.y) > 0
    assert len(survey.y_test) > 0
    np.testing.assert_array_equal(survey.X[:, 0], 2 * survey.y)
    assert (np.diff(survey.y) > 0).all()


def test_whole_stretches_are_held_out():
    y = np.arange(2000.0)
    survey = hold_out(y[:, None], y, n_segments=100, test_part=0.1, random_state=0)
    assert len(survey.y_test) == 200
    assert (survey.y_test.reshape(10, 20) == survey.y_test.reshape(10, 20)[:, :1] + np.arange(20)).all()
    assert "200 of 2,000 rows: 10 whole stretches" in survey.held_out
    assert survey.terrain is None


def test_rows_without_names_get_some():
    survey = hold_out(np.zeros((10, 3)), np.zeros(10), random_state=0)
    assert survey.input_names == ("x1", "x2", "x3")
    assert survey.unit == ""


def test_a_survey_of_one_row_is_refused():
    with pytest.raises(ValueError, match="at least 2 rows"):
        hold_out(np.zeros((1, 2)), np.zeros(1))
