"""What goes over the wire: pydantic models, route names and the one table of failures.

No I/O, and nothing else of ours is imported here. Requests reject unknown fields, so that a
misspelt field is a 422 and not a silent default; replies are read tolerantly, because a newer
peer may add some.
"""
