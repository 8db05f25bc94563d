"""Workers: the answers of one process, whatever happens to the others.

The tasks are here, and the workers import them from here: this module imports as little as it can.
"""

import json
import os
import signal
import subprocess
import sys
import time
import warnings
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import wgpr.ensemble.workers
from wgpr.ensemble.workers import Workers

# Seconds that a process may take to start or to end, on a busy machine; and less, where it might wait for ever.
PATIENCE = 60
LITTLE_PATIENCE = 12


@pytest.fixture(scope="module")
def light(tmp_path_factory):
    """A folder with a package `wgpr` that imports nothing by itself: processes that find it there start faster."""
    folder = tmp_path_factory.mktemp("light")
    (folder / "wgpr").mkdir()
    (folder / "wgpr" / "__init__.py").write_text(f"__path__ = {[str(Path(wgpr.ensemble.workers.__file__).parent)]!r}\n")
    return folder


@pytest.fixture(autouse=True)
def _light_workers(light, monkeypatch):
    monkeypatch.setattr(sys, "path", [str(light), *sys.path])


def ready(n_jobs):
    """Workers who are all there: they may take their time to start."""
    workers, patience = Workers(n_jobs), time.monotonic() + PATIENCE
    while len(set(workers.run([os.getpid] * n_jobs))) < n_jobs:
        assert time.monotonic() < patience, "they do not start"
        time.sleep(0.02)
    return workers


def others(n_jobs):
    """The processes that stand ready beside this one."""
    return set(ready(n_jobs).run([os.getpid] * n_jobs)) - {os.getpid()}


