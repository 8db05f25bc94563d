"""How a map becomes a file: arrays and a header, written whole, checked when read (docs/format.md)."""
