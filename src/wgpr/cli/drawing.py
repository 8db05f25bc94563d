"""A map as a picture in a file: what `wgpr plot` makes."""

from collections.abc import Sequence
from pathlib import Path
from warnings import catch_warnings

from matplotlib.figure import Figure

from wgpr.cli.settings import SettingsError
from wgpr.estimators.base import EnsembleRegressor
from wgpr.gp.linalg import Array
from wgpr.io.files import replace_file
from wgpr.io.grids import input_names, target_name
from wgpr.plots import summary_figure
from wgpr.report import Picture, Section, html_page

PICTURES = ("png", "svg", "pdf", "html")


def draw(
    model: EnsembleRegressor,
    path: Path,
    *,
    data: Array | None,
    region: Sequence[float] | None,
    spacing: Sequence[float] | None,
) -> None:
    """The summary figure of a map as PNG, SVG or PDF, or as a page of HTML.

    Parameters
    ----------
    data : (n, d + 1), inputs and target of samples to show, or None.
    """
    kind = path.suffix.lower().removeprefix(".")
    if kind not in PICTURES:
        raise SettingsError(f"{path} cannot be drawn; the name must end with one of .{', .'.join(PICTURES)}")
    X, y = (None, None) if data is None else (data[:, :-1], data[:, -1])
    figure = summary_figure(model, X, y, region=region, spacing=spacing)
    with replace_file(path) as temporary, catch_warnings(action="ignore"):  # a font without some letter, say
        if kind == "html":
            temporary.write_text(_page_of(model, figure), encoding="utf-8")
        else:
            figure.savefig(temporary, format=kind, dpi=150)


def _page_of(model: EnsembleRegressor, figure: Figure) -> str:
    names = f"{target_name(model)} by {', '.join(input_names(model))}"
    picture = Picture(
        "map", figure, caption=repr(model), alt=f"The map of {names}, and how it was learned.", is_wide=True
    )
    return html_page(names, [Section("The map, and how it was learned", [picture])])
