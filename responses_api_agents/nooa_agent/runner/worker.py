"""The worker in a sandbox: one activation, its job on standard input, its records as lines of JSON on standard output.

Invariant: a record is out, and flushed, as soon as it is made, so that a run that is cut short has said all that came before. What
the agent prints itself goes to standard error. The access is in a variable that is taken out before anything of the agent runs.
"""

import asyncio
import json
import os
import sys
import threading
from typing import Any

from responses_api_agents.nooa_agent.runner.litellm_stub import install

_ACCESS = "GYM_NOOA_ACCESS"


def main() -> None:
    """Run the job; exits with 0 if it came to an end that was recorded."""
    out, lock = os.fdopen(os.dup(1), "wb"), threading.Lock()
    os.dup2(2, 1)

    def record(event: dict[str, Any]) -> None:
        line = json.dumps(event, ensure_ascii=False, default=str).encode("utf-8", "replace")
        with lock:
            out.write(line + b"\n")
            out.flush()

    job, access = json.loads(sys.stdin.buffer.read()), json.loads(os.environ.pop(_ACCESS))
    sys.stdin = open(os.devnull)  # noqa: PTH123, SIM115 - for the agent's code, for as long as it runs
    code = 1
    try:
        install()
        from responses_api_agents.nooa_agent.runner.activation import Job, activate

        asyncio.run(activate(Job(**job), access, record))
        code = 0
    except BaseException as error:
        record({"type": "end", "outcome": "failed", "reason": f"{type(error).__name__}: {error}"})
    sys.stderr.flush()
    os._exit(code)  # threads of the agent's may live on; processes are ended by who started us


if __name__ == "__main__":
    main()
