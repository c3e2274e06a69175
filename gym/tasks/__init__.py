"""Data sets and their rows: reading, naming and checking tasks.

Rows are streams: nothing here holds more than one row at a time.
"""
