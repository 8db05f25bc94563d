"""In the field: logs of instruments, coordinates, and grids for GIS. The table of docs/field.md.

    python benchmarks/field.py --data FOLDER [--only "nmea;coordinates"] [--write]

`nmea`: a log of 100,000 sentences, 5 % of them damaged in 17 ways. `coordinates`: Lake Opinicon, whole segments held
out, in degrees, in metres and in kilometres. `rasters`: GeoTIFF, BAG and NetCDF of that map, read back with rasterio.
`windows`: time and memory of a large GeoTIFF. Times are of the processor, on one thread. Three minutes.
"""

import io
import resource
import sys
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from time import process_time

import numpy as np
import pyproj
import rasterio
from sklearn.metrics import root_mean_squared_error

from common import ROOT, put_measured, run_studies
from wgpr import WGPRegressor, predict_at
from wgpr.io.coordinates import coordinates_of
from wgpr.io.grids import plan_grid, predict_grid
from wgpr.io.nmea import NmeaDecoder
from wgpr.io.rasters import MOST_NODES, Mask, write_raster
from wgpr.io.rows import learn_rows
from wgpr.io.track import NO_FIX

sys.path.insert(0, str(ROOT / "tests"))
import nmea_logs

PAGE, BEGIN, END = ROOT / "docs/field.md", "<!-- measured by benchmarks/field.py -->", "<!-- end of field -->"
N_SENTENCES, SHARE = 100_000, 0.05
UTM = "EPSG:32618"
SYSTEMS = {
    "degrees, `--crs EPSG:4326`": ("EPSG:4326", ("longitude", "latitude")),
    "UTM metres, `--crs EPSG:32618`": (UTM, ("easting", "northing")),
    "UTM kilometres, `--crs '+proj=utm +zone=18 +units=km'`": (
        "+proj=utm +zone=18 +datum=WGS84 +units=km", ("x", "y"),
    ),
    "UTM metres without a system": ("", ("easting", "northing")),
}  # fmt: skip

Row = tuple[str, str]


def nmea(folder: Path) -> list[Row]:
    log, reasons, n_depths = nmea_logs.damaged_log(N_SENTENCES, SHARE)
    decoder, started = NmeaDecoder(), process_time()
    rows = list(decoder.read(io.BytesIO(log)))
    seconds = process_time() - started
    counted = {reason: number for reason, (number, _) in decoder.problems.counts.items()}
    n_without_fix = counted.pop(NO_FIX, 0)
    n_right = sum(min(number, counted.get(reason, 0)) for reason, number in reasons.items())
    n_other = sum(counted.values()) - n_right
    n_wrong = int((nmea_logs.distance_from_floor(rows) > 0.1).sum())
    return [
        ("NMEA log: sentences, damaged", f"{N_SENTENCES:,}, {sum(reasons.values()):,}"),
        ("… damaged and counted under the right reason; others counted", f"{n_right:,}; {n_other:,}"),
        ("… rows; whole depths without a row, behind the last fix", f"{len(rows):,} of {n_depths:,}; {n_without_fix}"),
        ("… rows more than 10 cm from the floor: learned damage", f"{n_wrong}"),
        ("… sentences a second; rows a second", f"{N_SENTENCES / seconds:,.0f}; {len(rows) / seconds:,.0f}"),
    ]


@lru_cache
def lake(folder: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Easting and northing in whole millimetres, depth, and which rows are held out."""
    with np.load(folder / "bathymetry_opinicon.npz") as file:
        return np.round(1e3 * file["X_km"] + file["utm_offset_m"], 3), file["y"], file["segment"] % 5 == 2


def in_system(X: np.ndarray, crs: str) -> np.ndarray:
    transformer = pyproj.Transformer.from_crs(UTM, crs or UTM, always_xy=True)
    return np.column_stack(transformer.transform(*X.T)) if crs not in ("", UTM) else X


@lru_cache
def learned(folder: Path, crs: str, names: Sequence[str]) -> WGPRegressor:
    X, y, is_held = lake(folder)
    model = WGPRegressor(random_state=0)
    if crs:
        model.crs_ = coordinates_of(crs, names)
    learn_rows(model, np.column_stack([in_system(X, crs), y])[~is_held], None, [*names, "depth"])
    return model


def coordinates(folder: Path) -> list[Row]:
    X, y, is_held = lake(folder)
    rows = []
    for told, (crs, names) in SYSTEMS.items():
        model = learned(folder, crs, names)
        error = root_mean_squared_error(y[is_held], predict_at(model, in_system(X, crs)[is_held]))
        facts = f"{model.n_models_}; {len(model.history_)}; {error:.6f} m"
        rows.append((f"Lake Opinicon in {told}: models; records; RMSE", facts))
    records = [
        [(record.n_samples, record.changes) for record in learned(folder, *SYSTEMS[told]).history_]
        for told in [*SYSTEMS][:3]
    ]
    same = "the same" if records[0] == records[1] == records[2] else "different"
    return [*rows, ("… decisions of the first three", same)]


def rasters(folder: Path) -> list[Row]:
    crs, names = SYSTEMS["degrees, `--crs EPSG:4326`"]
    model = learned(folder, crs, names)
    plan, rows = plan_grid(model), []
    with TemporaryDirectory() as temporary:
        for ending in (".tif", ".bag", ".nc"):
            path = Path(temporary) / f"lake{ending}"
            if ending == ".nc":
                predict_grid(model).to_netcdf(path, engine="scipy")
            else:
                write_raster(path, path, model, plan, Mask(distance=100.0))
            with rasterio.open(f"netcdf:{path}:mean" if ending == ".nc" else path) as file:
                mean = file.read(1).ravel()
                lines, columns = np.divmod(np.arange(len(mean)), file.width)
                places = np.column_stack(file.xy(lines, columns))
                code = pyproj.CRS(file.crs.to_wkt()).to_2d().to_epsg()
                has_data = np.isfinite(mean) & (mean != file.nodata)
                nodata = file.nodata
            expected = predict_at(model, places[has_data]).astype(np.float32)
            largest = np.abs(np.abs(mean[has_data].astype(np.float32)) - np.abs(expected)).max()
            facts = f"{largest:.1g} m; {(~has_data).mean():.0%}, {nodata:g}; EPSG:{code}"
            rows.append((f"{ending} read back: greatest difference from `predict`; no data; system", facts))
    return rows


def windows(folder: Path) -> list[Row]:
    crs, names = SYSTEMS["UTM metres, `--crs EPSG:32618`"]
    model = learned(folder, crs, names)
    plan = plan_grid(model, spacing=2.5, max_nodes=MOST_NODES)
    predict_at(model, [[394_000.0, 4_934_500.0]])
    before, started = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, process_time()
    with TemporaryDirectory() as temporary:
        path = Path(temporary) / "lake.tif"
        write_raster(path, path, model, plan, Mask())
        size = path.stat().st_size
    more = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    told = f"GeoTIFF of {' x '.join(map(str, plan.shape))} nodes: time; size; memory beyond that of the map"
    return [(told, f"{process_time() - started:.0f} s; {size / 1e6:.0f} MB; {more:.0f} MB")]


STUDIES = {"nmea": nmea, "coordinates": coordinates, "windows": windows, "rasters": rasters}


if __name__ == "__main__":
    with suppress(BrokenPipeError):
        table = run_studies(__doc__, STUDIES, "docs/field.md")
        if table is not None:
            put_measured(PAGE, BEGIN, END, table)
