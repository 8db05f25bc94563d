"""Grids for GIS: GeoTIFF, BAG and NetCDF are read back with rasterio; masks; contours."""

import json
import sqlite3
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from scipy.spatial import cKDTree

import nmea_logs as logs
from wgpr import WGPRegressor, checks, load, predict_at
from wgpr.io import rasters
from wgpr.io.contours import Contour, contours_of, levels_between, write_geopackage
from wgpr.io.coordinates import coordinates_of, user_bounds
from wgpr.io.grids import plan_grid, predict_grid
from wgpr.io.rasters import Mask, write_raster
from wgpr.io.rows import learn_rows

rasterio = pytest.importorskip("rasterio", reason='needs pip install "wgpr[geo]"')
pyproj = pytest.importorskip("pyproj", reason='needs pip install "wgpr[geo]"')
pytestmark = [
    pytest.mark.filterwarnings("ignore::rasterio.errors.NotGeoreferencedWarning"),
    pytest.mark.filterwarnings("ignore::PendingDeprecationWarning"),  # rasterio uses a newer affine in the old way
]

REGION = "-76.331,-76.321,44.559,44.563"


def survey(n=400):
    longitude, latitude = logs.position(np.arange(0.0, 4.0 * n, 4.0))
    return np.column_stack([longitude, latitude, logs.floor(longitude, latitude)])


def learned(crs="EPSG:4326", names=("longitude", "latitude", "depth [m]"), n=400):
    rows = survey(n)
    if crs != "EPSG:4326":
        transformer = pyproj.Transformer.from_crs(4326, 32618, always_xy=True)
        rows[:, 0], rows[:, 1] = transformer.transform(rows[:, 0], rows[:, 1])
    model = WGPRegressor(random_state=0)
    model.crs_ = coordinates_of(crs, names[:-1]) if crs else None
    learn_rows(model, rows, None, names)
    return model


@pytest.fixture(scope="module")
def maps(tmp_path_factory):
    """A folder with maps in degrees and in metres, and one without a system."""
    folder = tmp_path_factory.mktemp("maps")
    learned().save(folder / "degrees.map")
    learned("EPSG:32618", ("easting", "northing", "depth [m]")).save(folder / "metres.map")
    learned("", ("x", "y", "depth")).save(folder / "plain.map")
    learned(names=("longitude", "latitude", "salinity")).save(folder / "salinity.map")
    return folder


@pytest.fixture(autouse=True)
def _folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def nodes(file):
    """Places of the middle of all pixels, (n, 2)."""
    columns, rows = np.meshgrid(np.arange(file.width), np.arange(file.height))
    x, y = file.xy(rows.ravel(), columns.ravel())
    return np.column_stack([x, y])


@pytest.mark.parametrize(("name", "code"), [("degrees", 4326), ("metres", 32618)])
@pytest.mark.parametrize("ending", [".tif", ".bag"])
def test_a_raster_equals_predictions_at_its_pixels(wgpr, maps, name, code, ending):
    model = load(maps / f"{name}.map")
    low, high = user_bounds(model)
    region = ",".join(map(str, np.column_stack([low - 0.3 * (high - low), high + 0.3 * (high - low)]).ravel()))
    arguments = ["grid", maps / f"{name}.map", "-o", f"a{ending}", f"--region={region}", "--mask-distance", 25]
    code_, _, told = wgpr(*arguments)
    assert code_ == 0, told
    with rasterio.open(f"a{ending}") as file:
        assert pyproj.CRS(file.crs.to_wkt()).to_2d().to_epsg() == code
        places, (mean, std) = nodes(file), file.read().reshape(2, -1)
        nodata, names, units = file.nodata, file.descriptions, file.units
        structure = file.tags(ns="IMAGE_STRUCTURE")
    has_data = ~np.isnan(mean) if ending == ".tif" else mean != nodata
    assert 0.2 < has_data.mean() < 0.95
    expected, expected_std = predict_at(model, places, return_std=True)
    sign = 1 if ending == ".tif" else -1
    np.testing.assert_allclose(sign * mean[has_data], expected[has_data].astype(np.float32), rtol=1e-5)
    np.testing.assert_allclose(std[has_data], expected_std[has_data].astype(np.float32), rtol=1e-5)
    metres = model.crs_.to_model(places)
    apart = np.linalg.norm(metres[:, None] - np.concatenate(model.pseudo_inputs_)[None], axis=2).min(axis=1)
    assert has_data[apart < 24.99].all()
    west_south, east_north = model.bounds_
    outside = np.maximum(np.maximum(west_south - metres, metres - east_north), 0.0).max(axis=1)
    assert not has_data[outside > 25.01].any()
    if ending == ".tif":
        assert np.isnan(nodata)
        assert names == ("mean", "std")
        assert units == ("m", "m")
        assert structure["LAYOUT"] == "COG"
    else:
        assert nodata == 1e6
        assert names == ("elevation", "uncertainty")


