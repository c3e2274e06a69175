"""Processes: from a plan to running servers, and back to nothing."""
