"""The process that learns: what it sends is what it has, and only what changed; it outlives bad commands."""

import os
import pickle
import signal
import socket
from copy import copy
from functools import partial
from queue import Queue

import numpy as np
import pandas as pd
import pytest

from live_maps import PAPER, SURVEY, direct_bytes, survey_rows
from streams import assert_same_learning, assert_same_map_files, queries
from wgpr.io.rows import learn_rows
from wgpr.service import writer as writer_module
from wgpr.service.changes import StateReceiver, StateSender
from wgpr.service.definition import Definition
from wgpr.service.writer import Close, Failed, Learn, Learned, Open, Save, Saved, Writer

ROWS = survey_rows(800)
LGPR = Definition(
    inputs=["east", "north"],
    target="depth",
    method="lgpr",
    settings={
        "n_calibration": 40,
        "max_samples": 15,
        "batch_size": 20,
        "optimizer_iterations": 5,
        "random_state": 0,
    },
)
every_method = pytest.mark.parametrize("definition", [SURVEY, PAPER, LGPR], ids=["default", "solar", "lgpr"])


def learned_in_pieces(definition, n_each=60, n_rows=300):
    """States of a model after each piece of the rows; each state is a copy."""
    model = definition.new_estimator()
    for first in range(0, n_rows, n_each):
        learn_rows(model, ROWS[first : first + n_each], None, definition.columns)
        yield copy(model)


# States


@every_method
def test_received_models_are_the_sent_ones_to_the_bit(definition):
    sender, receiver, previous = StateSender(), StateReceiver(), None
    for model in learned_in_pieces(definition):
        previous = receiver.model(sender.change(model), previous)
        assert previous is not model
        assert previous.to_bytes() == model.to_bytes()
        assert_same_learning(previous, model)
        assert previous.history_ == model.history_


def test_a_received_model_can_learn_more():
    sender, receiver = StateSender(), StateReceiver()
    (model,) = learned_in_pieces(SURVEY, 300)
    received = receiver.model(sender.change(model), None)
    learn_rows(received, ROWS[300:400], None, SURVEY.columns)
    assert_same_map_files(received.to_bytes(), direct_bytes(ROWS[:400]))


@every_method
def test_parts_that_did_not_change_keep_their_identity(definition):
    """Territories that stay the same are not sent again, and their answers stay in the cache."""
    sender, receiver, before, received = StateSender(), StateReceiver(), None, None
    n_kept = 0
    for model in learned_in_pieces(definition, 20, 600):
        last, received = received, receiver.model(sender.change(model), received)
        if before is not None:
            pairs = list(zip(before._state.ensemble.models, model._state.ensemble.models, strict=False))
            twins = list(zip(last._state.ensemble.models, received._state.ensemble.models, strict=False))
            assert [first is second for first, second in twins] == [first is second for first, second in pairs]
            n_kept += sum(first is second for first, second in pairs)
        before = model
    assert n_kept > 0


def test_a_change_is_smaller_than_the_state():
    sender = StateSender()
    *_, before, model = learned_in_pieces(SURVEY, 20, 800)
    assert before.n_models_ == model.n_models_ > 2
    whole = len(sender.change(before))
    assert len(sender.change(model)) < whole / 2
    assert len(sender.change(model)) < len(sender.change(before))


def test_received_models_share_the_cache():
    sender, receiver = StateSender(), StateReceiver()
    first, second = learned_in_pieces(SURVEY, 150)
    first = receiver.model(sender.change(first), None)
    second = receiver.model(sender.change(second), first)
    assert first._state.cache is second._state.cache
    X = pd.DataFrame(queries(), columns=SURVEY.inputs)
    for model in (first, second, first):
        np.testing.assert_array_equal(model.predict(X), pickle.loads(pickle.dumps(model)).predict(X))


# The process


@pytest.fixture
def process():
    """A process that learns, and the list of its replies; None at the end of the list when it has ended."""
    replies = Queue()
    writer = Writer(replies.put)
    yield writer, lambda: replies.get(timeout=120)
    writer.close()


def received(reply, receiver):
    assert isinstance(reply, Learned)
    return receiver.model(reply.change, None)


@every_method
def test_the_process_learns_and_saves(process, definition):
    (writer, reply), receiver = process, StateReceiver()
    for command in (Open("lake", definition, None), Learn("lake", 0, ROWS[:55]), Learn("lake", 55, ROWS[55:110])):
        writer.send(command)
    assert reply() == Learned("lake", 0, None)
    first, second = reply(), reply()
    assert (first.n_rows, second.n_rows) == (55, 110)
    assert first.forecasts["rows"] == 54  # the first row had no forecast
    assert_same_map_files(received(first, receiver).to_bytes(), direct_bytes(ROWS[:55], definition))
    assert_same_map_files(received(second, receiver).to_bytes(), direct_bytes(ROWS[:110], definition))
    writer.send(Save("lake"))
    saved = reply()
    assert isinstance(saved, Saved)
    assert saved.n_rows == 110
    assert_same_map_files(saved.data, direct_bytes(ROWS[:110], definition))


