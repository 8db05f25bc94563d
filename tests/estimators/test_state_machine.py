"""Random programs over the public methods of the default estimator: what holds whatever is called, in any order."""

import pickle
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import wgpr
from streams import assert_same_learning, assert_same_map_files, numbers_in, queries, small
from threads import at_once
from wgpr import WGPRegressor

# Most pseudo-data of a territory. The first one has so many while it looks like noise.
MOST_POINTS = 600

# Larger numbers are refused.
LARGEST = 1e100

# Most deviation of answers that are equal but for rounding, in ordinary programs. Factors that rows have extended have
# another rounding than those that were made anew. Weights that differ by many powers of ten make it very large.
ROUNDING = 1e-6

# Bytes of factors that a model may keep: so few that it makes some of them anew.
SMALL_CACHE = 100_000

# The largest numbers of a program that has no spikes, no places far away and no extreme weights.
ORDINARY = 10.0


# Rows


def smooth(X):
    return np.sin(X[:, 0]) + 0.3 * X[:, -1]


def rough(X):
    return 3.0 * np.sin(9.0 * X[:, 0]) * np.cos(7.0 * X[:, -1])


def constant(X):
    return np.full(len(X), 3.0)


def anywhere(X, rng):
    return X


def along_a_line(X, rng):
    line = np.repeat(X[:1], len(X), axis=0)
    line[:, 0] = np.sort(X[:, 0])
    return line


def at_few_places(X, rng):
    return X[rng.integers(0, min(4, len(X)), len(X))]


def at_one_place(X, rng):
    return np.repeat(X[:1], len(X), axis=0)


def equal(rng, n):
    return np.ones(n)


def similar(rng, n):
    return rng.uniform(0.2, 5.0, n)


def of_every_size(rng, n):
    return 10.0 ** rng.uniform(-8.0, 8.0, n)


@dataclass(frozen=True)
class Recipe:
    """How n rows are made: a field, the places where it is measured, and the weights.

    corner : least coordinate of the places, which are in a cube of side 3.
    spike : factor of one value in ten; distance : factor of one place. A program limits them.
    """

    field: Callable
    places: Callable
    weights: Callable
    n: int
    seed: int
    corner: int
    spike: float
    distance: float

    def rows(self, n_features, outputs, largest):
        """X (n, d), y (n,) or (n, k), weights (n,). outputs : () or (k,), shape of a target."""
        rng = np.random.default_rng(self.seed)
        X = self.places(self.corner + rng.uniform(0.0, 3.0, (self.n, n_features)), rng)
        factors = np.arange(1.0, 1.0 + np.prod(outputs, dtype=int)).reshape(outputs)
        y = np.multiply.outer(self.field(X), factors)
        if self.field is not constant:
            y += 0.1 * rng.normal(size=y.shape)
        y[rng.random(self.n) < 0.1] *= min(self.spike, largest / ORDINARY)
        X[rng.integers(self.n)] *= min(self.distance, largest / ORDINARY)
        return X, y, self.weights(rng, self.n).clip(1.0 / largest, largest)


def recipes(most, least=1):
    return st.builds(
        Recipe,
        field=st.sampled_from([smooth, rough, constant]),
        places=st.sampled_from([anywhere, along_a_line, at_few_places, at_one_place]),
        weights=st.sampled_from([equal, similar, of_every_size]),
        n=st.integers(least, most),
        seed=st.integers(0, 999),
        corner=st.integers(0, 6),
        spike=st.sampled_from([1.0, 1e2, 1e6, 1e50, 1e98]),
        distance=st.sampled_from([1.0, 1.0, 1e2, 1e6, 1e50, 1e98]),
    )


# Rows that are refused, by the message


