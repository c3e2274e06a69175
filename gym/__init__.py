"""Gym runs AI agents on tasks, verifies what they did, and writes the rollouts.

The package is layered and imports only downwards (see docs/architecture.md):
cli -> rollouts, runtime -> servers, swe, models, sandbox, tasks -> client, config -> protocol.
"""

__version__ = "0.1.0"
