"""Learns and answers one workload of `ratio.py`, with whichever version of wgpr is on the path.

Only public names are used, so that the same worker runs older and newer versions. Prints one line of JSON.
"""

import json
import sys
import time
from operator import attrgetter

import numpy as np

import wgpr


def main() -> None:
    path, maker, rows_at_a_time, n_between, n_single, clock_name = sys.argv[1:]
    clock, step, between = getattr(time, clock_name), int(rows_at_a_time), int(n_between)
    with np.load(path) as file:
        X, y, queries, truth = (file[name] for name in ("X", "y", "X_test", "y_test"))
    model = attrgetter(maker)(wgpr)(random_state=0)
    seconds = dict.fromkeys(("learning", "first", "again", "single", "between"), 0.0)

    def timed(name, work, *arguments, **settings):
        started = clock()
        result = work(*arguments, **settings)
        seconds[name] += clock() - started
        return result

    for number, first in enumerate(range(0, len(y), step)):
        timed("learning", model.partial_fit, X[first : first + step], y[first : first + step])
        if between:
            some = np.arange(number * between, (number + 1) * between) % len(queries)
            timed("between", model.predict, queries[some], return_std=True)
    timed("learning", model.flush)
    mean, _ = timed("first", model.predict, queries, return_std=True)
    timed("again", model.predict, queries, return_std=True)
    for query in queries[: int(n_single)]:
        timed("single", model.predict, query[None], return_std=True)
    rmse = float(np.sqrt(np.mean((mean - truth) ** 2)))
    print(json.dumps({"file": wgpr.__file__, "seconds": seconds, "rmse": rmse, "models": model.n_models_}))


if __name__ == "__main__":
    main()