def with_one(array, value):
    array = array.copy()
    array.flat[len(array) // 2] = value
    return array


SPOILED = {
    "X contains NaN": lambda X, y, weights: (with_one(X, np.nan), y, weights),
    "X contains infinity": lambda X, y, weights: (with_one(X, np.inf), y, weights),
    "y contains NaN": lambda X, y, weights: (X, with_one(y, np.nan), weights),
    "y contains infinity": lambda X, y, weights: (X, with_one(y, -np.inf), weights),
    "X has values beyond": lambda X, y, weights: (with_one(X, 10.0 * LARGEST), y, weights),
    "y has values beyond": lambda X, y, weights: (X, with_one(y, -10.0 * LARGEST), weights),
    "sample_weight must be": lambda X, y, weights: (X, y, with_one(weights, 0.0)),
    "sample_weight has shape": lambda X, y, weights: (X, y, np.append(weights, 1.0)),
    "inconsistent numbers of samples": lambda X, y, weights: (X, np.concatenate([y, y]), weights),
    r"X: .* 0 sample\(s\)": lambda X, y, weights: (X[:0], y[:0], weights[:0]),
}
SPOILED_LATER = {
    **SPOILED,
    r"X has \d features, but": lambda X, y, weights: (np.hstack([X, X]), y, weights),
    r"y has \d outputs, but": lambda X, y, weights: (X, np.stack(3 * [y], axis=1).reshape(len(y), -1), weights),
}


# Answers


def assert_sound(mean, std):
    assert np.isfinite(mean).all()
    assert np.isfinite(std).all()
    assert (std > 0).all()


def deviation(answer, expected):
    """The largest difference of means or standard deviations, in standard deviations and thousandths of the mean."""
    mean, std = expected
    unit = std + 1e-3 * np.abs(mean)
    return max((np.abs(part - other) / unit).max() for part, other in zip(answer, expected, strict=True))


def pieces(rows, borders):
    """The rows between the borders; borders beyond the end are left out."""
    n = len(rows[0])
    edges = sorted({0, n, *(border for border in borders if border < n)})
    return [[part[first:last] for part in rows] for first, last in pairwise(edges)]


def pickled(model):
    return pickle.loads(pickle.dumps(model))


class Program(RuleBasedStateMachine):
    """A model that is asked, saved, copied and merged while it learns, and others that must agree with it.

    twin : learns the same rows later, in other pieces, and never goes on from a file or a copy.
    waiting : rows that the twin has not learned yet; latest : those that the model has learned last.
    ashore : a copy that differences bring up to date; sent : the model as it was at the latest of them.
    """

    def __init__(self):
        super().__init__()
        self.folder = TemporaryDirectory()
        self.file = Path(self.folder.name) / "a.map"
        self.model = self.twin = self.ashore = self.sent = None
        self.waiting, self.n_given, self.n_merged = [], 0, 0

    def teardown(self):
        with self.folder:
            if self.n_given:
                self.compare([])
                self.send()

    # Learning

    @initialize(
        n_features=st.sampled_from([2, 2, 2, 1, 4]),
        outputs=st.sampled_from([(), (), (2,)]),
        options=st.sampled_from([{}, {}, {"max_models": 3}, {"forgetting": 0.5}, {"max_cache_bytes": SMALL_CACHE}]),
        largest=st.sampled_from([ORDINARY, ORDINARY, 1e6, LARGEST]),
        reason=st.sampled_from(sorted(SPOILED)),
        recipe=recipes(40),
        n_before=st.sampled_from([0, 200]),
    )
    def begin(self, n_features, outputs, options, largest, reason, recipe, n_before):
        """With a few rows, or after so many that make several territories."""
        self.n_features, self.largest, self.new = n_features, largest, partial(small, WGPRegressor, **options)
        self.rounding = ROUNDING if largest == ORDINARY else np.inf
        self.made = partial(Recipe.rows, n_features=n_features, outputs=outputs, largest=largest)
        self.model, self.twin = self.new(), self.new()
        self.bounds = np.array([np.full(n_features, np.inf), np.full(n_features, -np.inf)])
        self.refuse(reason, recipe)
        if n_before:
            self.learn(Recipe(rough, anywhere, equal, n_before, seed=0, corner=0, spike=1.0, distance=1.0))
            self.learn_while_threads_ask(recipe, borders=[10, 20])
        else:
            self.learn(recipe)
        self.save_and_load()
        self.send()

    @rule(recipe=recipes(40))
    def learn(self, recipe):
        rows = self.made(recipe)
        self.model.partial_fit(*rows)
        self.note(rows)

    @rule(recipe=recipes(200, least=100))
    def learn_many(self, recipe):
        self.learn(recipe)

    @rule()
    def learn_again(self):
        self.model.partial_fit(*self.latest)
        self.note(self.latest)

    def note(self, rows):
        """The model has learned these."""
        self.latest = rows
        self.waiting.append(rows)
        self.count(rows[0])

    def count(self, X):
        self.n_given += len(X)
        self.bounds = np.array([np.minimum(self.bounds[0], X.min(axis=0)), np.maximum(self.bounds[1], X.max(axis=0))])

    @rule(borders=st.lists(st.integers(1, 500), max_size=6))
    def compare(self, borders):
        """No row waits, so that `flush` changes nothing."""
        self.catch_up(borders)
        self.model.flush()
        assert_same_map_files(self.model.to_bytes(), self.twin.to_bytes())
        assert_same_learning(deepcopy(self.model), deepcopy(self.twin))  # copies have no factors yet

    def catch_up(self, borders=()):
        """Let the twin learn what the model has learned, in these pieces."""
        if self.waiting:
            for rows in pieces([np.concatenate(parts) for parts in zip(*self.waiting, strict=True)], borders):
                self.twin.partial_fit(*rows)
        self.waiting = []

    @rule(reason=st.sampled_from(sorted(SPOILED_LATER)), recipe=recipes(30))
    def refuse(self, reason, recipe):
        before, rows = pickle.dumps(self.model), SPOILED_LATER[reason](*self.made(recipe))
        with pytest.raises(ValueError, match=reason):
            self.model.partial_fit(*rows)
        assert pickle.dumps(self.model) == before

    # Answers

    @rule(n=st.integers(1, 40), seed=st.integers(0, 99), distance=st.sampled_from([1.0, 1.0, 1.0, 10.0, 1e6, LARGEST]))
    def ask(self, n, seed, distance):
        """Twice, one alone, and a copy that has no factors yet."""
        X = (queries(n, self.n_features, seed) * distance).clip(-LARGEST, LARGEST)
        before, given = pickle.dumps(self.model), X.copy()
        mean, std = self.model.predict(X, return_std=True)
        assert_sound(mean, std)
        keeps_factors = self.model.max_cache_bytes > SMALL_CACHE
        again = deviation(self.model.predict(X, return_std=True), (mean, std))
        assert again == 0.0 or (not keeps_factors and again < self.rounding)
        assert deviation(self.model.predict(X[-1:], return_std=True), (mean[-1:], std[-1:])) < self.rounding
        assert deviation(deepcopy(self.model).predict(X, return_std=True), (mean, std)) < self.rounding
        field_std = self.model.predict(X, return_std=True, latent=True)[1]
        assert ((field_std >= 0.0) & (field_std <= std)).all()
        assert np.isfinite(self.model.predict(X[:5], return_cov=True)[1]).all()
        assert (self.model.model_index(X) < max(1, self.model.n_models_)).all()
        np.testing.assert_array_equal(X, given)
        assert pickle.dumps(self.model) == before

    @rule(recipe=recipes(30), borders=st.lists(st.integers(1, 29), max_size=4))
    def learn_while_threads_ask(self, recipe, borders):
        """Each answer is that of the model before, between or after the pieces."""
        rows, X = self.made(recipe), queries(5, self.n_features)
        alone, parts = deepcopy(self.model), pieces(rows, borders)
        states = [alone.predict(X, return_std=True)]
        states += [alone.partial_fit(*part).predict(X, return_std=True) for part in parts]

        def learn():
            for part in parts:
                self.model.partial_fit(*part)
            return []

        def ask():
            return [self.model.predict(X, return_std=True) for _ in range(4)]

        answers = list(chain(*at_once([ask, ask, learn])))
        self.note(rows)
        assert len(answers) == 8
        for answer in answers:
            assert min(deviation(answer, state) for state in states) < self.rounding

    # Files and copies

    @rule()
    def save_and_load(self):
        self.model.save(self.file)
        loaded = wgpr.load(self.file)
        assert_same_map_files(loaded.to_bytes(), self.model.to_bytes())
        self.go_on_with(loaded)

    @rule(copy=st.sampled_from([deepcopy, pickled]))
    def copy(self, copy):
        self.go_on_with(copy(self.model))

    def go_on_with(self, other):
        """With a copy of the model in its place."""
        assert_same_learning(deepcopy(other), deepcopy(self.model))
        self.model = other

    @rule(compact=st.booleans())
    def send(self, compact=True):
        """First the whole map, then differences. The copy is what a compact map of the model would be; it can learn."""
        if self.model.n_models_ == 0 or self.largest == LARGEST:  # no unit yet, or numbers that float32 does not hold
            return
        if self.ashore is None:
            self.model.save(self.file, compact=compact)
            self.ashore, self.sent = wgpr.load(self.file), deepcopy(self.model)
        before = [pickle.dumps(each) for each in (self.ashore, self.sent, self.model)]
        updated = wgpr.apply(self.ashore, wgpr.diff(self.sent, self.model))
        assert [pickle.dumps(each) for each in (self.ashore, self.sent, self.model)] == before
        assert_same_map_files(updated.to_bytes(compact=True), self.model.to_bytes(compact=True))
        self.ashore, self.sent = updated, deepcopy(self.model)
        X = queries(5, self.n_features)
        assert_sound(*updated.predict(X, return_std=True))
        assert_sound(*deepcopy(updated).partial_fit(*self.latest).predict(X, return_std=True))

    # Merging

    @rule(recipe=recipes(60), is_first=st.booleans(), goes_on=st.booleans())
    def merge(self, recipe, is_first, goes_on):
        """With a small map of rows of its own. The model then goes on as the merged map, or stays as it was."""
        self.n_merged += 1
        rows = self.made(replace(recipe, seed=recipe.seed + 1000 * self.n_merged))
        other = self.new().partial_fit(*rows)

        def merged(model):
            return wgpr.merge(*([model, other] if is_first else [other, model]))

        before = [pickle.dumps(each) for each in (self.model, other)]
        try:
            both = merged(self.model)
        except ValueError as error:  # values a hundred powers of ten apart may be refused
            if self.largest < LARGEST or "powers of ten apart" not in str(error):
                raise
            both = None
        assert [pickle.dumps(each) for each in (self.model, other)] == before
        if both is None:
            return
        n_both, n_all = both.n_samples_seen_, self.n_given + recipe.n
        assert n_both == n_all or (self.may_have_copies(recipe) and self.n_given <= n_both < n_all)
        assert_sound(*both.predict(queries(10, self.n_features), return_std=True))
        if goes_on:
            self.catch_up()
            self.model, self.twin = both, merged(self.twin)
            self.count(rows[0])
            self.n_given = n_both
            self.ashore = self.sent = None

    def may_have_copies(self, recipe):
        """Whether two rows of different maps may be the same, up to the resolution of the units: they count once."""
        return recipe.field is constant or self.largest > ORDINARY

    # Always

    @precondition(lambda self: self.n_given)
    @invariant()
    def counts_are_right(self):
        assert (self.model.n_samples_seen_, self.model.n_pending_) == (self.n_given, 0)
        assert self.model.n_models_ <= self.model.max_models
        np.testing.assert_array_equal(self.model.bounds_, self.bounds)

    @precondition(lambda self: self.n_given)
    @invariant()
    def knowledge_is_bounded_and_finite(self):
        assert all(len(model.data) <= MOST_POINTS for model in self.model.models_)
        wrong = [path for path, value in numbers_in(self.model.models_).items() if not np.isfinite(value).all()]
        assert not wrong, f"these are not finite: {wrong}"


TestProgram = Program.TestCase
TestProgram.settings = settings(max_examples=8, stateful_step_count=12)
