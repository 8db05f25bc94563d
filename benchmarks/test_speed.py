"""The same work for pytest-benchmark, which keeps and compares runs: `pytest benchmarks/ --benchmark-only`."""

import pytest

from wgpr.gp.linalg import one_blas_thread
from wgpr.rules.prediction import Nearest, predict
from workloads import Bound, UnavoidableWork, ensemble_of, learners, robot_arm


@pytest.fixture(autouse=True)
def _one_thread():
    with one_blas_thread():
        yield


@pytest.mark.benchmark(group="one bound with its gradient, and the dense work that it cannot avoid")
@pytest.mark.parametrize("work", [Bound, UnavoidableWork])
def test_bound(benchmark, work):
    benchmark(work())


@pytest.mark.benchmark(group="learning 1,000 samples", min_rounds=3)
@pytest.mark.parametrize("method", learners())
def test_learning(benchmark, method):
    X, y = robot_arm(1000)
    benchmark(learners()[method].fit, X, y)


@pytest.mark.benchmark(group="10,000 predictions with variance")
@pytest.mark.parametrize("n_models", [1, 10, 100, 1000])
def test_prediction(benchmark, n_models):
    ensemble, queries = ensemble_of(n_models)
    benchmark(predict, ensemble, Nearest(), queries)