def test_windows_make_one_picture_in_bounded_memory(maps, monkeypatch, tmp_path):
    monkeypatch.setattr(rasters, "_WINDOW", 64)
    model = load(maps / "degrees.map")
    plan = plan_grid(model, [-76.331, -76.321, 44.559, 44.563], [5e-5, 4e-5])
    shown = []
    tracemalloc.start()
    write_raster(tmp_path / "a.tif", tmp_path / "b.tif", model, plan, Mask(), shown.append)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert shown[-1] == plan.size
    assert len(shown) > 3
    assert peak < 30e6
    grid = predict_grid(model, [-76.331, -76.321, 44.559, 44.563], [5e-5, 4e-5])
    with rasterio.open(tmp_path / "b.tif") as file:
        np.testing.assert_allclose(file.read(1), grid["mean"].to_numpy()[::-1], rtol=1e-6)
        np.testing.assert_allclose(file.read(2), grid["std"].to_numpy()[::-1], rtol=1e-6)


def test_a_raster_may_have_more_nodes_than_memory(maps):
    model = load(maps / "metres.map")
    with pytest.raises(ValueError, match="50,000,000 are the most"):
        plan_grid(model, spacing=0.03)
    assert plan_grid(model, spacing=0.03, max_nodes=rasters.MOST_NODES).size > 5e7


def test_mask_of_uncertain_nodes(wgpr, maps):
    assert wgpr("grid", maps / "degrees.map", "-o", "a.tif", "--region", REGION)[0] == 0
    with rasterio.open("a.tif") as file:
        std = file.read(2)
    limit = float(np.median(std))
    for ending in ("tif", "nc"):
        code, _, told = wgpr("grid", maps / "degrees.map", "-o", f"b.{ending}", "--region", REGION, "--mask-std", limit)
        assert code == 0
        assert "50% without data" in told
    with rasterio.open("b.tif") as file:
        np.testing.assert_array_equal(np.isnan(file.read(1)), std > np.float32(limit))
    assert np.isnan(xr.load_dataset("b.nc", engine="scipy")["mean"]).mean() == pytest.approx(0.5, abs=0.01)


@pytest.mark.parametrize(("name", "code"), [("degrees", 4326), ("metres", 32618)])
def test_netcdf_has_a_grid_mapping(wgpr, maps, name, code):
    assert wgpr("grid", maps / f"{name}.map", "-o", "a.nc")[0] == 0
    grid = xr.load_dataset("a.nc", engine="scipy", decode_coords="all")
    assert pyproj.CRS.from_cf(grid["crs"].attrs).to_epsg() == code
    assert grid["mean"].encoding["grid_mapping"] == "crs"
    y, x = grid["mean"].dims
    standard = ("longitude", "latitude") if code == 4326 else ("projection_x_coordinate", "projection_y_coordinate")
    assert (grid[x].attrs["standard_name"], grid[y].attrs["standard_name"]) == standard
    with rasterio.open("netcdf:a.nc:mean") as file:
        assert file.crs.to_epsg() == code
        place = file.xy(7, 11)
        expected = predict_at(load(maps / f"{name}.map"), [place])[0]
        assert file.read(1)[7, 11] == pytest.approx(expected, rel=1e-6)


