"""Names of quantities with their units, as in "depth [m]", names of coordinates, and counts with their nouns."""

import re
from typing import NamedTuple

# Names of coordinates, as patterns.
LONGITUDE, LATITUDE = "lon|long|lng|longitude", "lat|latitude"
EASTING, NORTHING = "east|easting", "north|northing"
_DEGREES = "_?deg(?:rees)?|_?dd"


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

    def is_one_of(self, *patterns: str) -> bool:
        """Whether the name matches one of the patterns, in any case and also with "deg" or "dd" behind it.

        >>> Label.parsed("Lon_deg").is_one_of(LONGITUDE, EASTING)
        True
        """
        return re.fullmatch(f"(?:{'|'.join(patterns)})(?:{_DEGREES})?", self.name, re.IGNORECASE) is not None


def format_count(number: int, noun: str) -> str:
    """1 row, 2 rows, 3 queries, 4 fixes."""
    plural = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}es" if noun.endswith("x") else f"{noun}s"
    return f"{number:,} {noun if number == 1 else plural}"
