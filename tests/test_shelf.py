"""The shelf of models: a tuple to whoever reads it, and every version that ever was stays as it was."""

import pickle
from copy import deepcopy

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from wgpr.ensemble.shelf import Shelf

# Around the ends of boards, whatever their width is among the powers of two up to 256.
LENGTHS = [0, 1, 2, 255, 256, 257, 511, 512, 513, 600]
every_length = pytest.mark.parametrize("length", LENGTHS)
bounds = st.none() | st.integers(-700, 700)
steps = st.none() | st.integers(-300, 300).filter(bool)


def assert_reads_like(shelf, items):
    """Length, order, and the item at every place, from both ends; behind those there is nothing."""
    assert len(shelf) == len(items)
    assert bool(shelf) == bool(items)
    assert tuple(shelf) == tuple(items)
    for place, item in enumerate(items):
        assert shelf[place] == item
        assert shelf[place - len(items)] == item
    for place in (len(items), -len(items) - 1, 10_000, -10_000):
        with pytest.raises(IndexError):
            shelf[place]


@every_length
def test_a_shelf_of_items_reads_like_a_tuple_of_them(length):
    assert_reads_like(Shelf(range(length)), list(range(length)))


def test_items_may_come_from_anywhere():
    assert_reads_like(Shelf(), [])
    assert_reads_like(Shelf(str(number) for number in range(300)), [str(number) for number in range(300)])
    assert_reads_like(Shelf(Shelf(range(300))), list(range(300)))


def test_a_shelf_that_grew_one_by_one_reads_like_a_tuple():
    """Over two ends of boards, and every version on the way is what it was."""
    versions = [Shelf()]
    for place in range(520):
        versions.append(versions[-1].with_item(place, place))
    for length, version in enumerate(versions):
        assert tuple(version) == tuple(range(length))
    assert_reads_like(versions[-1], list(range(520)))


@every_length
def test_an_item_can_be_put_in_place_of_any_other_or_behind_the_last(length):
    items = list(range(length))
    shelf = Shelf(items)
    for place in range(length + 1):
        changed = shelf.with_item(place, "new")
        expected = items.copy()
        expected[place : place + 1] = ["new"]
        assert tuple(changed) == tuple(expected)
        assert len(changed) == len(expected)
        assert changed[place] == "new"
    assert tuple(shelf) == tuple(items)


@pytest.mark.parametrize("length", [0, 1, 255, 256])
def test_an_item_cannot_be_put_where_there_is_no_place(length):
    """Rather than a shelf whose length is not the number of its items."""
    shelf = Shelf(range(length))
    for place in (length + 1, length + 256, length + 1000, -1, -256, -1000):
        with pytest.raises(IndexError):
            shelf.with_item(place, "new")


@given(st.sampled_from(LENGTHS), bounds, bounds, steps)
def test_a_slice_is_that_of_the_tuple(length, start, stop, step):
    assert Shelf(range(length))[start:stop:step] == tuple(range(length))[start:stop:step]


@pytest.mark.parametrize("place", [1.0, "1", None, (0,)])
def test_a_place_that_is_no_whole_number_is_refused(place):
    with pytest.raises(TypeError):
        Shelf(range(5))[place]


def test_a_place_may_be_a_number_of_numpys():
    """As an index of models gives it."""
    shelf, places = Shelf(range(600)), np.array([0, 255, 256, 599, -1])
    assert [shelf[place] for place in places] == [0, 255, 256, 599, 599]
    assert shelf.with_item(places[2], "new")[256] == "new"


@every_length
def test_what_every_sequence_can_do(length):
    shelf, items = Shelf(range(length)), tuple(range(length))
    assert list(reversed(shelf)) == list(reversed(items))
    assert (length - 1 in shelf) == (length - 1 in items)
    assert -1 not in shelf
    assert shelf.count(255) == items.count(255)
    assert [shelf.index(item) for item in items[-2:]] == list(items[-2:])


def test_items_are_the_objects_that_were_given():
    items = [object() for _ in range(300)]
    shelf, newcomer = Shelf(items), object()
    changed = shelf.with_item(257, newcomer)
    assert all(found is item for found, item in zip(shelf, items, strict=True))
    assert changed[257] is newcomer
    assert all(changed[place] is items[place] for place in range(300) if place != 257)


def test_it_does_not_change_with_the_list_that_it_was_made_of():
    items = list(range(300))
    shelf = Shelf(items)
    items[0], items[299] = "new", "new"
    items.append("new")
    assert tuple(shelf) == tuple(range(300))


@pytest.mark.parametrize("copied", [deepcopy, lambda shelf: pickle.loads(pickle.dumps(shelf))], ids=["copy", "pickle"])
def test_a_copy_reads_the_same(copied):
    assert_reads_like(copied(Shelf(range(257)).with_item(257, 257)), list(range(258)))


class GrowingShelf(RuleBasedStateMachine):
    """Against a list: items join and are replaced; every shelf that ever was stays as it was."""

    def __init__(self):
        super().__init__()
        self.shelf, self.items, self.n_changes = Shelf(), [], 0
        self.past = []

    def change(self, place):
        self.past.append((self.shelf, tuple(self.items)))
        self.n_changes += 1
        self.shelf = self.shelf.with_item(place, f"item {self.n_changes}")
        self.items[place : place + 1] = [f"item {self.n_changes}"]

    @initialize(length=st.sampled_from(LENGTHS))
    def begin(self, length):
        self.shelf, self.items = Shelf(range(length)), list(range(length))

    @rule(times=st.integers(1, 5))
    def join(self, times):
        for _ in range(times):
            self.change(len(self.items))

    @precondition(lambda self: self.items)
    @rule(number=st.integers(0) | st.sampled_from([0, 254, 255, 256, 257, 510, 511, 512]))
    def replace(self, number):
        self.change(number % len(self.items))

    @precondition(lambda self: self.items)
    @rule(back=st.integers(1, 3))
    def replace_one_of_the_last(self, back):
        self.change(max(0, len(self.items) - back))

    @precondition(lambda self: self.past)
    @rule(number=st.integers(0))
    def change_the_past(self, number):
        """Another future of an old version, which does not touch the present."""
        shelf, items = self.past[number % len(self.past)]
        assert tuple(shelf.with_item(len(items), "other")) == (*items, "other")

    @invariant()
    def reads_like_the_list(self):
        assert len(self.shelf) == len(self.items)
        assert tuple(self.shelf) == tuple(self.items)
        assert [self.shelf[place] for place in range(-len(self.items), 0)] == self.items

    def teardown(self):
        for shelf, items in self.past:
            assert len(shelf) == len(items)
            assert tuple(shelf) == items


TestGrowingShelf = GrowingShelf.TestCase
TestGrowingShelf.settings = settings(max_examples=40, stateful_step_count=25)