def test_a_map_without_a_system(wgpr, maps):
    assert wgpr("grid", maps / "plain.map", "-o", "a.nc")[0] == 0
    assert "crs" not in xr.load_dataset("a.nc", engine="scipy")
    code, _, told = wgpr("grid", maps / "plain.map", "-o", "a.tif")
    assert code == 0
    assert "has no coordinate reference system" in told
    code, _, told = wgpr("grid", maps / "plain.map", "-o", "a.bag")
    assert code == 2
    assert "a BAG needs a coordinate reference system" in told


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["grid", "degrees.map", "-o", "a.png"], "must end with .tif or .tiff or .bag or .nc"),
        (["grid", "degrees.map", "-o", "a.tif", "--mask-std", "0"], "--mask-std must be a number above 0"),
        (["grid", "degrees.map", "-o", "a.tif", "--mask-distance", "-1"], "--mask-distance must be a number above 0"),
        (["grid", "degrees.map", "-o", "a.tif", "--mask-distance", "5 parsecs"], "--mask-distance"),
        (["grid", "degrees.map", "-o", "a.tif", "--at", "latitude=44.56"], "a raster has two inputs that vary"),
        (["grid", "salinity.map", "-o", "a.bag"], "a BAG has elevations, and the target is salinity"),
        (["contours", "degrees.map", "--interval", "0", "-o", "a.gpkg"], "--interval must be a number above 0"),
        (["contours", "degrees.map", "--interval", "1e-6", "-o", "a.gpkg"], "more than 1,000 levels"),
        (["contours", "degrees.map", "--interval", "1", "--base", "nan", "-o", "a.gpkg"], "--base must be finite"),
        (["contours", "degrees.map", "--interval", "1", "-o", "a.shp"], "must end with .geojson or .gpkg"),
    ],
)
def test_wrong_use(wgpr, maps, arguments, message):
    code, _, told = wgpr(arguments[0], maps / arguments[1], *arguments[2:])
    assert code == 2
    assert message in told


def test_without_rasterio_the_extra_is_named(wgpr, maps, monkeypatch):
    def missing(name):
        raise ImportError(name)

    monkeypatch.setattr(checks, "import_module", missing)
    code, _, told = wgpr("grid", maps / "degrees.map", "-o", "a.tif")
    assert code == 1
    assert 'install it with pip install "wgpr[geo]"' in told


# Contours


def test_levels():
    assert levels_between(0.3, 2.1, 0.5) == [0.5, 1.0, 1.5, 2.0]
    assert levels_between(-1.2, 1.2, 1.0, base=0.25) == [-0.75, 0.25]
    assert levels_between(0.0, 7e-13, 2.5e-13) == [0.0, 2.5e-13, 5e-13]
    assert levels_between(-0.05, 0.35, 0.1, base=0.3) == [0.0, 0.1, 0.2, 0.3]


def test_contours_are_at_their_level(maps):
    model = load(maps / "degrees.map")
    grid = predict_grid(model, [-76.3305, -76.3225, 44.5600, 44.5625])
    lines = list(contours_of(grid, 1.0))
    assert len(lines) > 3
    for line in lines:
        np.testing.assert_allclose(predict_at(model, line.places), line.level, atol=0.05)


def test_a_grid_without_data_has_no_lines(wgpr, maps):
    grid = predict_grid(load(maps / "plain.map"))
    assert list(contours_of(grid.where(False), 1.0)) == []
    code, _, told = wgpr("contours", maps / "plain.map", "--interval", 1, "--mask-std", 1e-6, "-o", "a.gpkg")
    assert (code, "the mask leaves no data" in told) == (1, True)


@pytest.mark.parametrize(("name", "code"), [("degrees", 4326), ("metres", 32618)])
def test_contours_as_files(wgpr, maps, name, code):
    arguments = ["contours", maps / f"{name}.map", "--interval", 1, "--mask-distance", 40]
    assert wgpr(*arguments, "-o", "a.geojson")[0] == 0
    with open("a.geojson") as file:
        features = json.load(file)["features"]
    assert {feature["properties"]["depth"] for feature in features} >= {10.0, 12.0, 15.0}
    places = np.concatenate([feature["geometry"]["coordinates"] for feature in features])
    assert (np.abs(places - [logs.LONGITUDE, logs.LATITUDE]) < 0.02).all()
    assert wgpr(*arguments, "-o", "a.gpkg")[0] == 0
    database = sqlite3.connect("a.gpkg")
    n_lines, srs = database.execute("SELECT count(*), (SELECT srs_id FROM gpkg_contents) FROM contours").fetchone()
    database.close()
    assert (n_lines, srs) == (len(features), code)


@pytest.mark.parametrize("name", ["fid", "Geom", '"'])
def test_a_target_with_the_name_of_a_column_of_geopackages(name, tmp_path):
    write_geopackage(tmp_path / "a.gpkg", [Contour(1.0, np.eye(2))], name, None)
    database = sqlite3.connect(tmp_path / "a.gpkg")
    columns = [row[1] for row in database.execute("PRAGMA table_info(contours)")]
    database.close()
    assert columns == ["fid", "geom", "_" if name == '"' else f"{name}_"]


