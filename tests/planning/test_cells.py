"""The ground of a plan, and lines and ways in it."""

from itertools import pairwise

import numpy as np
import pytest

from wgpr.planning.choice import best_by_bounds, cells_along, length_of, rows_of
from wgpr.planning.ground import Covered, Ground, Polygons, cells_of
from wgpr.planning.route import WayAround

SQUARE = np.array([[0.0, 0.0], [10.0, 0.0], [10.0, 10.0], [0.0, 10.0]])
BAY = Polygons(((np.array([[0, 0], [10, 0], [10, 10], [6, 10], [6, 2], [4, 2], [4, 10], [0, 10]], dtype=float),),))


def lines(spacing=1.0):
    """Survey lines along x."""
    x = np.linspace(0.0, 10.0, 101)
    return np.concatenate([np.column_stack([x, np.full(101, y)]) for y in np.arange(0.0, 10.5, spacing)])


def test_the_covered_ground_lies_between_lines_and_not_beside_them():
    covered = Covered(lines())
    assert covered.contains(np.array([[5.0, 0.5], [5.0, 9.5], [0.1, 5.5]])).all()
    assert not covered.contains(np.array([[-1.0, 5.0], [5.0, 11.0]])).any()


def test_a_bay_without_data_is_not_covered():
    data = lines(0.5)
    data = data[~((data[:, 0] > 4.0) & (data[:, 1] > 3.0))]
    assert Covered(data).contains(np.array([[2.0, 8.0], [8.0, 1.0]])).all()
    assert not Covered(data).contains(np.array([[8.0, 8.0]])).any()


def test_smooth_ground_is_covered_by_the_pseudo_data_that_stand_for_its_rows():
    """In the west 3 apart, in the east rows 0.5 apart; a gap between rows, from 10 to 14, is not covered."""
    smooth = np.stack(np.meshgrid(np.arange(-12.0, 0.0, 3.0), np.arange(0.0, 10.0, 3.0)), axis=-1).reshape(-1, 2)
    data = np.concatenate([smooth, lines(0.5), lines(0.5) + np.array([14.0, 0.0])])
    places, beyond = np.random.default_rng(0).uniform([-11.0, 1.0], [-4.0, 8.0], (50, 2)), np.array([[12.0, 5.0]])
    for owner, is_covered in ((-1, False), (7, True)):
        covered = Covered(data, np.concatenate([np.full(len(smooth), owner), np.full(len(data) - len(smooth), -1)]))
        assert (covered.contains(places) == is_covered).all()
        assert covered.contains(np.array([[-1.5, 5.0]])) == is_covered  # between the two
        assert not covered.contains(beyond).any()
    assert not covered.contains(np.array([[-6.0, -2.0], [-6.0, 12.0]])).any()


def test_data_on_one_line_cover_their_box():
    assert Covered(np.column_stack([np.arange(5.0), np.zeros(5)])).contains(np.array([[2.5, 0.0]]))[0]


def test_a_hole_is_outside():
    hole = np.array([[4.0, 4.0], [6.0, 4.0], [6.0, 6.0], [4.0, 6.0]])
    polygons = Polygons(((SQUARE, hole), (SQUARE + 20.0,)))
    assert polygons.contains(np.array([[5.0, 5.0], [1.0, 1.0], [25.0, 25.0], [15.0, 15.0]])).tolist() == [
        False, True, True, False,
    ]  # fmt: skip


def test_cells_have_their_node_and_target_inside():
    ground = cells_of(lines(), 2, None)
    assert 400 < len(ground) < 2600
    for places in (ground.nodes, ground.targets):
        np.testing.assert_array_equal(ground.cell_at(places), np.arange(len(ground)))
    assert ground.cell_at(np.array([[-1.0, 3.0], [1e9, 1e9]])).tolist() == [-1, -1]


def test_neighbours_are_the_cells_around():
    ground = Ground.of(np.zeros(2), np.array([5.0, 5.0]), 1.0, None)
    near = ground.neighbours(1)
    np.testing.assert_array_equal(near[12], [6, 7, 8, 11, 12, 13, 16, 17, 18])
    np.testing.assert_array_equal(near[0], [-1, -1, -1, -1, 0, 1, -1, 5, 6])


@pytest.mark.parametrize("angle", [0.0, 0.4, np.pi / 2])
def test_lines_of_a_direction_pass_most_cells(angle):
    ground = Ground.of(np.zeros(2), np.array([20.0, 20.0]), 1.0, None)
    direction = np.array([np.cos(angle), np.sin(angle)])
    pieces = [piece for row in rows_of(ground, direction) for piece in row]
    passed = np.unique(np.concatenate([piece.cells for piece in pieces]))
    assert len(passed) > 0.7 * len(ground)
    for piece in pieces:
        along = (piece.ends[1] - piece.ends[0]) / piece.length
        assert abs(along @ direction) == pytest.approx(1.0)


def test_a_line_is_cut_where_it_leaves_the_ground():
    ground = Ground.of(np.zeros(2), np.full(2, 10.0), 0.5, BAY)
    at_top = [row for row in rows_of(ground, np.array([1.0, 0.0])) if row[0].ends[0, 1] > 5.0]
    assert {len(row) for row in at_top} == {2}


def test_a_way_around_stays_in_the_ground_and_is_short():
    ground = Ground.of(np.zeros(2), np.full(2, 10.0), 0.5, BAY)
    path = WayAround(ground).path(np.array([[2.0, 9.0], [8.0, 9.0]]))
    assert (ground.cell_at(path[1:-1]) >= 0).all()
    assert 15.0 < length_of(path) < 18.0  # 6.9 m down, over 2 m, and up again are 15.8
    for start, end in pairwise(path):
        between = start + np.linspace(0.1, 0.9, 9)[:, None] * (end - start)
        assert BAY.contains(between - np.array([0.0, 0.01])).all()


def test_cells_along_a_path_are_passed_once():
    ground = Ground.of(np.zeros(2), np.full(2, 5.0), 1.0, None)
    cells = cells_along(ground, np.array([[0.5, 0.5], [4.5, 0.5], [0.5, 0.5]]))
    assert cells.tolist() == [0, 5, 10, 15, 20]


def test_the_best_is_found_by_upper_bounds_without_computing_all():
    gains, asked = np.array([1.0, 5.0, 3.0, 2.0]), []

    def gain(number):
        asked.append(number)
        return gains[number]

    bounds = np.array([2.0, 6.0, 4.0, 9.0])
    assert best_by_bounds(bounds, np.ones(4), gain) == 1
    assert sorted(asked) == [1, 3]
    assert best_by_bounds(np.array([2.0, 6.0, 4.0, 9.0]), np.array([0.1, 1.0, 1.0, 1.0]), gain) == 0
