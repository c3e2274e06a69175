"""Getting a bundle into a sandbox: found where it is mounted, else copied once.

Invariant: nothing is downloaded inside. A copy is made file by file under other names and stamped last, so that whoever finds
the stamp finds it whole, and two that copy at once do not disturb one another.
"""

import secrets
from pathlib import Path

from gym.harness.bundle import STAMP, Bundle
from gym.protocol.errors import ContractError
from gym.sandbox.handles import BorrowedSandbox
from gym.sandbox.spec import SandboxError
from gym.servers.sandbox_agents import run_in, sandbox_lost

MOUNTED = "/opt/nemo-gym"
"""Where the cache's folder `harness` may be mounted, read-only."""
COPIED = "/tmp/nemo-gym"
"""Where it is copied to otherwise: every provider lets this be written."""

_LOOK = r"""
echo "machine=$(uname -m)"
[ -e "$GYM_LOADER" ] && echo loader
for dir in $GYM_PLACES; do [ -e "$dir/$GYM_STAMP" ] && echo "found=$dir"; done
:
"""


async def place(box: BorrowedSandbox, bundle: Bundle, folder: Path, timeout: float) -> str:
    """The folder in the sandbox that has the bundle's files. Raises ContractError: 422 if the image cannot run them, 503 if it broke."""
    places = [f"{root}/{bundle.digest}" for root in (MOUNTED, COPIED)]
    env = {"GYM_LOADER": bundle.loader, "GYM_PLACES": " ".join(places), "GYM_STAMP": STAMP}
    looked = await run_in(box, _LOOK, timeout, env=env)
    lines = looked.stdout.splitlines()
    machine = next((line.partition("=")[2] for line in lines if line.startswith("machine=")), "")
    if not looked.ok or not machine:
        raise ContractError(503, f"the sandbox cannot run a shell: {looked.stderr.strip()[-300:]}", kind="provider_unavailable")
    if machine != bundle.machine:
        raise ContractError(422, f"{bundle.title} is here for {bundle.machine}, but the sandbox is a {machine}")
    if "loader" not in lines:
        raise ContractError(
            422, f"{bundle.title} needs an image with glibc: this one has no {bundle.loader} (Alpine and busybox have none)"
        )
    found = next((line.partition("=")[2] for line in lines if line.startswith("found=")), None)
    if found is None:
        found = places[-1]
        await _copy(box, bundle, folder, found, timeout)
    return found


async def _copy(box: BorrowedSandbox, bundle: Bundle, folder: Path, target: str, timeout: float) -> None:
    suffix = f".{secrets.token_hex(4)}"
    try:
        for piece in bundle.pieces:
            await box.upload(f"{target}/{piece.name}{suffix}", folder / piece.name, mode=0o755)
    except SandboxError as error:
        raise sandbox_lost(error.kind, f"{bundle.title} could not be copied into the sandbox (or mount it, see docs): {error}") from error
    moves = [f'mv -f "{target}/{piece.name}{suffix}" "{target}/{piece.name}"' for piece in bundle.pieces]
    user = "0" if box.capabilities.users else None
    done = await run_in(box, " && ".join([*moves, f'touch "{target}/{STAMP}"']), timeout, user=user)
    if not done.ok:
        reason = f"{bundle.title} could not be put into the sandbox: {done.stderr.strip()[-300:]}"
        raise ContractError(503, reason, kind="provider_unavailable", terminal=False)
