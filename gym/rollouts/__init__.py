"""The collector: rows -> episodes -> rollouts in JSONL.

Data flows one way: `source` expands rows into a file of rollouts, `feed` hands them out, `collect`
sends each through a `Dispatcher`, `outcomes` judges the answer, `store` keeps it, `ledger` counts.
Nothing here holds more than a window of rollouts, save for a few bytes each in the ledger.
"""
