"""What is in a map, for people and for programs."""

from collections.abc import Mapping
from math import floor, log10
from typing import Any

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from wgpr.ensemble.records import StepRecord
from wgpr.estimators.base import EnsembleRegressor
from wgpr.gp.linalg import Array
from wgpr.io.grids import input_names, target_name
from wgpr.metrics import Scores

_MODELS_SHOWN = 20
_STEPS_SHOWN = 5

# Characters in a table of models.
_WIDTH_OF_A_MODEL, _WIDTH_OF_AN_INPUT = 40, 30


def summary(model: EnsembleRegressor, n_bytes: int, *, compact: bool = False) -> dict[str, Any]:
    """All that is worth knowing about a map, as JSON can hold it.

    Parameters
    ----------
    n_bytes : size of the file; compact : whether it holds only what prediction needs.
    """
    return {
        "estimator": type(model).__name__,
        "settings": {name: _plain(value) for name, value in model.get_params(deep=False).items()},
        "inputs": input_names(model),
        "target": target_name(model),
        "samples": model.n_samples_seen_,
        "waiting": model.n_pending_,
        "steps": model._state.n_steps,
        "bytes": n_bytes,
        "compact": compact,
        "extent": _extent(model.bounds_),
        "models": _models(model) if model.n_models_ else [],
        "last_steps": [_step(record) for record in model.history_[-_STEPS_SHOWN:]],
    }


def _models(model: EnsembleRegressor) -> list[dict[str, Any]]:
    parts = zip(model.models_, model.hyperparameters_, model.pseudo_inputs_, strict=True)
    return [
        {
            "model": number,
            "samples": local.n_seen,
            "pseudo_inputs": len(Z),
            "amplitude": theta.amplitude,
            "lengthscales": theta.lengthscales.tolist(),
            "noise": theta.noise,
            "extent": _extent(np.stack([Z.min(axis=0), Z.max(axis=0)])),
        }
        for number, (local, theta, Z) in enumerate(parts)
    ]


def _step(record: StepRecord) -> dict[str, Any]:
    return {
        "step": record.number,
        "samples": record.n_samples,
        "decision": record.decision,
        "models": [change.model for change in record.changes],
        "distance": record.distance,
        "seconds": record.seconds,
    }


def _extent(bounds: Array) -> list[list[float]]:
    """From the least to the greatest of each input."""
    return bounds.T.tolist()


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not np.isfinite(value):
        return str(value)
    return value if isinstance(value, bool | int | float | str | None) else repr(value)


def print_summary(content: Mapping[str, Any], console: Console) -> None:
    """The same in words and tables."""
    facts = Table.grid(padding=(0, 2))
    for name, words in _facts(content):
        facts.add_row(name, escape(words))
    console.print(facts)
    if content["models"]:
        console.print(_models_table(content, console.width))
    if content["last_steps"]:
        console.print(_steps_table(content["last_steps"]))


def _facts(content: Mapping[str, Any]) -> list[tuple[str, str]]:
    extents = zip(content["inputs"], content["extent"], strict=True)
    return [
        ("method", content["estimator"] + (" (compact: float32, no history)" if content["compact"] else "")),
        ("settings", ", ".join(f"{name}={value}" for name, value in content["settings"].items())),
        ("inputs", ", ".join(f"{name} from {low:.6g} to {high:.6g}" for name, (low, high) in extents)),
        ("target", content["target"]),
        ("samples", f"{content['samples']:,}, of which {content['waiting']:,} wait for a batch to fill"),
        ("models", f"{len(content['models']):,}"),
        ("size", f"{content['bytes']:,} bytes"),
    ]


def _models_table(content: Mapping[str, Any], width: int) -> Table:
    models, inputs = content["models"], content["inputs"]
    n_inputs = min(len(inputs), max(1, (width - _WIDTH_OF_A_MODEL) // _WIDTH_OF_AN_INPUT))
    n_more = max(0, len(models) - _MODELS_SHOWN)
    table = Table(
        title="Models, their extents and length-scales",
        caption=f"and {n_more:,} more; --json has all" if n_more else None,
    )
    for name in ("model", "samples", "noise", "amplitude"):
        table.add_column(name, justify="right")
    for name in inputs[:n_inputs]:
        table.add_column(escape(name), no_wrap=True)
        table.add_column("scale", justify="right", no_wrap=True)
    for model in models[:_MODELS_SHOWN]:
        table.add_row(*_model_cells(model, n_inputs))
    return table


def _model_cells(model: Mapping[str, Any], n_inputs: int) -> list[str]:
    cells = [str(model["model"]), f"{model['samples']:,}", f"{model['noise']:.3g}", f"{model['amplitude']:.3g}"]
    for (low, high), lengthscale in zip(model["extent"][:n_inputs], model["lengthscales"], strict=False):
        cells += [_range(low, high), f"{lengthscale:.3g}"]
    return cells


def _range(low: float, high: float) -> str:
    """With as many decimals as tell the two apart."""
    decimals = max(0, 2 - floor(log10(high - low))) if high > low else 3
    return f"{low:,.{decimals}f} to {high:,.{decimals}f}" if decimals < 10 else f"{low:.6g} to {high:.6g}"


def _steps_table(steps: list[dict[str, Any]]) -> Table:
    table = Table(title="Last steps")
    for name in ("step", "samples", "decision", "by model", "distance", "seconds"):
        table.add_column(name, justify="left" if name == "decision" else "right")
    for step in steps:
        distance = "-" if step["distance"] is None else f"{step['distance']:.3g}"
        numbers = ", ".join(map(str, step["models"]))
        cells = (str(step["step"]), str(step["samples"]), step["decision"], numbers, distance, f"{step['seconds']:.2f}")
        table.add_row(*cells)
    return table


def scores_table(scores: Scores, n_rows: int) -> Table:
    """Scores, each with what it means."""
    table = Table(title=f"{n_rows:,} rows")
    table.add_column("score")
    table.add_column("value", justify="right")
    table.add_column("what it is")
    table.add_row("RMSE", f"{scores.rmse:#.5g}", "root of the mean squared error, in the unit of the target")
    table.add_row("MAE", f"{scores.mae:#.5g}", "mean absolute error")
    table.add_row(
        "SMSE", f"{scores.smse:#.5g}", "mean squared error over the target's variance; 1 is as good as its mean"
    )
    table.add_row("NLPD", f"{scores.nlpd:#.5g}", "mean negative log density; sure and wrong costs most")
    table.add_row("CRPS", f"{scores.crps:#.5g}", "like MAE, but for the whole predicted distribution")
    table.add_row("coverage", f"{scores.coverage:.1%}", "of the 95 % interval; 95 % is honest")
    return table
