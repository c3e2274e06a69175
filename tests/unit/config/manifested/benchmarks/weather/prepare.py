"""Makes the rows."""
