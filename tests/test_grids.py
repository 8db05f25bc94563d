"""Predictions on a grid: where the nodes are, what is at them, what they are called, and that files keep it all."""

import re

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from sklearn.exceptions import NotFittedError

from streams import every_estimator, fitted, published, small, streamed, travelling
from wgpr import StreamingGPRegressor, WGPRegressor
from wgpr.io import grids
from wgpr.io.grids import default_region, default_spacing, plan_grid, predict_grid
from wgpr.labels import Label

REGION, SPACING = (0.0, 10.0, 0.0, 3.0), (1.0, 0.5)


class Plane:
    """A model that answers `x1 + 10 x2 + 100 x3 ...`, and remembers how many rows it was asked at once."""

    def __init__(self, n_inputs=2):
        self.bounds_ = np.stack([np.zeros(n_inputs), np.ones(n_inputs)])
        self.asked = []

    def __repr__(self):
        return "Plane()"

    def predict(self, X, return_std=False, return_cov=False, latent=False):
        self.asked.append(len(X))
        X = np.asarray(X)
        return X @ 10.0 ** np.arange(X.shape[1]), np.full(len(X), 1.0 if latent else 2.0)

    def predict_with_owners(self, X):
        mean, field = self.predict(X, return_std=True, latent=True)
        return mean, 2.0 * field, field, (np.asarray(X)[:, 0] > 0.5).astype(np.intp)


def named(model, *names, target=None):
    model.feature_names_in_, model.target_name_ = np.array(names, dtype=object), target
    return model


@every_estimator
def test_nodes_hold_what_the_model_predicts(regressor):
    model = fitted(regressor)
    grid = predict_grid(model, REGION, SPACING)
    x2, x1 = np.meshgrid(grid.x2, grid.x1, indexing="ij")
    X = np.stack([x1.ravel(), x2.ravel()], axis=1)
    mean, std = model.predict(X, return_std=True)
    np.testing.assert_allclose(grid["mean"].values.ravel(), mean)
    np.testing.assert_allclose(grid["std"].values.ravel(), std)
    np.testing.assert_allclose(grid["std_latent"].values.ravel(), model.predict(X, return_std=True, latent=True)[1])
    np.testing.assert_array_equal(grid["model"].values.ravel(), model.model_index(X))


@every_estimator
def test_it_works_before_the_first_batch(regressor):
    grid = predict_grid(fitted(regressor, 5), spacing=0.2)
    assert np.isfinite(grid["mean"]).all()
    assert (grid["std"] > 0).all()


def test_nobody_maps_what_was_never_learned():
    with pytest.raises(NotFittedError):
        predict_grid(WGPRegressor(), REGION, SPACING)


# Nodes


def test_dimensions_are_in_the_order_of_maps():
    grid = predict_grid(Plane(), (0, 4, 10, 12), 1)
    assert grid["mean"].dims == ("x2", "x1")
    assert grid["mean"].shape == (3, 5)
    assert grid["mean"].sel(x1=3, x2=11) == 3 + 10 * 11


def test_the_spacing_is_kept_and_the_last_node_may_lie_short():
    grid = predict_grid(Plane(), (0, 1, 0, 1), (0.3, 0.1))
    np.testing.assert_allclose(grid.x1, [0, 0.3, 0.6, 0.9])
    np.testing.assert_allclose(grid.x2, np.linspace(0, 1, 11))


@pytest.mark.parametrize(
    ("low", "high", "step"), [(0, 1, 0.1), (-0.3, 0.6, 0.3), (500_000.0, 500_001.0, 0.01), (0, 7, 7)]
)
def test_an_edge_that_is_a_node_is_not_lost_to_rounding(low, high, step):
    nodes = predict_grid(Plane(1), (low, high), step).x1.values
    assert len(nodes) == round((high - low) / step) + 1
    assert nodes[-1] == pytest.approx(high)


def test_one_input_is_a_line():
    grid = predict_grid(Plane(1), (0, 1), 0.25)
    assert grid["mean"].dims == ("x1",)
    np.testing.assert_allclose(grid["mean"], [0, 0.25, 0.5, 0.75, 1])


