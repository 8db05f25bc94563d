"""What Prometheus can ask for."""

from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, GCCollector, Histogram, ProcessCollector

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)


class Metrics:
    """Counters of one service; each service has its own registry."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        GCCollector(registry=self.registry)
        options: Any = {"registry": self.registry}
        self.rows_accepted = Counter("wgpr_rows_accepted", "Rows written to the journal.", ["map"], **options)
        self.rows_learned = Counter("wgpr_rows_learned", "Rows learned.", ["map"], **options)
        self.rows_waiting = Gauge("wgpr_rows_waiting", "Rows accepted and not yet learned.", ["map"], **options)
        self.models = Gauge("wgpr_models", "Local models.", ["map"], **options)
        self.writer_starts = Counter("wgpr_writer_starts", "Starts of the process that learns.", **options)
        self.commit_seconds = Histogram(
            "wgpr_commit_seconds", "Time of a commit to the journal.", buckets=_SECONDS, **options
        )
        self.requests = Histogram(
            "wgpr_request_seconds",
            "Time of a request, by route, method and status.",
            ["route", "method", "status"],
            buckets=_SECONDS,
            **options,
        )

    def forget_map(self, name: str) -> None:
        for metric in (self.rows_accepted, self.rows_learned, self.rows_waiting, self.models):
            metric.remove(name)