def test_contours_of_a_map_without_a_system(wgpr, maps):
    code, _, told = wgpr("contours", maps / "plain.map", "--interval", 1, "-o", "a.gpkg")
    assert code == 0
    assert "has no coordinate reference system" in told
    database = sqlite3.connect("a.gpkg")
    assert database.execute("SELECT count(DISTINCT depth) FROM contours").fetchone()[0] > 3
    database.close()


def test_smooth_ground_between_pseudo_inputs_is_not_masked():
    """A smooth survey is kept in few pseudo-inputs, which are farther apart than its lines."""
    rng = np.random.default_rng(0)
    X = np.stack(np.meshgrid(np.arange(0.0, 2000.0, 100.0), np.arange(0.0, 1000.0, 10.0)), axis=-1).reshape(-1, 2)
    X = X[np.lexsort((X[:, 1], X[:, 0]))]
    model = WGPRegressor().fit(X, np.sin(X[:, 0] / 900.0) + np.cos(X[:, 1] / 700.0) + rng.normal(0.0, 0.1, len(X)))
    assert sum(map(len, model.pseudo_inputs_)) < len(X) / 10
    is_masked = Mask(distance=50.0).finder(model, plan_grid(model, spacing=100.0))
    around = rng.uniform([-1000.0, -1000.0], [3000.0, 2000.0], (5000, 2))
    from_rows = cKDTree(X).query(around)[0]
    masked = is_masked(around, np.zeros(len(around)))
    assert is_masked(X, np.zeros(len(X))).mean() < 0.05
    assert masked[from_rows < 50.0].mean() < 0.05
    assert masked[from_rows > 100.0].all()


def test_the_mask_is_in_the_plane_of_the_grid(wgpr, tmp_path, monkeypatch):
    """Here the other inputs than the first; a distance has their unit, which must be one."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    rows = np.column_stack([rng.uniform(0.0, 5.0, 200), *rng.uniform(0.0, 1.0, (2, 200)), rng.normal(size=200)])
    for name, unit in (("a", "km"), ("b", "m")):
        x = f"draught [m],east [km],north [{unit}]"
        np.savetxt(f"{name}.csv", rows, delimiter=",", header=f"{x},speed", comments="")
        assert wgpr("fit", f"{name}.csv", "--x", x, "--y", "speed", "-o", f"{name}.map")[0] == 0
    options = ["--at", "draught [m]=2", "--region", "0,3,0,3", "--spacing", 0.05, "--mask-distance"]
    for number, distance in enumerate((0.5, "500m", "0.5km")):
        code, _, told = wgpr("grid", "a.map", *options, distance, "-o", f"{number}.nc")
        assert (code, "% without data" in told) == (0, True), told
    with xr.open_dataset("0.nc") as one, xr.open_dataset("1.nc") as two, xr.open_dataset("2.nc") as three:
        xr.testing.assert_equal(one, two)
        xr.testing.assert_equal(one, three)
        has_data = np.isfinite(one["mean"]).mean()
    assert 1.0 / 9.0 < has_data < 3.0 / 9.0  # the square of the rows, with a margin
    code, _, told = wgpr("grid", "b.map", *options, "500m", "-o", "b.nc")
    assert (code, "the inputs have different units; give a number without a unit" in told) == (2, True), told


def test_a_few_rows_are_masked_by_their_distance_too(wgpr, tmp_path, monkeypatch):
    """So few rows that there is no local model yet."""
    monkeypatch.chdir(tmp_path)
    Path("few.csv").write_text(
        "east,north,depth\n" + "\n".join(f"{380_000 + k},{4_930_000 + k % 3},{k}" for k in range(8))
    )
    assert wgpr("fit", "few.csv", "--x", "east,north", "--y", "depth", "--crs", "EPSG:32618", "-o", "few.map")[0] == 0
    for number, distance in enumerate((1, "1m", "0.001km")):
        code_, _, told = wgpr("grid", "few.map", "--mask-distance", distance, "-o", f"few{number}.tif")
        assert code_ == 0, told
    assert Path("few0.tif").read_bytes() == Path("few1.tif").read_bytes() == Path("few2.tif").read_bytes()
