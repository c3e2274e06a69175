"""The record of model calls: what each rollout's file holds, how it is written and read back, and the report of a closed rollout."""
