"""Getting a bundle into a sandbox: found where it is mounted, else copied once, as one archive.

Invariant: nothing is downloaded inside. A copy is unpacked under a name of its own, stamped, and then takes its place in one step,
so that whoever finds the stamp finds it whole, and of two that copy at once one comes too late and does no harm.
"""

import secrets

from gym.harness.bundle import STAMP, Built
from gym.harness.elf import Version
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
for ask in "getconf GNU_LIBC_VERSION" "$GYM_LOADER --version" "ldd --version"; do
  said=$($ask 2>/dev/null | head -n 1 | grep -oE '[0-9]+\.[0-9]+' | tail -n 1)
  [ -n "$said" ] && echo "glibc=$said" && break
done
for dir in $GYM_PLACES; do [ -e "$dir/$GYM_STAMP" ] && echo "found=$dir"; done
for tool in tar gzip mv; do command -v $tool >/dev/null || echo "missing=$tool"; done
for tool in $GYM_TOOLS; do command -v $tool >/dev/null || echo "lacking=$tool"; done
:
"""
_ROOM = 'mkdir -p "$GYM_HOME" && chmod 755 "$GYM_HOME" && : > "$GYM_HOME/.gym-room" && rm "$GYM_HOME/.gym-room"'
_UNPACK = r"""
[ -z "$GYM_LOCK" ] || { exec 9>>"$GYM_LOCK" && flock 9; } || exit 1
trap 'rm -rf "$GYM_FRESH" "$GYM_FRESH.tar.gz"' EXIT
mkdir "$GYM_FRESH" && chmod 755 "$GYM_FRESH" && tar -xzf "$GYM_FRESH.tar.gz" -C "$GYM_FRESH" && touch "$GYM_FRESH/$GYM_STAMP" || exit 1
[ -e "$GYM_TARGET/$GYM_STAMP" ] || mv -T "$GYM_FRESH" "$GYM_TARGET" || [ -e "$GYM_TARGET/$GYM_STAMP" ]
"""


async def place(box: BorrowedSandbox, built: Built, timeout: float) -> str:
    """The folder in the sandbox that has the bundle's files. Raises ContractError: 422 if the image cannot run them, 503 if it broke."""
    bundle = built.bundle
    roots = (MOUNTED, COPIED) if bundle.home is None else (bundle.home,)
    places = [f"{root}/{bundle.digest}" for root in roots]
    env = {"GYM_LOADER": bundle.loader, "GYM_PLACES": " ".join(places), "GYM_STAMP": STAMP, "GYM_TOOLS": " ".join(bundle.tools)}
    looked = await run_in(box, _LOOK, timeout, env=env)
    said: dict[str, list[str]] = {}
    for line in looked.stdout.splitlines():
        name, _, value = line.partition("=")
        said.setdefault(name, []).append(value)
    if not looked.ok or "machine" not in said:
        raise ContractError(503, f"the sandbox cannot run a shell: {looked.stderr.strip()[-300:]}", kind="provider_unavailable")
    machine, has = said["machine"][0], _version(said.get("glibc", [""])[0])
    if machine != bundle.machine:
        raise ContractError(422, f"{bundle.title} is here for {bundle.machine}, but the sandbox is a {machine}")
    if "loader" not in said:
        raise ContractError(
            422, f"{bundle.title} needs an image with glibc: this one has no {bundle.loader} (Alpine and busybox have none)"
        )
    if has is not None and has < built.glibc:
        needed, found = (".".join(map(str, version)) for version in (built.glibc, has))
        raise ContractError(422, f"{bundle.title} needs an image with glibc {needed} or newer: this one has {found}")
    if "lacking" in said:
        raise ContractError(
            422, f"{bundle.title} needs an image with {', '.join(bundle.tools)}: this one lacks {', '.join(said['lacking'])}"
        )
    if "found" in said:
        return said["found"][0]
    if "missing" in said:
        raise ContractError(
            422, f"{bundle.title} cannot be copied into an image that lacks {', '.join(said['missing'])}: add that, or mount {roots[0]}"
        )
    if bundle.home is not None:
        room = await run_in(box, _ROOM, timeout, env={"GYM_HOME": bundle.home}, user=_root(box))
        if not room.ok:
            why = f"it is not mounted there, and it cannot be written ({room.stderr.strip()[-200:]})"
            raise ContractError(
                422, f"{bundle.title} needs {bundle.home} in the sandbox: {why}; mount the cache's folder harness, or let it be written"
            )
    await _copy(box, built, places[-1], timeout)
    return places[-1]


async def _copy(box: BorrowedSandbox, built: Built, target: str, timeout: float) -> None:
    title, fresh = built.bundle.title, f"{target}.{secrets.token_hex(4)}"
    try:
        await box.upload(f"{fresh}.tar.gz", built.archive)
    except SandboxError as error:
        raise sandbox_lost(error.kind, f"{title} could not be copied into the sandbox (or mount it, see docs): {error}") from error
    lock = f"{target}.lock" if "flock" in built.bundle.tools else ""
    env = {"GYM_FRESH": fresh, "GYM_TARGET": target, "GYM_STAMP": STAMP, "GYM_LOCK": lock}
    done = await run_in(box, _UNPACK, timeout, env=env, user=_root(box))
    if not done.ok:
        reason = f"{title} could not be put into the sandbox: {done.stderr.strip()[-300:]}"
        raise ContractError(503, reason, kind="provider_unavailable", terminal=False)


def _root(box: BorrowedSandbox) -> str | None:
    return "0" if box.capabilities.users else None


def _version(text: str) -> Version | None:
    """What the sandbox says of its glibc; None if it says nothing that can be read."""
    major, _, minor = text.partition(".")
    return (int(major), int(minor)) if major.isdigit() and minor.isdigit() else None
