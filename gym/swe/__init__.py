"""What all SWE task servers share: the life of a task, from a scrubbed sandbox to a verdict.

A data set is a `Profile`; everything else is the same for all of them.
"""
