"""Conversion tables."""

from tables.units import convert, ranks, units

__all__ = ["convert", "ranks", "units"]
