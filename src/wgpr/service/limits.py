"""How much one client, and all of them together, may ask for."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """body : bytes of a request, after decompression; rows : in a request; places : in a query.

    rows_waiting : of a map, accepted and not yet learned; nodes : of a grid; connections : at once, a slow client
    holds one; seconds : from the first byte of a request to the last of its answer; maps : in a folder.
    cache_bytes : of factorised matrices for answers, of all maps.
    """

    body: int = 32 * 2**20
    rows: int = 100_000
    places: int = 100_000
    rows_waiting: int = 200_000
    nodes: int = 1_000_000
    connections: int = 200
    seconds: float = 60.0
    header_seconds: float = 10.0
    maps: int = 1000
    cache_bytes: int = 2**28