@pytest.mark.parametrize("at", [{"x2": 7.0}, {1: 7.0}])
def test_other_inputs_can_be_fixed(at):
    grid = predict_grid(Plane(3), (0, 1, 0, 2), 1, at=at)
    assert grid["mean"].dims == ("x3", "x1")
    assert grid["mean"].sel(x1=1, x3=2) == 1 + 70 + 200
    assert grid.coords["x2"] == 7.0


def test_three_inputs_make_a_block_if_the_region_says_so():
    grid = predict_grid(Plane(3), (0, 1, 0, 2, 0, 3), 1)
    assert grid["mean"].dims == ("x3", "x2", "x1")
    assert grid["mean"].shape == (4, 3, 2)


def test_nodes_are_predicted_in_pieces(monkeypatch):
    whole = predict_grid(Plane(), REGION, SPACING)
    monkeypatch.setattr(grids, "_PIECE", 7)
    model = Plane()
    xr.testing.assert_identical(predict_grid(model, REGION, SPACING), whole)
    assert max(model.asked) == 7


def test_the_default_grid_is_around_the_data():
    X, _ = travelling()
    model = fitted(published)
    west, east, south, north = default_region(model)
    assert west < X[:, 0].min() < X[:, 0].max() < east
    assert south < X[:, 1].min() < X[:, 1].max() < north
    grid = predict_grid(model)
    np.testing.assert_allclose(grid.x1[[0, -1]], [west, east])
    assert grid.x2[0] <= south < north <= grid.x2[-1]


@pytest.mark.parametrize(("n_inputs", "n_nodes"), [(1, 1000), (2, 200), (3, 34), (20, 2)])
def test_more_inputs_have_fewer_nodes_each(n_inputs, n_nodes):
    assert default_spacing(n_inputs * (0.0, 1.0)) == pytest.approx(n_inputs * (1 / (n_nodes - 1),))


def sized(model, width, height):
    model.bounds_ = np.array([[5.0, -2.0], [5.0 + width, -2.0 + height]])
    return model


@pytest.mark.parametrize(("width", "height"), [(1, 1), (1, 6), (6, 1), (0.37, 2.9)])
@pytest.mark.parametrize("names", [("x1", "x2"), ("east [km]", "north (km)"), ("lon", "lat"), ("lon [°]", "lat [deg]")])
def test_cells_are_square_where_the_unit_is_the_same(names, width, height):
    model = sized(named(Plane(), *names), width, height)
    y, x = plan_grid(model).axes.values()
    assert x[1] - x[0] == pytest.approx(y[1] - y[0])
    assert len(x) * len(y) == pytest.approx(40_000, rel=0.03)
    assert x[0] < 5.0 < 5.0 + width < x[-1]
    assert y[0] < -2.0 < -2.0 + height < y[-1]


def test_a_region_of_the_users_own_is_not_left():
    y, x = plan_grid(Plane(), (0, 1, 0, 6.6)).axes.values()
    assert x[1] - x[0] == pytest.approx(y[1] - y[0])
    assert (x[0], y[0]) == (0, 0)
    assert 1 - x[1] < x[-1] <= 1
    assert y[-1] == pytest.approx(6.6)


@pytest.mark.parametrize("names", [("x1", "x2"), ("depth [m]", "salinity [psu]"), ("time [s]", "depth")])
def test_inputs_of_different_units_have_as_many_nodes_each(names):
    assert plan_grid(sized(named(Plane(), *names), 1, 30)).shape == (200, 200)


def test_a_long_route_in_one_unit_has_square_cells_and_a_hair_has_not():
    model = named(Plane(), "east [km]", "north [km]")
    y, x = plan_grid(sized(model, 1, 30)).axes.values()
    assert x[1] - x[0] == pytest.approx(y[1] - y[0])
    assert plan_grid(sized(model, 1, 1e5)).shape == (200, 200)


@pytest.mark.parametrize("constant", [0.0, 5.0, -1e17])
def test_an_input_that_was_constant_has_a_region_all_the_same(constant):
    model = Plane()
    model.bounds_[:, 1] = constant
    grid = predict_grid(model)
    assert grid.x2[0] < constant < grid.x2[-1]


# Names


