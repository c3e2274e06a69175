"""Settings."""

