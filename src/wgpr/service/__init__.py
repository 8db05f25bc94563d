"""The live service: maps that learn and answer over HTTP, and lose nothing that they have accepted."""
