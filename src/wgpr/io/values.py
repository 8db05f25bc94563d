"""Old place of `from_json`, until everything imports it from `wgpr.io.codec`."""

from wgpr.io.codec import from_json, to_json

__all__ = ["from_json", "to_json"]
