"""The `docker` provider: any engine that speaks Docker's HTTP API, local or remote.

It talks to the engine directly over aiohttp, which the project has anyway: the engine is the
bottleneck (a thread pool over the SDK and aiodocker give the same rate), while a call that is
ours to the socket can be cancelled, has a deadline and costs no thread per running command.
"""
