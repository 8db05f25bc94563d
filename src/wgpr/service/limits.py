"""How much one client, and all of them together, may ask for."""

from collections.abc import Iterable
from dataclasses import dataclass

from wgpr.ensemble.answers import PosteriorCache

# Paths of answers that last as long as the client likes.
ENDLESS = frozenset({"/events"})


@dataclass(frozen=True)
class Limits:
    """body : bytes of a table, after decompression; short_body : of other requests; bodies : of all requests at once.

    rows : in a request; places : in a query.
    rows_waiting : of a map, accepted and not yet learned; nodes : of a grid; maps : in a folder.
    connections : at once, and requests at once; seconds : from the headers of a request until the service has the
    answer; header_seconds : for the headers, and between two requests of a connection; unsent : bytes of answers that
    clients have not yet read, of all connections.
    cache_bytes : of factorised matrices for answers, of all maps.
    """

    body: int = 32 * 2**20
    short_body: int = 2**16
    bodies: int = 2**27
    rows: int = 100_000
    places: int = 100_000
    rows_waiting: int = 200_000
    nodes: int = 1_000_000
    connections: int = 200
    seconds: float = 60.0
    header_seconds: float = 10.0
    unsent: int = 2**28
    maps: int = 1000
    cache_bytes: int = 2**28


def limit_caches(caches: Iterable[PosteriorCache], max_bytes: int) -> None:
    """Drop what the first of them keep, until all together have at most `max_bytes`."""
    caches = list(caches)
    excess = sum(cache.n_bytes for cache in caches) - max_bytes
    for cache in caches:
        if excess <= 0:
            return
        before = cache.n_bytes
        cache.shrink(max(0, before - excess))
        excess -= before - cache.n_bytes