def test_names_and_units_are_those_of_the_frame():
    X, y = travelling()
    frame = pd.DataFrame(X, columns=["easting [km]", "northing (km)"])
    model = small(StreamingGPRegressor).fit(frame, pd.Series(y, name="depth [m]"))
    grid = predict_grid(model, REGION, SPACING)
    assert grid["mean"].dims == ("northing", "easting")
    assert grid.easting.attrs == {"long_name": "easting", "units": "km", "axis": "X"}
    assert grid.northing.attrs == {"long_name": "northing", "units": "km", "axis": "Y"}
    assert grid["mean"].attrs["long_name"] == "mean of depth"
    assert {grid[name].attrs["units"] for name in ("mean", "std", "std_latent")} == {"m"}
    assert "units" not in grid["model"].attrs


@pytest.mark.parametrize("names", [("lon", "lat"), ("Longitude [deg]", "Latitude [°]"), ("lng_deg", "lat_deg")])
def test_longitude_and_latitude_are_known(names):
    grid = predict_grid(named(Plane(), *names), REGION, SPACING)
    latitude, longitude = (grid[name].attrs for name in grid["mean"].dims)
    assert (longitude["standard_name"], longitude["units"]) == ("longitude", "degrees_east")
    assert (latitude["standard_name"], latitude["units"]) == ("latitude", "degrees_north")


@pytest.mark.parametrize("name", ["lon", "long", "lng", "longitude", "lon_deg"])
def test_a_map_has_longitude_from_west_to_east_whatever_the_order_of_columns(name):
    grid = predict_grid(named(Plane(), "lat", name), (-5, -4, 60, 62), 0.5)
    assert grid["mean"].dims == ("lat", name)
    assert grid["mean"].sel({name: -4.5, "lat": 61}) == 61 + 10 * -4.5


def test_names_that_clash_are_told_apart():
    grid = predict_grid(named(Plane(3), "mean", "x [m]", "x [km]"), (0, 1, 0, 1, 0, 1), 1)
    assert grid["mean"].dims == ("x_", "x", "mean_")


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("depth", ("depth", None)),
        ("depth [m]", ("depth", "m")),
        ("speed (m/s)", ("speed", "m/s")),
        ("depth_m", ("depth_m", None)),
        ("[m]", ("[m]", None)),
    ],
)
def test_units_are_read_from_brackets_only(text, label):
    assert Label.parsed(text) == label


def test_attributes_say_where_the_grid_is_from():
    grid = predict_grid(fitted(published), REGION, SPACING)
    assert grid.attrs["Conventions"] == "CF-1.8"
    assert re.match(r"wgpr \d.*: WGPRegressor\(.*threshold=1.0\)", grid.attrs["source"])
    assert set(grid["mean"].attrs["ancillary_variables"].split()) == set(grid.data_vars) - {"mean"}


# Files


@pytest.mark.parametrize("at", [None, {"x3": 1.0}])
def test_a_file_keeps_everything(tmp_path, at):
    grid = predict_grid(Plane(2 if at is None else 3), REGION, SPACING, at=at)
    grid.to_netcdf(tmp_path / "map.nc", engine="scipy")
    restored = xr.load_dataset(tmp_path / "map.nc", engine="scipy")
    xr.testing.assert_identical(restored, grid)
    assert restored["model"].dtype == np.int32
    assert "_FillValue" not in restored.x1.encoding


def test_names_in_any_language_can_be_written(tmp_path):
    grid = predict_grid(named(Plane(), "größe / 2", "глубина [м]", target="y [µg]"), REGION, SPACING)
    assert grid.x2.attrs["long_name"] == "глубина"
    grid.to_netcdf(tmp_path / "map.nc", engine="scipy")
    xr.testing.assert_identical(xr.load_dataset(tmp_path / "map.nc", engine="scipy"), grid)


