"""Files of plans: GeoJSON, CSV, and missions for QGroundControl and other programs that speak MAVLink."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from wgpr.estimators.base import LARGEST
from wgpr.gp.linalg import Array
from wgpr.io.coordinates import WGS84, Coordinates
from wgpr.io.files import replace_file
from wgpr.planning.ground import Polygons
from wgpr.planning.plan import Plan

# Places of a plan's ground that a file keeps, so that what was expected can be checked later.
_N_PLACES = 1000

# Largest file that is read. JSON takes up to 25 times as much memory as its text.
_MOST_BYTES = 1 << 25
# GeoJSON has features in collections, and geometries in features; collections in collections are hardly used.
_DEEPEST = 20

# Of MAVLink: a waypoint, at a height above home; and of QGroundControl's plans: a generic autopilot, a boat.
_WAYPOINT, _RELATIVE_HEIGHT = 16, 3
_AUTOPILOT, _BOAT = 0, 11

# Formats that need longitude and latitude.
_MISSIONS = (".waypoints", ".plan")


class Expectation(NamedTuple):
    """What a plan expected: root mean squared standard deviations, at places (m, d) of the user.

    names : of the inputs; system : name of their coordinate reference system, empty without one; n_rows : that the map
        had learned.
    """

    before: float
    after: float
    places: Array
    names: tuple[str, ...]
    system: str
    n_rows: int

    def check_map(self, names: Sequence[str], known: Coordinates | None) -> None:
        """Raise an error if the plan is that of another map than one with these inputs and coordinates."""
        own, other = (
            f"{', '.join(inputs)} in {system or 'no reference system'}"
            for inputs, system in ((self.names, self.system), (names, _name_of(known)))
        )
        if own != other:
            raise ValueError(f"the plan is of another map: its inputs are {own}, and those of the map {other}")


def write_plan(path: Path, plan: Plan, known: Coordinates | None) -> None:
    """Write a plan in the format of the name."""
    check_format(path, plan.columns, known)
    with replace_file(path) as temporary:
        _WRITERS[path.suffix.lower()](temporary, plan, known)


def check_format(path: Path, columns: tuple[int, ...], known: Coordinates | None) -> None:
    """Raise an error if a plan cannot be written in the format of the name."""
    ending = path.suffix.lower()
    if ending not in _WRITERS:
        raise ValueError(f"{path} cannot be written; its name must end with {' or '.join(_WRITERS)}")
    if len(columns) < 2 and ending != ".csv":
        raise ValueError(f"a plan of one input is no place on a map; write .csv instead of {ending}")
    if known is None and ending in _MISSIONS:
        fault = "a mission needs longitude and latitude, and the map has no coordinate reference system"
        raise ValueError(f"{fault}; say it with wgpr update MAP --crs, or with wgpr fit --crs for degrees")


def geojson(plan: Plan, known: Coordinates | None) -> dict[str, Any]:
    """A plan as GeoJSON (RFC 7946): longitude and latitude of WGS 84, if the coordinates are known."""
    features = []
    for number, (track, gain) in enumerate(zip(_tracks(plan, known), plan.gains.tolist(), strict=True), start=1):
        kind, places = ("Point", track[0]) if plan.kind == "points" else ("LineString", track)
        rounded = places if known is None else places.round(9)  # degrees to a tenth of a millimetre
        geometry = {"type": kind, "coordinates": rounded.tolist()}
        features.append({"type": "Feature", "properties": {"number": number, "gain": gain}, "geometry": geometry})
    step = -(-len(plan.places) // _N_PLACES)
    about = {
        "kind": plan.kind,
        "length": plan.length,
        "unit": plan.unit,
        "target": plan.target,
        "std_before": plan.before,
        "std_after": plan.after,
        "inputs": list(plan.names),
        "crs": _name_of(known),
        "rows": plan.n_rows,
        "places": plan.places[::step].tolist(),
    }
    return {"type": "FeatureCollection", "features": features, "wgpr": about}


def read_expectation(path: Path) -> Expectation:
    """What the plan of a GeoJSON file expected."""
    about = _read_json(path).get("wgpr", {})
    try:
        places = np.asarray(about["places"], dtype=np.float64)
        names, system = tuple(map(str, about["inputs"])), str(about["crs"])
        found = Expectation(
            float(about["std_before"]), float(about["std_after"]), places, names, system, int(about["rows"])
        )
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"{path} is no plan of wgpr next in GeoJSON; name one that it wrote") from error
    if places.ndim != 2 or not len(places) or not (np.abs(places) <= LARGEST).all():  # false for NaN
        raise ValueError(f"{path} has places that are no numbers; make the plan again")
    if not (0.0 <= found.before < np.inf and 0.0 <= found.after < np.inf):
        raise ValueError(f"{path} has a standard deviation that is none; make the plan again")
    return found


def _name_of(known: Coordinates | None) -> str:
    return "" if known is None else known.name


def read_polygons(path: Path, known: Coordinates | None) -> Polygons:
    """The polygons of a GeoJSON file, in the coordinates of the user.

    known : of the map; then the file has longitude and latitude, as the format says. Otherwise it has the map's.
    """
    found = tuple(_rings(path, polygon, known) for polygon in _polygons(path, _read_json(path)))
    if not found:
        raise ValueError(f"{path} has no polygon; draw one, and save it as GeoJSON")
    return Polygons(found)


def _rings(path: Path, polygon: Any, known: Coordinates | None) -> tuple[Array, ...]:
    try:
        rings = [np.asarray(ring, dtype=np.float64)[:, :2] for ring in polygon]
    except (TypeError, ValueError, IndexError) as error:
        raise ValueError(f"{path} has a polygon without numbers for its corners") from error
    if not rings or any(len(ring) < 3 or ring.shape[1] < 2 or not (abs(ring) <= LARGEST).all() for ring in rings):
        raise ValueError(f"{path} has a polygon with fewer than three corners, or without numbers")
    if known is not None:
        rings = [np.column_stack(known.from_system(ring[:, 0], ring[:, 1], WGS84)) for ring in rings]
    return tuple(rings)


def _polygons(path: Path, found: Any, depth: int = 0) -> list[Any]:
    """Coordinates of all polygons of a GeoJSON object."""
    if not isinstance(found, Mapping):
        return []
    if depth > _DEEPEST:
        raise ValueError(f"{path} has collections in collections, more than {_DEEPEST} deep; save its polygons alone")
    kind = found.get("type")
    if kind == "Polygon":
        return [found.get("coordinates")]
    if kind == "MultiPolygon":
        return _list(found.get("coordinates"))
    parts = [*_list(found.get("features")), *_list(found.get("geometries")), found.get("geometry")]
    return [polygon for part in parts for polygon in _polygons(path, part, depth + 1)]


def _list(found: Any) -> list[Any]:
    return found if isinstance(found, list) else []


def _read_json(path: Path) -> dict[str, Any]:
    if (n_bytes := path.stat().st_size) > _MOST_BYTES:
        raise ValueError(f"{path} has {n_bytes:,} bytes, and at most {_MOST_BYTES:,} are read; simplify its polygons")
    try:
        # Integers become floats: those of many digits become infinite, which is refused where numbers are used.
        found = json.loads(path.read_text(encoding="utf-8-sig"), parse_int=float)
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise ValueError(f"{path} is no GeoJSON ({error}); save it as GeoJSON in UTF-8") from error
    if not isinstance(found, dict):
        raise ValueError(f"{path} is no GeoJSON")
    return found


# Formats


def _tracks(plan: Plan, known: Coordinates | None) -> list[Array]:
    """Places (k, 2) of each track: longitude and latitude, if the coordinates are known."""
    tracks = [track[:, plan.columns] for track in plan.tracks]
    if known is None:
        return tracks
    return [np.column_stack(known.transformed(track[:, 0], track[:, 1], WGS84)) for track in tracks]


def _visited(plan: Plan, known: Coordinates | None) -> Array:
    """All places (n, 2) in an order to drive: from each to the nearest point or line that is left."""
    left = _tracks(plan, known)
    shrink = np.array([np.cos(np.radians(left[0][0, 1])), 1.0])  # a degree of longitude is shorter
    visited = [left.pop(0)]
    while left:
        apart = [[np.linalg.norm(shrink * (track[end] - visited[-1][-1])) for end in (0, -1)] for track in left]
        number, end = divmod(int(np.argmin(apart)), 2)
        track = left.pop(number)
        visited.append(track[::-1] if end else track)
    return np.concatenate(visited)


def _write_geojson(path: Path, plan: Plan, known: Coordinates | None) -> None:
    path.write_text(json.dumps(geojson(plan, known)), encoding="utf-8")


def _write_csv(path: Path, plan: Plan, known: Coordinates | None) -> None:
    """Inputs of the user, a row for each place; `number` is that of its point, line or path."""
    import pandas as pd

    numbers = np.repeat(np.arange(len(plan.tracks)), [len(track) for track in plan.tracks])
    frame = pd.DataFrame(np.concatenate(plan.tracks), columns=list(plan.names))
    frame.insert(0, "number", numbers + 1)
    frame["gain"] = plan.gains[numbers]
    frame.to_csv(path, index=False)


def _write_waypoints(path: Path, plan: Plan, known: Coordinates | None) -> None:
    """The plain text of MAVLink ground stations (QGC WPL 110). Item 0 is home."""
    places = _visited(plan, known)
    lines = ["QGC WPL 110"]
    for number, (longitude, latitude) in enumerate([places[0], *places]):
        frame = 0 if number == 0 else _RELATIVE_HEIGHT
        fields = (number, int(number == 0), frame, _WAYPOINT, 0, 0, 0, 0, f"{latitude:.8f}", f"{longitude:.8f}")
        lines.append("\t".join(map(str, (*fields, 0, 1))))
    path.write_text("\n".join(lines) + "\n", encoding="ascii")


def _write_mission(path: Path, plan: Plan, known: Coordinates | None) -> None:
    """The JSON of QGroundControl."""
    places = _visited(plan, known)
    items = [
        {
            "type": "SimpleItem", "command": _WAYPOINT, "frame": _RELATIVE_HEIGHT, "autoContinue": True,
            "doJumpId": number, "AMSLAltAboveTerrain": None, "Altitude": 0, "AltitudeMode": 1,
            "params": [0, 0, 0, None, round(latitude, 8), round(longitude, 8), 0],
        }
        for number, (longitude, latitude) in enumerate(places.tolist(), start=1)
    ]  # fmt: skip
    mission = {
        "version": 2, "firmwareType": _AUTOPILOT, "vehicleType": _BOAT, "cruiseSpeed": 2, "hoverSpeed": 2,
        "globalPlanAltitudeMode": 1, "plannedHomePosition": [*places[0][::-1].round(8).tolist(), 0.0], "items": items,
    }  # fmt: skip
    whole = {
        "fileType": "Plan", "version": 1, "groundStation": "QGroundControl", "mission": mission,
        "geoFence": {"version": 2, "circles": [], "polygons": []}, "rallyPoints": {"version": 2, "points": []},
    }  # fmt: skip
    path.write_text(json.dumps(whole, indent=1), encoding="utf-8")


_WRITERS: dict[str, Callable[[Path, Plan, Coordinates | None], None]] = {
    ".geojson": _write_geojson,
    ".csv": _write_csv,
    ".waypoints": _write_waypoints,
    ".plan": _write_mission,
}
FORMATS = tuple(_WRITERS)
