"""`wgpr info` and `wgpr plot`: the contents of a map as text, as JSON and as a picture."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any
from warnings import catch_warnings

import numpy as np
import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from wgpr.cli import options as opt
from wgpr.cli.columns import columns_of_map, inputs_of_map
from wgpr.cli.console import inform, print_json, stdout
from wgpr.cli.lengths import parse_spacing, steps_of
from wgpr.cli.query import learn_waiting_rows, read_all
from wgpr.cli.saving import read_map
from wgpr.cli.settings import open_table
from wgpr.ensemble.evaluation import StepRecord
from wgpr.estimators.base import EnsembleRegressor
from wgpr.estimators.regressors import settings_without_effect
from wgpr.gp.linalg import Array
from wgpr.io import container
from wgpr.io.coordinates import boxes_for_user, user_bounds
from wgpr.io.files import replace_file
from wgpr.io.grids import input_names, plan_grid, target_name
from wgpr.io.tables import expand

_MODELS_SHOWN, _STEPS_SHOWN = 20, 5


def info(map_file: opt.MapFile, as_json: opt.AsJson = False) -> None:
    """Print what is in a map: settings, models, extents, size, last steps."""
    model, compact = read_map(map_file), container.read(map_file).header.get("compact", False)
    content = summarize(model, map_file.stat().st_size, compact=compact)
    if as_json:
        print_json(content)
    else:
        print_summary(content, stdout)


def summarize(model: EnsembleRegressor, n_bytes: int, *, compact: bool = False) -> dict[str, Any]:
    """The contents of a map as JSON values. n_bytes : size of its file; compact : whether that is a compact one."""
    return {
        "estimator": type(model).__name__,
        "settings": {name: _plain(value) for name, value in model.get_params(deep=False).items()},
        "without_effect": list(settings_without_effect(model)),
        "inputs": input_names(model),
        "target": target_name(model),
        "samples": model.n_samples_seen_,
        "waiting": model.n_pending_,
        "steps": model._state.n_steps,
        "bytes": n_bytes,
        "compact": compact,
        "crs": None if model.crs_ is None else str(model.crs_),
        "extent": user_bounds(model).T.tolist(),
        "extent_is_exact": model.crs_ is None or not model.crs_.is_geographic,
        "models": _summarize_models(model) if model.n_models_ else [],
        "last_steps": [_summarize_step(record) for record in model.history_[-_STEPS_SHOWN:]],
    }


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not np.isfinite(value):
        return str(value)
    return value if isinstance(value, bool | int | float | str | None) else repr(value)


def _summarize_models(model: EnsembleRegressor) -> list[dict[str, Any]]:
    parts = zip(model.models_, model.hyperparameters_, model.pseudo_inputs_, strict=True)
    return [
        {
            "model": number,
            "samples": local.n_seen,
            "pseudo_inputs": len(Z),
            "amplitude": theta.amplitude,
            "lengthscales": theta.lengthscales.tolist(),
            "noise": theta.noise,
            "extent": np.concatenate(boxes_for_user(model, Z.min(axis=0)[None], Z.max(axis=0)[None])).T.tolist(),
        }
        for number, (local, theta, Z) in enumerate(parts)
    ]


def _summarize_step(record: StepRecord) -> dict[str, Any]:
    return {
        "step": record.number,
        "samples": record.n_samples,
        "decision": record.decision,
        "models": [change.model for change in record.changes],
        "distance": record.distance,
        "seconds": record.seconds,
    }


def print_summary(content: Mapping[str, Any], console: Console) -> None:
    """Print what `summarize` returns."""
    extents = zip(content["inputs"], content["extent"], strict=True)
    around = "" if content["extent_is_exact"] else " (a box around the data, which are learned in metres)"
    waiting = f", of which {content['waiting']:,} wait for a batch to fill" if content["waiting"] else ""
    unused = content["without_effect"]
    used = {name: value for name, value in content["settings"].items() if name not in unused}
    other = "the default" if "forgetting" in unused else "the method of the paper"
    facts = {
        "method": content["estimator"] + (" (compact: float32, no history)" if content["compact"] else ""),
        "settings": ", ".join(f"{name}={value}" for name, value in used.items()),
        "without effect": f"{', '.join(unused)} (only for {other})" if unused else "",
        "inputs": ", ".join(f"{name} from {low:.10g} to {high:.10g}" for name, (low, high) in extents) + around,
        "coordinates": content["crs"] or "",
        "target": content["target"],
        "samples": f"{content['samples']:,}{waiting}",
        "models": f"{len(content['models']):,}",
        "size": f"{content['bytes']:,} bytes",
    }
    table = Table.grid(padding=(0, 2))
    for name, text in facts.items():
        if text:
            table.add_row(name, escape(text))
    console.print(table)
    n_more = len(content["models"]) - _MODELS_SHOWN
    _print_rows(
        console,
        "Models",
        content["models"][:_MODELS_SHOWN],
        f"and {n_more:,} more; --json has all" if n_more > 0 else "",
    )
    _print_rows(console, "Last steps", content["last_steps"])


def _print_rows(console: Console, title: str, rows: Sequence[Mapping[str, Any]], caption: str = "") -> None:
    """Print dictionaries with the same keys as a table; extents are left to JSON."""
    names = [name for name in rows[0] if name != "extent"] if rows else []
    table = Table(*(name.replace("_", " ") for name in names), title=title, caption=caption)
    for row in rows:
        table.add_row(*(_format_value(row[name]) for name in names))
    for column in table.columns:
        column.justify = "right"
    if rows:
        console.print(table)


def _format_value(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(_format_value, value))
    return "-" if value is None else f"{value:.3g}" if isinstance(value, float) else str(value)


@opt.with_table_options
def plot(
    map_file: opt.MapFile,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="A PNG, SVG or PDF file.")],
    region: opt.Region = "",
    spacing: opt.Spacing = "",
    at: opt.At = [],  # noqa: B006
    data: Annotated[list[str], typer.Option(metavar="FILE", help="Also show these data.")] = [],  # noqa: B006
    x: opt.X = "",
    y: opt.Y = "",
    *,
    tables: dict[str, Any],
) -> None:
    """Draw a map: mean, uncertainty, regions of the local models, and the history of decisions.

    Example: `wgpr plot lake.map -o lake.png`
    """
    from wgpr.plots import summary_figure

    edges, steps = opt.parse_numbers("--region", region), parse_spacing(spacing)
    opt.check_output(output, map_file, *expand(data), endings=(".png", ".svg", ".pdf"))
    table, model = open_table(data, tables) if data else None, read_map(map_file)
    fixed = opt.parse_fixed_inputs(at, input_names(model))
    with opt.errors_of_usage(region="--region", spacing="--spacing"):
        distances = steps_of(steps, model, fixed)
        if fixed or model.n_features_in_ <= 2:
            plan_grid(model, edges, distances, at=fixed)
    shown: tuple[Array, ...] = ()
    if table:  # a line has values of the target, a map only places
        is_line, places = model.n_features_in_ - len(fixed or ()) == 1, opt.split_names(x)
        if is_line or y:
            samples = read_all(table, columns_of_map(model, table, places, y))
            shown = samples[:, :-1], samples[:, -1]
        else:
            shown = (read_all(table, inputs_of_map(model, table, places)),)
    learn_waiting_rows(model)
    with opt.errors_of_usage(region="--region", spacing="--spacing"):
        figure = summary_figure(model, *shown, region=edges, spacing=distances, at=fixed)
    with replace_file(output) as temporary, catch_warnings(action="ignore"):  # a font may lack a letter
        figure.savefig(temporary, format=output.suffix.lower()[1:], dpi=150)
    inform(f"drawn: {output}")