def is_running(pid):
    """A process that has ended and is not waited for does not count."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def assert_gone(pids):
    patience = time.monotonic() + PATIENCE
    while any(map(is_running, pids)):
        assert time.monotonic() < patience, "they do not end"
        time.sleep(0.02)


def assert_they_work(n_jobs=2):
    """With answers to what is asked now."""
    workers = ready(n_jobs)
    for first in (100, 200):
        assert workers.run([partial(square, first + i) for i in range(5)]) == [(first + i) ** 2 for i in range(5)]
    assert len(others(n_jobs)) == n_jobs - 1


# Tasks


def square(number):
    return number**2


def refuse(number):
    raise LookupError(f"no {number}")


class TwoPartError(Exception):
    """Of those that Python cannot rebuild from what it pickles of them."""

    def __init__(self, what, why):
        super().__init__(f"{what} because {why}")


def refuse_in_two_parts():
    raise TwoPartError("no", "of this")


def end_elsewhere(asking, how, answer):
    """The end of any process but the one that asks."""
    if os.getpid() != asking:
        how()
    return answer


def kill_itself():
    os.kill(os.getpid(), signal.SIGKILL)


def interrupt_itself(answer):
    signal.raise_signal(signal.SIGINT)
    return answer


def function_of(answer):
    """What cannot be sent back."""
    return lambda: answer


def talk(answer):
    print("words " * 2000)
    sys.stdout.write("more words")
    sys.stdout.flush()
    os.write(1, b"and bytes")
    return answer


def ask_others(numbers):
    return Workers(2).run([partial(square, number) for number in numbers])


# The same as one after the other


@pytest.mark.parametrize("n_tasks", [0, 1, 2, 5])
@pytest.mark.parametrize("n_jobs", [1, 2, 3])
def test_answers_are_those_of_one_process_in_the_order_of_the_tasks(n_jobs, n_tasks):
    tasks = [partial(np.random.default_rng(number).normal, size=3) for number in range(n_tasks)]
    expected = [np.random.default_rng(number).normal(size=3) for number in range(n_tasks)]
    answers = ready(n_jobs).run(tasks)
    assert len(answers) == n_tasks
    for answer, right in zip(answers, expected, strict=True):
        np.testing.assert_array_equal(answer, right)


@pytest.mark.parametrize(("n_jobs", "n_tasks", "n_processes"), [(1, 5, 1), (2, 5, 2), (3, 5, 3), (3, 2, 2), (3, 1, 1)])
def test_the_process_that_asks_and_others_share_the_tasks(n_jobs, n_tasks, n_processes):
    pids = ready(n_jobs).run([os.getpid] * n_tasks)
    assert pids[0] == os.getpid()
    assert len(set(pids)) == n_processes


def test_the_others_stay_and_more_of_them_come_when_they_are_asked_for():
    two = others(2)
    assert others(2) == two
    assert others(3) > two
    assert others(2) == two


def test_no_number_of_jobs_is_one_process():
    assert set(Workers(None).run([os.getpid] * 3)) == {os.getpid()}
    assert set(Workers().run([os.getpid] * 3)) == {os.getpid()}


def test_what_a_task_prints_is_no_answer():
    assert ready(2).run([partial(square, 2), partial(talk, 7), partial(square, 3), partial(talk, 8)]) == [4, 7, 9, 8]
    assert_they_work()


def test_answers_may_be_none_or_exceptions():
    error = ready(2).run([partial(square, 2), partial(dict.get, {}, 1), partial(square, 3), partial(OSError, "no")])[3]
    assert isinstance(error, OSError)
    assert_they_work()


def test_a_task_may_ask_workers_itself():
    """In this process those are the same ones, and they are busy with the other task."""
    tasks = [partial(ask_others, [3, 4]), partial(square, 5), partial(ask_others, [6, 7])]
    assert ready(2).run(tasks) == [[9, 16], 25, [36, 49]]
    assert_they_work()


# Tasks that raise


@pytest.mark.parametrize("place", [0, 1], ids=["in the process that asks", "in another"])
def test_an_exception_of_a_task_reaches_who_asks(place):
    workers, tasks = ready(2), [partial(square, number) for number in range(4)]
    tasks[place] = partial(refuse, 5)
    with pytest.raises(LookupError, match="no 5"):
        workers.run(tasks)
    assert_they_work()


@pytest.mark.filterwarnings("ignore:a worker was lost")  # it may be told of that too
def test_so_does_an_exception_that_cannot_be_sent():
    workers = ready(2)
    with pytest.raises(TwoPartError, match="no because of this"):
        workers.run([partial(square, 1), refuse_in_two_parts])
    assert_they_work()


def test_an_interruption_dismisses_the_workers():
    """While they work on something that nobody waits for any more."""
    workers, before = ready(2), others(2)
    with pytest.raises(KeyboardInterrupt):
        workers.run([partial(interrupt_itself, 1), partial(time.sleep, 30)])
    assert not any(map(is_running, before))
    assert_they_work()


def test_the_others_are_not_interrupted():
    """Control-C is for all processes of a terminal; the one that asks decides."""
    before = others(2)
    assert ready(2).run([partial(square, 2), partial(interrupt_itself, 7)]) == [4, 7]
    assert others(2) == before


# Workers that are lost


@pytest.mark.parametrize("how", [partial(os._exit, 3), kill_itself], ids=["exit", "kill"])
def test_a_worker_that_ends_is_told_of_and_its_tasks_are_done(how):
    workers = ready(2)
    tasks = [partial(square, 2), partial(end_elsewhere, os.getpid(), how, 7), partial(square, 3)]
    with pytest.warns(RuntimeWarning, match="n_jobs"):
        assert workers.run(tasks) == [4, 7, 9]
    assert_they_work()


def test_so_is_one_that_ended_while_nobody_asked():
    workers, (other,) = ready(2), others(2)
    os.kill(other, signal.SIGKILL)
    assert_gone([other])
    with pytest.warns(RuntimeWarning, match="n_jobs"):
        assert workers.run([partial(square, number) for number in range(3)]) == [0, 1, 4]
    assert_they_work()


def test_a_task_that_cannot_be_sent_is_told_of_and_done():
    workers = ready(2)
    with pytest.warns(RuntimeWarning, match="n_jobs"):
        assert workers.run([partial(square, 2), lambda: 7]) == [4, 7]
    assert_they_work()


def test_so_is_one_whose_answer_cannot_be_sent():
    workers = ready(2)
    with pytest.warns(RuntimeWarning, match="n_jobs"):
        _, function = workers.run([partial(square, 2), partial(function_of, 7)])
    assert function() == 7
    assert_they_work()


def test_what_only_this_process_does_need_not_be_sent():
    with warnings.catch_warnings(record=True) as told:
        assert ready(2).run([lambda: 7, partial(square, 2)]) == [7, 4]
    assert not told


def test_where_warnings_are_errors_a_lost_worker_is_lost_once():
    """It is not asked again."""
    workers = ready(2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(RuntimeWarning, match="n_jobs"):
            workers.run([partial(square, 2), partial(end_elsewhere, os.getpid(), kill_itself, 7)])
        assert_they_work()


# Scripts

BEGINNING = """
import json, os, threading, time
from functools import partial
import numpy as np
from wgpr.ensemble.workers import Workers

