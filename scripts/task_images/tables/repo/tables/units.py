"""Units, from `data/units.csv` (name;base;factor, CRLF) and their ranks, from `data/ranks.bin` (unsigned shorts, little-endian)."""

import struct
from pathlib import Path

DATA = Path(__file__).parent / "data"


def units():
    """Name -> (base unit, how many base units one is)."""
    text = (DATA / "units.csv").read_bytes().decode("utf-8")
    found = {}
    for line in text.split("\n")[1:]:
        if line:
            name, base, factor = line.split(";")
            found[name] = (base, float(factor))
    return found


def convert(value, source, target):
    """`value` of the unit `source` in the unit `target`. Raises ValueError for units that measure different things."""
    known = units()
    (base, factor), (other, divisor) = known[source], known[target]
    if base != other:
        raise ValueError(f"{source} is a unit of {base}, {target} of {other}")
    return value * factor / divisor


def ranks():
    """How often each unit is used, in the order of the table."""
    data = (DATA / "ranks.bin").read_bytes()
    return list(struct.unpack(f"<{len(data) // 2}H", data))
