"""Rollouts written anew for trainers and leaderboards: `gym dataset export`.

One module per consumer's form; each turns one rollout into one record, and refuses with a reason
what the form cannot say. Nothing is made up to fill a field.
"""

from gym.rollouts.export.run import ExportOptions, Format, Summary, export

__all__ = ["ExportOptions", "Format", "Summary", "export"]
