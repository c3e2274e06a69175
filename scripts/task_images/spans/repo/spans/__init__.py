"""Lengths of time, written and read."""

from spans.text import SpanError, describe, total

__all__ = ["SpanError", "describe", "total"]
