"""The `local` provider: sandboxes as Linux namespaces, made with bubblewrap; no engine, no image.

Three processes to a sandbox. The *keeper* is outside: it starts the others, ends them when the
time is over or somebody asks, and removes the work tree. *bubblewrap* makes the namespaces. The
*supervisor* is process 1 inside: it runs commands and opens files for whoever can reach its
socket, which lies in a folder that only our user can enter. The supervisor hands out and takes
file descriptors, so no byte of a command's output or of a file is copied on the way.
Where we are root, a sandbox runs as an unprivileged user of its own.
"""
