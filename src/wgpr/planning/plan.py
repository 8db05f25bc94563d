"""`wgpr.plan`: places, survey lines or a path that take most uncertainty out of a map."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from wgpr.checks import require_count, require_number
from wgpr.estimators.base import EnsembleRegressor
from wgpr.estimators.methods import TerritoryMethod
from wgpr.gp.linalg import Array, Indices, one_blas_thread
from wgpr.io.coordinates import coordinates, for_model, for_user
from wgpr.io.grids import Fixed, fixed_columns, have_same_unit, input_names, named, target_name, varying_columns
from wgpr.labels import Label
from wgpr.planning.choice import cells_along, choose_lines, choose_points, length_of
from wgpr.planning.ground import Ground, Polygons, cells_of
from wgpr.planning.route import choose_path
from wgpr.planning.uncertainty import Uncertainty, uncertainty_of

# Most points or lines of one plan.
MOST = 1000

# Tracks (k, 2), and the cells (n,) that each of them measures.
_Proposal = tuple[list[Array], list[Indices]]


@dataclass(frozen=True, eq=False)
class Plan:
    """Where to measure next, in the coordinates of the survey.

    kind : "points", "lines" or "path".
    tracks : (k, d) each: points one by one, the ends of lines, the corners of a path.
    gains : (n,) of each point, line or path: the fraction of the summed variance of the field that it takes out, after
        those before it. Points have the best first.
    before, after : root mean squared standard deviation of the field over the ground: now, and as expected after the
        plan was measured, in the unit of the target. It is also the expected RMSE of the mean.
    places : (m, d) that this is averaged over. length : of all tracks. unit : of it, such as "m".
    names : of the inputs; columns : those that vary, x first; target : what is measured.
    n_rows : that the map had learned.
    """

    kind: str
    tracks: list[Array]
    gains: Array
    before: float
    after: float
    places: Array
    length: float
    unit: str
    names: tuple[str, ...]
    columns: tuple[int, ...]
    target: str
    n_rows: int

    def std_of(self, model: EnsembleRegressor) -> float:
        """What `before` and `after` are, of another model: that which has learned the planned measurements."""
        return mean_std(model, self.places)


def mean_std(model: EnsembleRegressor, places: Array) -> float:
    """Root mean squared standard deviation of the field at places (n, d) of the user."""
    if places.shape[1] != model.n_features_in_:
        raise ValueError(f"the places of the plan have {places.shape[1]} inputs, and the map {model.n_features_in_}")
    _, std = model.predict(named(model, places), return_std=True, latent=True)
    return float(np.sqrt(np.mean(np.square(std))))


def plan(
    model: EnsembleRegressor,
    *,
    points: int | None = None,
    lines: int | None = None,
    budget: float | None = None,
    start: ArrayLike | None = None,
    returns: bool = False,
    spacing: float = 0.0,
    inside: ArrayLike | Polygons | None = None,
    at: Fixed | None = None,
    show: Callable[[float], None] | None = None,
) -> Plan:
    """Plan measurements that take most uncertainty out of a map: one of points, lines, or a path with a budget.

    They minimise the posterior variance of the field, summed over the ground. It does not depend on the values that
    will be measured. The ground is where the data are, or a polygon. Lengths are in metres if the map has a coordinate
    reference system, and in the unit of the inputs otherwise.

    Parameters
    ----------
    model : of the default method, with one or two inputs that vary; a path or lines need two.
    points : number of places, the best first: that with the largest gain.
    lines : number of parallel lines across the ground; spacing : the least distance between them. Of several directions
        that with the largest gain is taken.
    budget : length of a path; start : (2,) where it begins, x first; returns : whether it ends there too.
    inside : (n, 2) corners of a polygon, x first, in the coordinates of the survey; or `Polygons`.
    at : values of inputs that do not vary, by name or column.
    show : is called while a path is planned, with the part of the work that is done, from 0 to 1.

    Examples
    --------
    >>> import numpy as np
    >>> from wgpr import WGPRegressor, plan
    >>> X = np.concatenate([np.linspace(0, 4, 200), np.linspace(6, 10, 200)])[:, None]
    >>> model = WGPRegressor().fit(X, np.sin(3 * X[:, 0]))
    >>> best = plan(model, points=1).tracks[0][0, 0]
    >>> bool(4 < best < 6)
    True
    """
    wish = _Wish(points, lines, budget, start, returns, spacing, show)
    wish.check()
    if not isinstance(model._method(), TerritoryMethod):
        raise ValueError("plan needs a map of the default method, whose uncertainty covers what lies between the data")
    frame = _Frame.of(model, at, needs_lengths=points is None)
    region = None if inside is None else frame.polygons(inside)
    if frame.n_axes == 1 and (points is None or inside is not None):
        raise ValueError("lines, a path and inside need two inputs that vary; use points")
    with one_blas_thread():
        return _planned(model, frame, region, wish)


class _Wish(NamedTuple):
    """What a plan shall have, as `plan` takes it. start : in the axes of the plan, once the ground is known."""

    points: int | None
    lines: int | None
    budget: float | None
    start: Any
    returns: bool
    spacing: float
    show: Callable[[float], None] | None

    def check(self) -> None:
        """Raise an error that names the first wrong argument."""
        if sum(each is not None for each in (self.points, self.lines, self.budget)) != 1:
            raise ValueError("give one of points, lines and budget")
        for name, value in (("points", self.points), ("lines", self.lines)):
            if value is not None:
                require_count(name, value)
                if value > MOST:
                    raise ValueError(f"{name} must be at most {MOST:,}, got {value:,}")
        if self.budget is not None:
            require_number("budget", self.budget, least=0.0)
            if not 0.0 < self.budget < np.inf:
                raise ValueError(f"budget must be a length above 0, got {self.budget}")
            if self.start is None:
                raise ValueError("a path needs a start: the place where it begins")
        elif self.start is not None or self.returns:
            raise ValueError("start and returns are for a path: give a budget too")
        if self.spacing and self.lines is None:
            raise ValueError("spacing is for lines: say how many")
        require_number("spacing", self.spacing, least=0.0)


def _planned(model: EnsembleRegressor, frame: "_Frame", region: Polygons | None, wish: _Wish) -> Plan:
    ground = cells_of(frame.data(), frame.n_axes, region, frame.thinned())
    if wish.points is not None and wish.points > len(ground):
        raise ValueError(f"points must be at most {len(ground):,} here, got {wish.points:,}")
    if wish.budget is not None:
        wish = wish._replace(start=_start(wish, frame, ground))
    measured = ground.nodes[:, None] if wish.points is not None else ground.along_tracks()
    nodes = frame.inputs(measured.reshape(-1, 2)).reshape(*measured.shape[:2], -1)
    targets = frame.inputs(ground.targets)
    uncertainty = uncertainty_of(model, ground, nodes, targets)
    chosen_by = uncertainty.copy()
    if wish.points is None:  # data so far apart cannot tell shorter length-scales across their lines
        least = np.zeros(len(frame.fixed))
        least[frame.columns] = (ground.apart * frame.scale)[: frame.n_axes]
        if (uncertainty.shortest_lengthscales < least).any():
            chosen_by = uncertainty_of(model, ground, nodes, targets, least)
    kind, proposals = _proposals(wish, ground, chosen_by)
    told = [(tracks, _variances(uncertainty.copy(), groups)) for tracks, groups in proposals]
    tracks, variances = min(told, key=lambda each: each[1][-1])
    stds = model.units_.target_unit * np.sqrt(np.array(variances) / len(ground))
    return Plan(
        kind=kind,
        tracks=[frame.for_user(track) for track in tracks],
        gains=gains_of(np.array(variances)),
        before=float(stds[0]),
        after=float(stds[-1]),
        places=frame.for_user(ground.targets),
        length=sum(map(length_of, tracks)),
        unit=frame.unit,
        names=tuple(input_names(model)),
        columns=tuple(frame.columns),
        target=target_name(model),
        n_rows=model.n_samples_seen_,
    )


def _start(wish: _Wish, frame: "_Frame", ground: Ground) -> Array:
    """Where a path begins (2,), in the axes of the plan. An error says if no ground is within the budget."""
    names = ",".join(input_names(frame.model)[column] for column in frame.columns)
    given, budget = _numbers("start", wish.start, 2).reshape(1, 2), wish.budget
    assert budget is not None
    reach = 0.5 * budget if wish.returns else budget
    try:
        place = frame.places(f"start ({names})", given)[0]
    except ValueError as error:
        raise ValueError(f"{error}{_swap_hint(given, frame, ground, reach)}") from error
    apart = ground.distance(place)
    if apart > reach:
        unit, both_ways = f" {frame.unit}".rstrip(), " there and back" if wish.returns else ""
        raise ValueError(
            f"start is {apart:,.4g}{unit} from the nearest ground, which is too far{both_ways} for the budget of "
            f"{budget:,.4g}{unit}; begin nearer to it, with {names} in this order"
            f"{_swap_hint(given, frame, ground, reach)}"
        )
    return place


def _swap_hint(start: Array, frame: "_Frame", ground: Ground, reach: float) -> str:
    """What to add to the fault of a start (1, 2) of the user that has ground within reach if x and y are swapped."""
    swapped = start[:, ::-1]
    try:
        is_near = ground.distance(frame.places("start", swapped)[0]) <= reach
    except ValueError:  # it is no place of the map either
        return ""
    return f"; perhaps they are swapped: {','.join(f'{each:.10g}' for each in swapped[0])} is near" if is_near else ""


def gains_of(variances: Array) -> Array:
    """Fractions (n,) of the first of the summed variances (n + 1,) by which each is less than the one before it."""
    return np.maximum(variances[:-1] - variances[1:], 0.0) / max(variances[0], 1e-300)


def _proposals(wish: _Wish, ground: Ground, uncertainty: Uncertainty) -> tuple[str, list[_Proposal]]:
    """The kind of a plan, and what it may be: lines in several directions, or one set of points, or one path."""
    if wish.points is not None:
        cells = choose_points(uncertainty, wish.points)
        return "points", [([ground.nodes[[cell]] for cell in cells], [np.array([cell]) for cell in cells])]
    if wish.lines is not None:
        sets = choose_lines(uncertainty, wish.lines, wish.spacing)
        return "lines", [([line.ends for line in lines], [line.cells for line in lines]) for lines in sets]
    assert wish.budget is not None
    end, show = wish.start if wish.returns else None, wish.show or (lambda part: None)
    corners = choose_path(uncertainty, wish.start, wish.budget, end, show)
    return "path", [([corners], [cells_along(ground, corners)])]


def _variances(uncertainty: Uncertainty, groups: list[Indices]) -> list[float]:
    """The summed variance, and what is left of it after each of the groups of cells (n,) was measured."""
    variances = [float(uncertainty.variance.sum())]
    for group in groups:
        uncertainty.measure(group)
        variances.append(float(uncertainty.variance.sum()))
    return variances


@dataclass(frozen=True, eq=False)
class _Frame:
    """The axes that a plan is made in: the one or two inputs that vary, x first, in the same unit of length.

    columns : of the inputs that vary; fixed : (d,) values of the others, in the coordinates of the user.
    scale : (2,) units of the model for one of the plan.
    """

    model: EnsembleRegressor
    columns: Sequence[int]
    fixed: Array
    scale: Array
    unit: str

    @classmethod
    def of(cls, model: EnsembleRegressor, at: Fixed | None, *, needs_lengths: bool) -> "_Frame":
        """needs_lengths : whether the plan has lengths, for which both inputs must have one unit."""
        names = input_names(model)
        given: Mapping[int, float] = fixed_columns(names, at)
        columns = varying_columns(model, at)
        if len(columns) > 2:
            others = ", ".join(names[column] for column in columns[2:])
            raise ValueError(f"a plan has at most two inputs that vary; give a value for {others}")
        known = coordinates(model)
        if known is not None and set(columns) != set(known.columns):
            raise ValueError("a plan of a map with coordinates needs both of them to vary")
        fixed = np.zeros(len(names))
        fixed[list(given)] = list(given.values())
        low, high = model.bounds_[:, columns]
        own_names = [names[column] for column in columns]
        units = [Label.parsed(name).unit or "" for name in own_names]
        if needs_lengths and known is None and len(set(units)) > 1:
            raise ValueError("lines and paths need two inputs of the same unit; use points")
        has_one_unit = known is not None or have_same_unit(own_names, np.stack([low, high], axis=1))
        scale = np.ones(2)
        if len(columns) == 2 and not has_one_unit and not needs_lengths:
            scale = np.where(high > low, high - low, 1.0)
        unit = "m" if known is not None else units[0] if has_one_unit or len(columns) == 1 else ""
        return cls(model, columns, fixed, scale, unit)

    @property
    def n_axes(self) -> int:
        return len(self.columns)

    def data(self) -> Array:
        """Places (n, 2) that the map has data near."""
        X = np.concatenate([*self.model.pseudo_inputs_, self.model._state.pending_X])
        places = np.zeros((len(X), 2))
        places[:, : self.n_axes] = X[:, self.columns] / self.scale[: self.n_axes]
        if (places == places[0]).all():
            raise ValueError("the map has data of one place only; measure at others first")
        return places

    def thinned(self) -> Indices:
        """(n,) for each of these places: the number of the model whose rows it stands for, -1 if it is a row."""
        parts = zip(self.model.models_, self.model.pseudo_inputs_, strict=True)
        owners = [np.full(len(Z), k if part.n_seen > len(Z) else -1) for k, (part, Z) in enumerate(parts)]
        return np.concatenate([*owners, np.full(len(self.model._state.pending_X), -1)])

    def inputs(self, places: Array) -> Array:
        """Inputs (n, d) of the model at places (n, 2) of the plan."""
        X = np.tile(self.fixed, (len(places), 1))
        X[:, self.columns] = (places * self.scale)[:, : self.n_axes]
        return X

    def for_user(self, places: Array) -> Array:
        """Inputs (n, d) of the user."""
        return for_user(self.model, self.inputs(places))

    def places(self, name: str, given: Array) -> Array:
        """Where places (n, 2) of the user are in the plan."""
        X = np.tile(self.fixed, (len(given), 1))
        X[:, self.columns] = given
        try:
            return for_model(self.model, X)[:, self.columns] / self.scale
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from error

    def polygons(self, inside: Any) -> Polygons:
        if not isinstance(inside, Polygons):
            inside = Polygons(((_numbers("inside", inside).reshape(-1, 2),),))
        rings = tuple(tuple(self.places("inside", ring) for ring in polygon) for polygon in inside.polygons)
        if not rings or not all(rings) or any(len(ring) < 3 for polygon in rings for ring in polygon):
            raise ValueError("inside must be a polygon of at least three corners, each with x and y")
        polygons = Polygons(rings)
        if polygons.area <= 1e-12 * float(np.ptp(polygons.corners, axis=0).max()) ** 2:
            raise ValueError("inside has no area: its corners lie on a line")
        return polygons


def _numbers(name: str, given: Any, size: int | None = None) -> Array:
    try:
        numbers = np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must be numbers, got {given!r}") from error
    if not np.isfinite(numbers).all() or numbers.size % 2 or not numbers.size or (size and numbers.size != size):
        raise ValueError(f"{name} must be finite numbers, x and y of each place; got {given!r}")
    return numbers