def test_the_process_goes_on_from_a_snapshot(process, tmp_path):
    writer, reply = process
    (tmp_path / "a.map").write_bytes(direct_bytes(ROWS[:50]))
    writer.send(Open("lake", SURVEY, tmp_path / "a.map"))
    receiver = StateReceiver()
    assert_same_map_files(received(reply(), receiver).to_bytes(), direct_bytes(ROWS[:50]))
    writer.send(Learn("lake", 50, ROWS[50:110]))
    assert_same_map_files(received(reply(), receiver).to_bytes(), direct_bytes(ROWS[:110]))


def test_the_process_learns_several_maps(process):
    writer, reply = process
    for name in ("a", "b"):
        writer.send(Open(name, SURVEY, None))
        reply()
    writer.send(Learn("a", 0, ROWS[:30]))
    writer.send(Learn("b", 0, ROWS[30:50]))
    assert [(each.name, each.n_rows) for each in (reply(), reply())] == [("a", 30), ("b", 20)]
    writer.send(Close("a"))
    writer.send(Learn("a", 30, ROWS[30:40]))
    assert isinstance(reply(), Failed)
    writer.send(Learn("b", 20, ROWS[50:60]))
    assert reply().n_rows == 30


def test_the_process_outlives_bad_commands(process, tmp_path):
    writer, reply = process
    (tmp_path / "bad.map").write_bytes(b"no map")
    bad = [
        Learn("unknown", 0, ROWS[:5]),
        Save("unknown"),
        Open("lake", SURVEY, tmp_path / "missing.map"),
        Open("lake", SURVEY, tmp_path / "bad.map"),
    ]
    for command in bad:
        writer.send(command)
        failure = reply()
        assert isinstance(failure, Failed)
        assert failure.name == command.name
        assert failure.reason
    writer.send(Close("unknown"))  # has no reply
    writer.send(Open("lake", SURVEY, None))
    assert isinstance(reply(), Learned)
    for rows in (np.full((3, 3), np.nan), ROWS[0], ROWS[:5]):
        writer.send(Learn("lake", 0, rows))
    assert [type(reply()) for _ in range(3)] == [Failed, Failed, Learned]


def test_maps_share_the_memory_for_posteriors(monkeypatch):
    """What the map keeps that learned longest ago goes first."""
    monkeypatch.setattr(writer_module, "_CACHE_BYTES_OF_ALL", 2**21)
    maps = {}
    carry_out = partial(writer_module._carried_out, maps=maps)
    carry_out(Open("paper", PAPER, None))  # has nothing to keep
    carry_out(Learn("paper", 0, ROWS[:50]))
    kept = []
    for name in "abcdef":
        carry_out(Open(name, SURVEY, None))
        carry_out(Learn(name, 0, ROWS))
        kept.append([maps[each].cache.n_bytes for each in "abcdef" if each in maps])
        assert sum(kept[-1]) <= 2**21
        assert kept[-1][-1] == kept[0][0] > 2**19
    assert kept[-1][0] == 0 < kept[-1][-2]
    carry_out(Learn("a", len(ROWS), ROWS[:100] + 0.1))
    assert maps["a"].cache.n_bytes > 0
    assert list(maps)[-1] == "a"
    assert maps["a"]._with_own_settings().max_cache_bytes == 2**28


def test_the_process_tells_when_it_dies(process):
    writer, reply = process
    os.kill(writer.process_id, signal.SIGKILL)
    assert reply() is None
    writer.send(Save("lake"))  # has no effect, and does not wait


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_are_for_the_service(process, number):
    writer, reply = process
    writer.send(Open("lake", SURVEY, None))
    reply()
    os.kill(writer.process_id, number)
    writer.send(Learn("lake", 0, ROWS[:5]))
    assert reply().n_rows == 5


def test_the_process_ends_when_the_connection_closes(process):
    """As when the service is killed."""
    writer, reply = process
    writer.send(Open("lake", SURVEY, None))
    reply()
    with socket.socket(fileno=os.dup(writer._connection.fileno())) as end:
        end.shutdown(socket.SHUT_RDWR)
    writer._process.join(30)
    assert writer._process.exitcode == 0
    assert reply() is None


def test_closing_ends_the_process(process):
    writer, _ = process
    writer.close()
    assert writer._process.exitcode == 0
