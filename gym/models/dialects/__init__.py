"""The three dialects of model calls: read, written, streamed, and turned into one another."""
