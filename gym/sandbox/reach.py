"""Whether code in a sandbox reaches our servers: tried from inside, with whatever the image has.

Invariant: what is tried is what a harness would do, a request over TCP to the very address that it is given, and
nothing is changed in the sandbox. An image with no tool to try with is no failure: it is only not known then.
Left out: proxies that the image may be set up for.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from gym.protocol.failures import bounded_reason
from gym.protocol.routes import HEALTH
from gym.sandbox.handles import BorrowedSandbox, OwnedSandbox
from gym.sandbox.spec import SandboxError

PROBE_SECONDS = 10.0
"""A connection that takes longer is taken for one that a firewall swallows."""

_ANSWER = '"status":"ok"'
_TOOL = "tool="

# Each tool sends the same request, and what it prints ends with the answer's body. bash may be built without /dev/tcp.
_PROBE = r"""
export LC_ALL=C
unset http_proxy HTTP_PROXY all_proxy ALL_PROXY
request() { printf 'GET %s HTTP/1.0\r\n\r\n' "$GYM_PATH"; }
has() { command -v "$1" >/dev/null 2>&1; }
try() { echo "tool=$1"; }
case "$(bash -c 'exec 3<>/dev/tcp/127.0.0.1/1' 2>&1)" in
  *"o such file"* | *"not found"*) ;;
  *) try bash; exec bash -c 'exec 3<>"/dev/tcp/$GYM_HOST/$GYM_PORT" && printf "GET %s HTTP/1.0\r\n\r\n" "$GYM_PATH" >&3 && cat <&3' ;;
esac
for python in python3 python python2; do
  has $python && { try $python; exec $python -c 'if True:
    import os, socket, sys
    try:
        s = socket.create_connection((os.environ["GYM_HOST"], int(os.environ["GYM_PORT"])), 9)
        s.sendall(("GET %s HTTP/1.0\r\n\r\n" % os.environ["GYM_PATH"]).encode())
        print(s.makefile().read())
    except Exception as error:
        sys.exit(str(error))
  '; }
done
has curl && { try curl; exec curl -sS -m 9 "$GYM_URL"; }
has wget && { try wget; exec wget -q -O - -T 9 "$GYM_URL"; }
has busybox && { try "busybox nc"; request | busybox nc -w 9 "$GYM_HOST" "$GYM_PORT"; exit; }
has nc && { try nc; request | nc -w 9 "$GYM_HOST" "$GYM_PORT"; exit; }
try ""
"""


class ReachError(SandboxError):
    """An address of ours cannot be reached from within a sandbox. Another sandbox in the same network fares no better."""

    def __init__(self, message: str) -> None:
        super().__init__(message, "transport_unreachable")


@dataclass(frozen=True)
class Reached:
    """One address that was tried from inside."""

    url: str
    tool: str
    """What it was tried with; "" where the image has nothing to try with, and so it is not known."""
    seconds: float


async def check_reach(sandbox: OwnedSandbox | BorrowedSandbox, urls: Sequence[str], timeout_s: float = PROBE_SECONDS) -> list[Reached]:
    """Call each base URL from inside the sandbox. Raises ReachError for the first that does not answer.

    A sandbox that is gone raises SandboxError, with a kind that lets the episode be tried again.
    """
    return [await _check(sandbox, url, timeout_s) for url in urls]


async def _check(sandbox: OwnedSandbox | BorrowedSandbox, url: str, timeout_s: float) -> Reached:
    parts = urlsplit(url)
    env = {
        "GYM_HOST": parts.hostname or "",
        "GYM_PORT": str(parts.port or 80),
        "GYM_PATH": HEALTH,
        "GYM_URL": f"{url.rstrip('/')}{HEALTH}",
    }
    began = time.monotonic()
    result = await sandbox.exec(_PROBE, cwd="/", env=env, timeout_s=timeout_s, max_output_bytes=64 * 1024)
    if result.error_type == "sandbox":
        raise SandboxError(f"sandbox {sandbox.sandbox_id} died while it was tried whether it reaches {url}", "session_lost")
    first, _, answer = result.stdout.partition("\n")
    tool = first.removeprefix(_TOOL).strip()
    if _ANSWER in answer or (not tool and first.startswith(_TOOL)):
        return Reached(url, tool, round(time.monotonic() - began, 3))
    lines = [line.strip() for line in (answer + result.stderr).splitlines() if line.strip()]
    said = f"no answer within {timeout_s:g} s" if result.error_type == "timeout" else lines[-1] if lines else f"exit {result.return_code}"
    network = sandbox.observations.get("network")
    where = f"sandbox {sandbox.sandbox_id}" + (f" (network {network})" if network else "")
    raise ReachError(
        f"{where} does not reach {url}: {tool or 'the probe'} said: {bounded_reason(said, 300)} — let its network lead to this machine "
        f"(network: internal does), set reach_host of its provider block, or have this machine's firewall let it in"
    )