def ready(n_jobs):
    while len(set(pids := Workers(n_jobs).run([os.getpid] * n_jobs))) < n_jobs:
        time.sleep(0.02)
    return pids

def tell(**answers):
    print(json.dumps(answers), flush=True)
"""


def told_by(text, folder, light, timeout=PATIENCE):
    """All that a program with this text tells until it ends; it has no `if __name__ == "__main__"`."""
    (folder / "program.py").write_text(BEGINNING + text)
    command, environment = [sys.executable, "program.py"], os.environ | {"PYTHONPATH": str(light)}
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=timeout, check=False
    )
    assert done.returncode == 0, done.stderr
    return {name: answer for line in done.stdout.splitlines() for name, answer in json.loads(line).items()}


PROGRAM = """
tell(before=ready(2))

answers = Workers(2).run([partial(np.add, np.full(1_000_000, float(number)), 1.0) for number in range(6)])
tell(large=[[len(answer), answer.min(), answer.max()] for answer in answers])

if os.fork() == 0:
    tell(fork=ready(2), squares=Workers(2).run([partial(pow, number, 2) for number in range(5)]))
    os._exit(0)
os.wait()
tell(after=Workers(2).run([os.getpid] * 2), cubes=Workers(2).run([partial(pow, number, 3) for number in range(5)]))

wrong = []

def ask(first):
    for number in range(first, first + 100):
        answers = Workers(2).run([partial(pow, number, power) for power in range(3)])
        if answers != [1, number, number**2]:
            wrong.append((number, answers))

threads = [threading.Thread(target=ask, args=(first,), daemon=True) for first in (0, 1_000, 2_000)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join(timeout=5)
tell(wrong=wrong, n_waiting=sum(thread.is_alive() for thread in threads))
"""


@pytest.fixture(scope="module")
def told(tmp_path_factory, light):
    return told_by(PROGRAM, tmp_path_factory.mktemp("program"), light)


def test_a_program_that_is_not_guarded_has_workers(told):
    assert len(set(told["before"])) == 2


def test_large_answers_to_large_tasks_come_through(told):
    assert told["large"] == [[1_000_000, number + 1.0, number + 1.0] for number in range(6)]


def test_no_process_is_left_behind_when_a_program_ends(told):
    assert not any(map(is_running, told["before"]))


def test_a_fork_has_workers_of_its_own(told):
    """Those of the first process answer it, and it alone; and the fork's end with the fork, though it said no word."""
    assert told["squares"] == [0, 1, 4, 9, 16]
    assert told["cubes"] == [0, 1, 8, 27, 64]
    assert told["after"] == told["before"]
    assert len(set(told["fork"]) - set(told["before"])) == 2
    assert_gone(told["fork"])


def test_threads_get_their_own_answers(told):
    assert told["wrong"] == []
    assert told["n_waiting"] == 0


def test_what_is_defined_in_a_program_is_done_there_however_large(tmp_path, light):
    """As in a notebook: other processes cannot import it. That they cannot is told, and they do not wait for ever."""
    text = """
import warnings

def total(numbers):
    return float(numbers.sum())

ready(2)
with warnings.catch_warnings(record=True) as warned:
    warnings.simplefilter("always")
    answers = Workers(2).run([partial(total, np.full(1_000_000, number)) for number in range(3)])
tell(answers=answers, warned=[str(each.message) for each in warned])
"""
    told = told_by(text, tmp_path, light, timeout=LITTLE_PATIENCE)
    assert told["answers"] == [0.0, 1e6, 2e6]
    assert len(told["warned"]) == 1
    assert "n_jobs" in told["warned"][0]
