"""Pictures: they show what the model says, in the axes that they were given, with names on them."""

import pickle
from functools import cache
from io import BytesIO
from itertools import pairwise

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from streams import ALL, BATCH, every_estimator, published, small, travelling
from wgpr import SparseGPRegressor, StreamingGPRegressor, Wasserstein, WGPRegressor
from wgpr.io.grids import predict_grid
from wgpr.plots import (
    COLOURS,
    plot_1d,
    plot_calibration,
    plot_field,
    plot_history,
    plot_map,
    plot_models,
    plot_slices,
    plot_uncertainty,
    summary_figure,
)
from wgpr.plots.maps import colour_numbers, neighbours

matplotlib.use("Agg")
COARSE = {1: 0.1, 2: 0.5}
every_map = pytest.mark.parametrize("plot", [plot_map, plot_uncertainty, plot_models])


@pytest.fixture(autouse=True)
def _no_figure_is_left():
    yield
    plt.close("all")


@pytest.fixture
def ax():
    """Axes of a figure that is not pyplot's, as in an application's window."""
    return Figure(layout="constrained").subplots()


def fitted(regressor, n_features=2, n_rows=None, **settings):
    return pickle.loads(_pickled(regressor, n_features, n_rows, tuple(settings.items())))


@cache
def _pickled(regressor, n_features, n_rows, settings):
    X, y = travelling(n_features=n_features)
    return pickle.dumps(small(regressor, **dict(settings)).fit(X[:n_rows], y[:n_rows]))


