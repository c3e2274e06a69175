"""Notes in a file."""