# Errors


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"region": (0, 1)}, "region must be 2 numbers for each input that varies .x1, x2., got 2"),
        ({"region": (0, 1, 0, 1, 0, 1)}, "got 6 numbers"),
        ({"region": (1, 0, 0, 1)}, "region .* got 1 to 0 for x1"),
        ({"region": (0, 1, 2, 2)}, "region .* got 2 to 2 for x2"),
        ({"region": (0, 1, 0, np.nan)}, "region must be finite numbers"),
        ({"region": (0, 1, 0, np.inf)}, "region must be finite numbers"),
        ({"region": "0/1/0/1"}, "region must be finite numbers"),
        ({"region": ("0", "1", "0", "1")}, "region must be finite numbers"),
        ({"region": ((0, 1), (0,))}, "region must be finite numbers"),
        ({"spacing": 0}, "spacing must be above 0"),
        ({"spacing": (0.1, -1)}, "spacing .* got -1 for x2"),
        ({"spacing": 2}, "at most the width of the region, 1, got 2"),
        ({"spacing": (0.1, 0.1, 0.1)}, "spacing must be 1 or 2 numbers, got 3"),
        ({"spacing": np.nan}, "spacing must be finite"),
        ({"spacing": "fine"}, "spacing must be finite"),
        ({"at": {"depth": 1.0}}, "at has no input 'depth'; inputs are x1, x2"),
        ({"at": {2: 1.0}}, "at has no input 2"),
        ({"at": {"x1": 1.0, 0: 1.0}}, "at gives x1 twice"),
        ({"at": {0: 1.0, 1: 1.0}}, "at fixes every input"),
        ({"at": {0: np.nan}}, "at.0. must be finite"),
        ({"at": {0: "deep"}}, "at.0. must be finite"),
    ],
)
def test_bad_arguments_are_named_before_anything_is_predicted(arguments, message):
    model, arguments = Plane(), {"region": (0, 1, 0, 1), "spacing": 0.5} | arguments
    with pytest.raises(ValueError, match=message):
        plan_grid(model, **arguments)
    with pytest.raises(ValueError, match=message):
        predict_grid(model, **arguments)
    assert model.asked == []


def test_a_plan_is_that_of_the_grid_and_learns_nothing():
    model = streamed(published)
    assert model.n_pending_
    n_pending, plan = model.n_pending_, plan_grid(model, REGION, SPACING)
    assert model.n_pending_ == n_pending
    grid = predict_grid(model, REGION, SPACING)
    assert (plan.shape, plan.size) == (grid["mean"].shape, grid["mean"].size)
    np.testing.assert_array_equal(plan.axes[0], grid.x1)


@pytest.mark.parametrize(("at", "n_outside"), [(None, 10), ({"x2": 1.0}, 2), ({"x2": 1.5}, 4)])
def test_nodes_outside_of_the_data_are_counted(at, n_outside):
    region = (-0.5, 1, -0.5, 1) if at is None else (-0.5, 1.0)
    bounds = np.array([[-0.2, 0.0], [0.8, 1.0]])
    assert plan_grid(Plane(), region, 0.5, at=at).n_outside(bounds) == n_outside


def test_inputs_that_are_neither_on_the_grid_nor_fixed_are_named():
    with pytest.raises(ValueError, match=r"\(x1, x2, x3\).*at="):
        predict_grid(Plane(3), (0, 1, 0, 1), 0.1)


@pytest.mark.parametrize("spacing", [None, 0.5])
def test_a_third_input_is_not_gridded_unasked(spacing):
    model = named(Plane(4), "depth [m]", "lat", "lon", "hour")
    advice = r"4 inputs would vary \(lon, depth \[m\], lat, hour\) and a map has 2; .* at={'lat': 0.5, 'hour': 0.5}"
    with pytest.raises(ValueError, match=advice):
        predict_grid(model, spacing=spacing)
    assert model.asked == []
    assert predict_grid(model, spacing=spacing, at={"lat": 0.5, "hour": 0.5})["mean"].dims == ("depth", "lon")


@pytest.mark.parametrize("spacing", [1e-3, (1e-2, 1e-5), 1e-320])
def test_a_grid_that_is_too_fine_is_refused_with_a_spacing_that_would_do(monkeypatch, spacing):
    monkeypatch.setattr(grids, "MOST_NODES", 1000)
    with pytest.raises(ValueError, match="would do") as error:
        predict_grid(Plane(), (0, 1, 0, 1), spacing)
    (enough,) = re.findall("a spacing of (.*) would do", str(error.value))
    assert predict_grid(Plane(), (0, 1, 0, 1), [float(step) for step in enough.split(", ")])["mean"].size > 500