def waiting(n_features=2):
    """A model before its first batch."""
    X, y = travelling(n_features=n_features)
    return small(published).partial_fit(X[: BATCH // 2], y[: BATCH // 2])


def drawn(figure):
    """Lay out and draw, but for the pixels; what cannot be drawn warns or raises here."""
    figure.draw_without_rendering()
    return figure


def mesh_values(ax):
    return np.asarray(ax.collections[0].get_array()).reshape(ax.collections[0].get_coordinates().shape[0] - 1, -1)


def lines_by_label(ax):
    return {line.get_label(): line for line in ax.lines}


def colour_bar_label(ax):
    (bar,) = ax.child_axes
    return bar.get_ylabel()


# Maps


@every_estimator
@every_map
def test_a_map_is_drawn_where_it_was_asked_for(plot, regressor, ax):
    assert plot(fitted(regressor), ax=ax, spacing=COARSE[2]) is ax
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("x1", "x2")
    assert plt.get_fignums() == []


@every_map
def test_without_axes_the_current_ones_are_used(plot):
    _, axes = plt.subplots(2)
    plt.sca(axes[0])
    assert plot(fitted(published), spacing=COARSE[2]) is axes[0]
    assert len(plt.get_fignums()) == 1


@pytest.mark.parametrize(
    ("plot", "settings", "variable"),
    [
        (plot_map, {}, "mean"),
        (plot_uncertainty, {}, "std"),
        (plot_uncertainty, {"latent": True}, "std_latent"),
    ],
)
def test_the_values_are_the_predictions(plot, settings, variable, ax):
    model = fitted(published)
    grid = predict_grid(model, spacing=COARSE[2])
    plot(model, ax=ax, spacing=COARSE[2], **settings)
    np.testing.assert_array_equal(mesh_values(ax), grid[variable])


@every_map
def test_a_grid_will_do_in_place_of_a_model(plot, ax):
    model = fitted(published)
    plot(predict_grid(model, spacing=COARSE[2]), ax=ax)
    other = plot(model, ax=Figure().subplots(), spacing=COARSE[2])
    np.testing.assert_array_equal(mesh_values(ax), mesh_values(other))


@every_map
def test_a_slice_of_more_inputs_is_a_map(plot, ax):
    model, at = fitted(published, 3), {"x2": 1.0}
    plot(predict_grid(model, spacing=0.5, at=at), ax=ax)
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("x1", "x3")
    other = plot(model, ax=Figure().subplots(), spacing=0.5, at=at)
    np.testing.assert_array_equal(mesh_values(other), mesh_values(ax))


@every_map
def test_maps_are_of_two_inputs(plot):
    with pytest.raises(ValueError, match=r"3 inputs would vary \(x1, x2, x3\) and a map has 2; .* at={'x3': 1.5}"):
        plot(fitted(published, 3))
    with pytest.raises(ValueError, match=r"2 inputs, and here 3 vary: x3, x2, x1; .*at={name: value}"):
        plot(fitted(published, 3), region=(0, 1, 0, 1, 0, 1), spacing=1.0)
    with pytest.raises(ValueError, match=r"2 inputs, and here 1 vary: x1; use plot_1d"):
        plot(predict_grid(fitted(published, 1), spacing=1.0))
    with pytest.raises(ValueError, match="region, spacing and at go with a model"):
        plot(predict_grid(fitted(published), spacing=1.0), spacing=0.5)
    assert plt.get_fignums() == []


@cache
def chart():
    """A model of a frame with latitude before longitude, and the frame."""
    X, y = travelling()
    frame = pd.DataFrame({"lat": 60.0 + 0.1 * X[:, 1], "lon": X[:, 0]})
    return small(StreamingGPRegressor).fit(frame, pd.Series(y, name="depth [m]")), frame


def test_names_and_units_are_written_on_the_map(ax):
    model, _ = chart()
    plot_map(model, ax=ax, spacing=(0.5, 0.05))
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("lon [°E]", "lat [°N]")
    assert colour_bar_label(ax) == "mean of depth [m]"


def test_a_degree_of_longitude_is_shorter_than_one_of_latitude(ax):
    model, _ = chart()
    plot_map(model, ax=ax, spacing=(0.5, 0.05))
    assert ax.get_aspect() == pytest.approx(1 / np.cos(np.radians(60.15)), rel=1e-2)


def test_lengths_are_the_same_both_ways(ax):
    plot_map(fitted(published), ax=ax, spacing=COARSE[2])
    assert ax.get_aspect() == 1.0


def test_inputs_of_different_magnitude_fill_the_axes(ax):
    X, y = travelling()
    plot_map(small(StreamingGPRegressor).fit(X * [1.0, 1e6], y), ax=ax)
    assert ax.get_aspect() == "auto"


def test_each_model_has_one_colour(ax):
    model = fitted(published)
    owner = predict_grid(model, spacing=0.1)["model"].values
    plot_models(model, ax=ax, spacing=0.1)
    colours = mesh_values(ax)
    assert all(len(np.unique(colours[owner == number])) == 1 for number in np.unique(owner))


def test_samples_and_pseudo_inputs_are_where_they_belong(ax):
    model, frame = chart()
    plot_map(model, ax=ax, spacing=(0.5, 0.05), samples=frame)
    np.testing.assert_array_equal(ax.lines[-1].get_xydata(), frame[["lon", "lat"]])
    plot_models(model, ax=ax, spacing=(0.5, 0.05))
    np.testing.assert_array_equal(ax.lines[-1].get_xydata(), np.concatenate(model.pseudo_inputs_)[:, ::-1])


def test_truth_and_prediction_can_share_a_colour_scale(ax):
    truth = np.arange(12.0).reshape(3, 4)
    plot_field(truth, (0, 3, 0, 2), ax=ax, label="depth", vmin=-1, vmax=20)
    np.testing.assert_array_equal(mesh_values(ax), truth)
    assert ax.collections[0].get_clim() == (-1, 20)
    assert colour_bar_label(ax) == "depth"
    assert (*ax.get_xlim(), *ax.get_ylim()) == (-0.5, 3.5, -0.5, 2.5)


def test_a_few_values_far_out_do_not_take_the_colours_from_the_others(ax):
    field = np.linspace(0.0, 1.0, 2500).reshape(50, 50)
    field[0, 0], field[1, 1] = -1000.0, np.nan
    plot_field(field, (0, 1, 0, 1), ax=ax)
    low, high = ax.collections[0].get_clim()
    assert low == pytest.approx(0.0, abs=0.02)
    assert high == pytest.approx(1.0, abs=0.02)
    ax.figure.savefig(BytesIO(), format="png", dpi=30)


def test_the_uncertainty_outside_of_lines_that_are_turned_does_not_set_the_colour_scale(ax):
    along, across = np.meshgrid(np.linspace(0.0, 10.0, 60), np.arange(0.0, 8.0, 0.5))
    X = np.stack([along - across, along + across], axis=-1).reshape(-1, 2)
    y = np.sin(2 * X[:, 0]) * np.cos(2 * X[:, 1]) + 0.05 * np.random.default_rng(0).normal(size=len(X))
    model = WGPRegressor().fit(X, y)
    std = predict_grid(model)["std"].values
    plot_uncertainty(model, ax=ax)
    low, high = ax.collections[0].get_clim()
    assert low == pytest.approx(std.min())
    assert 0.05 < high < 0.2 < std.max()
    assert summary_figure(model).axes[1].collections[0].get_clim() == (low, high)
    assert plot_uncertainty(model, ax=ax, vmax=3.0).collections[-1].get_clim() == (low, 3.0)


# Who answers where


def test_neighbours_among_hundreds_differ_in_colour():
    rng = np.random.default_rng(0)
    centres, nodes = rng.uniform(size=(300, 2)), np.stack(np.meshgrid(*2 * [np.linspace(0, 1, 100)]), axis=-1)
    owner = ((nodes[:, :, None] - centres) ** 2).sum(axis=-1).argmin(axis=-1)
    colours = colour_numbers(owner, len(COLOURS))
    assert all(colours[one] != colours[other] for one, others in neighbours(owner).items() for other in others)


def test_models_that_meet_at_a_corner_differ_in_colour():
    owner = np.arange(100).reshape(10, 10).repeat(3, axis=0).repeat(3, axis=1)
    assert neighbours(owner)[11] == {0, 1, 2, 10, 12, 20, 21, 22}
    colours = colour_numbers(owner, len(COLOURS))
    assert all(colours[one] != colours[other] for one, others in neighbours(owner).items() for other in others)


def test_more_neighbours_than_colours_are_drawn_all_the_same():
    everyone_meets_everyone = np.array([(i, j) for i in range(10) for j in range(10)])
    assert colour_numbers(everyone_meets_everyone, len(COLOURS)).min() >= 0


# Lines


@every_estimator
def test_a_line_shows_mean_band_and_pseudo_inputs(regressor, ax):
    model = fitted(regressor, 1)
    assert plot_1d(model, ax=ax, spacing=COARSE[1]) is ax
    grid = predict_grid(model, spacing=COARSE[1])
    means = np.array([line.get_ydata() for line in ax.lines if len(line.get_xdata()) == grid.x1.size])
    np.testing.assert_array_equal(np.nanmax(means, axis=0), grid["mean"])
    lower = grid["mean"].values - 1.96 * grid["std"].values
    assert ax.collections[0].get_datalim(ax.transData).y0 == pytest.approx(lower.min(), rel=1e-3)
    assert sum(line.get_marker() == "|" for line in ax.lines) == model.n_models_ + 1
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("x1", "y")
    assert plt.get_fignums() == []


def test_data_are_drawn_along_with_the_line(ax):
    X, y = travelling(n_features=1)
    plot_1d(fitted(published, 1), X, y, ax=ax)
    np.testing.assert_array_equal(lines_by_label(ax)["data"].get_xydata(), np.column_stack([X, y]))


def test_a_line_is_of_one_input_and_of_whole_rows():
    X, _ = travelling(n_features=1)
    with pytest.raises(ValueError, match=r"1 input, and here 2 vary: x2, x1; .*fix inputs by at"):
        plot_1d(fitted(published))
    with pytest.raises(ValueError, match="X and y"):
        plot_1d(fitted(published, 1), X)


def test_a_line_through_a_map_is_a_slice_of_it(ax):
    model = fitted(published)
    plot_1d(model, ax=ax, spacing=COARSE[1], at={"x1": 4.0})
    grid = predict_grid(model, spacing=COARSE[1], at={"x1": 4.0})
    means = np.array([line.get_ydata() for line in ax.lines if len(line.get_xdata()) == grid.x2.size])
    np.testing.assert_array_equal(np.nanmax(means, axis=0), grid["mean"])
    assert ax.get_xlabel() == "x2"


@every_estimator
def test_slices_go_through_the_centre(regressor):
    model, centre = fitted(regressor, 3), np.array([5.0, 1.0, 2.0])
    axes = plot_slices(model, figure=Figure(), centre=centre)
    assert [ax.get_xlabel() for ax in axes] == ["x1", "x2", "x3"]
    for column, ax in enumerate(axes):
        lines = [line for line in ax.lines if len(line.get_xdata()) == 1000]
        X = np.tile(centre, (1000, 1))
        X[:, column] = lines[0].get_xdata()
        np.testing.assert_allclose(np.nanmax([line.get_ydata() for line in lines], axis=0), model.predict(X))


def test_slices_of_many_inputs_are_in_rows_of_the_current_figure():
    figure = plt.figure()
    axes = plot_slices(fitted(StreamingGPRegressor, 6))
    assert axes.shape == (6,)
    assert list(figure.axes) == list(axes)
    drawn(figure)


def test_the_centre_has_a_number_for_every_input():
    with pytest.raises(ValueError, match="centre must be a number for each of 3 inputs, got 2"):
        plot_slices(fitted(published, 3), centre=[1.0, 2.0])


# History


@every_estimator
def test_every_step_is_in_the_history(regressor, ax):
    model = fitted(regressor)
    assert plot_history(model, ax=ax) is ax
    marks = [line for line in ax.lines if line.get_label().endswith(("update", "new model"))]
    assert sum(len(line.get_xdata()) for line in marks) == len(model.history_)
    assert ax.get_xlabel() == "step"
    assert plt.get_fignums() == []


def test_distances_are_those_of_the_records(ax):
    model = fitted(published)
    lines = lines_by_label(plot_history(model, ax=ax))
    total = lines["w_old"].get_ydata() + lines["w_new"].get_ydata()
    expected = [np.nan if record.distance is None else record.distance for record in model.history_]
    np.testing.assert_allclose(total, expected)
    new = [record.number for record in model.history_ if record.decision == "new"]
    assert lines["sum: new model"].get_xdata().tolist() == new
    assert lines["threshold 1"].get_ydata() == [1.0, 1.0]
    assert ax.get_yscale() == "log"


@pytest.mark.parametrize(("splitting", "label"), [(Wasserstein(0.5), "threshold 0.5"), (Wasserstein(np.inf), None)])
def test_the_threshold_is_that_of_the_rule(splitting, label, ax):
    plot_history(fitted(published, splitting=splitting, threshold="auto"), ax=ax)
    assert {name for name in lines_by_label(ax) if name.startswith("threshold")} == ({label} if label else set())


def test_a_rule_without_distances_shows_how_many_models_there_were(ax, monkeypatch):
    monkeypatch.setattr("wgpr.estimators.methods.HISTORY_SIZE", 3)
    model = small(published, splitting="always", threshold="auto").fit(*travelling())
    assert plot_history(model, ax=ax).get_ylabel() == "local models"
    counts = lines_by_label(ax)["new model"].get_ydata()
    assert counts.tolist() == [model.n_models_ - 2, model.n_models_ - 1, model.n_models_]


def test_an_empty_history_says_so(ax):
    plot_history(waiting(), ax=ax)
    assert [text.get_text() for text in ax.texts] == ["no history"]


# Numbers


def test_calibration_is_on_the_diagonal_when_the_model_is_right(ax):
    y = np.random.default_rng(0).normal(3.0, 2.0, 20_000)
    assert plot_calibration(y, np.full_like(y, 3.0), np.full_like(y, 2.0), ax=ax) is ax
    nominal, observed = ax.lines[1].get_data()
    np.testing.assert_allclose(observed, nominal, atol=0.02)


def test_calibration_counts_what_is_inside(ax):
    plot_calibration([0.0, 1.0, 3.0, 100.0], np.zeros(4), np.ones(4), ax=ax)
    observed = ax.lines[1].get_ydata()
    assert observed[95] == 0.5
    assert (observed[0], observed[-1]) == (0.25, 1.0)
    assert "50.0% inside 95 %" in lines_by_label(ax)


@pytest.mark.parametrize(
    ("y", "mean", "std", "message"),
    [
        ([1.0, 2.0], [1.0], [1.0], "must be"),
        ([], [], [], "must be"),
        ([[1.0]], [[1.0]], [[1.0]], "must be"),
        ([1.0], [1.0], [0.0], "std above 0"),
        ([1.0], [1.0], [np.nan], "finite"),
        ([np.nan], [1.0], [1.0], "finite"),
    ],
)
def test_calibration_of_nonsense_is_refused(y, mean, std, message):
    with pytest.raises(ValueError, match=message):
        plot_calibration(y, mean, std)
    assert plt.get_fignums() == []


# All in one


@pytest.mark.parametrize(
    ("regressor", "n_features", "n_axes"),
    [*((each, 2, 4) for each in ALL), (published, 1, 2), (published, 3, 4), (WGPRegressor, 1, 2), (WGPRegressor, 3, 4)],
)
def test_the_summary_has_all_pictures_and_is_not_pyplots(regressor, n_features, n_axes):
    model = fitted(regressor, n_features)
    figure = summary_figure(model, spacing=COARSE.get(n_features))
    assert len(figure.axes) == n_axes
    assert type(model).__name__ in figure.get_suptitle()
    assert plt.get_fignums() == []


def constant(n_features):
    X, y = travelling(2 * BATCH, n_features)
    return small(published).fit(X, np.zeros_like(y))


def constant_input(n_features):
    X, y = travelling(2 * BATCH, n_features)
    return small(published).fit(np.column_stack([X[:, :-1], np.full(len(X), 2.0)]), y)


@pytest.mark.parametrize("n_features", [1, 2, 3])
@pytest.mark.parametrize("make", [waiting, constant, constant_input, lambda d: fitted(SparseGPRegressor, d)])
def test_unusual_models_can_be_drawn(make, n_features):
    figure = summary_figure(make(n_features), spacing=COARSE.get(n_features))
    if make is waiting and n_features == 2:
        figure.savefig(BytesIO(), format="png", dpi=30)
    else:
        figure.set_layout_engine("none")  # takes most of the time
        drawn(figure)


def test_the_summary_of_many_inputs_is_of_slices_or_at_a_place():
    model = fitted(published, 3)
    with pytest.raises(ValueError, match=r"3 inputs would vary .* at={'x3': 1.5}"):
        summary_figure(model, spacing=1.0)
    figure = summary_figure(model, *travelling(n_features=3), spacing=0.5, at={1: 1.0})
    assert figure.get_suptitle().endswith("110 rows, x2 = 1")
    assert [ax.get_ylabel() for ax in figure.axes[:3]] == ["x3", "x3", "x3"]
    line = summary_figure(model, spacing=0.5, at={"x2": 1.0, "x1": 3.0})
    assert line.axes[0].get_xlabel() == "x3"


def survey_of_shape(width, height, names=("easting [m]", "northing [m]")):
    """A model of a survey whose coordinates have long labels."""
    X, y = travelling(50)
    places = X / np.ptp(X, axis=0) * [width, height] + [512_000.0, 4_100_000.0]
    return small(StreamingGPRegressor).fit(pd.DataFrame(places, columns=list(names)), y)


@pytest.mark.parametrize(
    ("width", "height"), [(1500.0, 9000.0), (9000.0, 1500.0), (3000.0, 3500.0), (1000.0, 14_000.0)]
)
def test_maps_of_any_shape_are_large_and_legible(width, height):
    figure = drawn(summary_figure(survey_of_shape(width, height), spacing=250.0))
    assert max(figure.get_size_inches()) < 14
    inches = figure.dpi_scale_trans.inverted()
    assert all(ax.get_tightbbox().transformed(inches).x0 > -0.02 for ax in figure.axes)
    for ax in figure.axes[:3]:
        box = ax.get_window_extent().transformed(inches)
        assert box.width * box.height > 6.0
        assert box.height / box.width == pytest.approx(np.diff(ax.get_ylim()) / np.diff(ax.get_xlim()), rel=0.01)
        assert all(0.1 < bar.get_window_extent().transformed(inches).width < 0.3 for bar in ax.child_axes)
        assert_labels_do_not_overlap(ax.xaxis, direction=0, n_least=2 if box.width > 1.0 else 1)
        assert_labels_do_not_overlap(ax.yaxis, direction=1, n_least=2)


def assert_labels_do_not_overlap(axis, direction, n_least):
    ends = sorted(label.get_window_extent().get_points()[:, direction].tolist() for label in shown_labels(axis))
    assert len(ends) >= n_least
    assert all(end < start for (_, end), (start, _) in pairwise(ends))


def shown_labels(axis):
    low, high = sorted(axis.get_view_interval())
    ticks = zip(axis.get_majorticklocs(), axis.get_majorticklabels(), strict=True)
    return [label for place, label in ticks if low <= place <= high and label.get_text()]


@pytest.mark.parametrize("names", [("easting [m]", "northing [m]"), ("x1", "x2"), ("lon", "lat")])
def test_coordinates_are_written_in_full(names, ax):
    plot_map(survey_of_shape(1.0, 1.0, names), ax=ax, spacing=0.1)
    drawn(ax.figure)
    assert ax.yaxis.get_offset_text().get_text() == ax.xaxis.get_offset_text().get_text() == ""
    assert all(label.get_text().startswith("51200") for label in shown_labels(ax.xaxis))


def test_colours_are_the_same_for_a_model_and_its_pseudo_inputs(ax):
    model = fitted(published, 1)
    plot_1d(model, ax=ax)
    ticks = [to_hex(line.get_color()) for line in ax.lines if line.get_marker() == "|"][:-1]
    curves = {to_hex(line.get_color()) for line in ax.lines if len(line.get_xdata()) == 1000}
    assert curves <= set(ticks)
