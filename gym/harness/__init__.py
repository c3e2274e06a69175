"""Running a command-line agent inside a borrowed sandbox.

An author writes an `Adapter` (what to install, how to start it, how to read what it wrote) and a `HarnessServer` that makes it;
everything else is the same for every harness. Nothing is imported here, since configurations are checked without their apps.
"""
