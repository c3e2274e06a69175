"""No more than a file that is there."""
