"""Builds the images and rows of the example tasks: small projects of our own, dressed in the form of each SWE data set.

A task is a folder of `scripts/task_images/` (`task`). Its repository with all of its history is made on this machine by
git (`history`), so that a row can be made without a Docker engine; a data set (`data_sets`) says what an image holds
besides, and how a row looks; `images` builds. Left out on purpose: how a row is graded, which is the servers' business.
"""
