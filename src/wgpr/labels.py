"""Names of quantities with their units, as in "depth [m]"."""

import re
from typing import NamedTuple


class Label(NamedTuple):
    """The name of a quantity, and its unit or None."""

    name: str
    unit: str | None

    @classmethod
    def parsed(cls, text: str) -> "Label":
        """Read "depth", "depth [m]" or "depth (m)".

        >>> Label.parsed("depth [m]")
        Label(name='depth', unit='m')
        """
        match = re.fullmatch(r"(.*\S)\s*(?:\[(.+)\]|\((.+)\))\s*", text)
        return cls(match[1], match[2] or match[3]) if match else cls(text.strip(), None)
