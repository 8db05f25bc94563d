"""Fleets: maps of several robots become one (docs/fleet.md)."""
