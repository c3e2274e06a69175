"""What a sandbox sees of the host, and what it is told to be: the keeper's configuration. Pure data, but for looking at the host's files.

Invariant: of the host nothing can be written but the sandbox's own tree, and nothing can be read
but programs, libraries, a few files of /etc, the Python that runs the supervisor, and what
`visible` names. In particular no home, no state folder, no socket.
"""

import os
import secrets
import shutil
import subprocess
import sys
import sysconfig
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any

from pydantic import ValidationError

from gym.sandbox.providers.local_options import LocalIsolation, LocalOptions
from gym.sandbox.spec import SandboxError, SandboxSpec, SandboxSpecError

WORKDIR = "/work"
HOME = "/home/gym"
_UID = 1000
_FIRST_UID = 1_900_000_000
"""Far from the ranges that systems give to users and containers."""

_PYTHON = "/run/nemo-gym/python"
_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
_ETC = ("alternatives", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "localtime", "mime.types", "protocols", "services", "ssl/certs")
_ETC_NETWORK = ("resolv.conf", "hosts")
_DATA = {
    "/etc/passwd": (
        f"root:x:0:0:root:/root:/bin/sh\ngym:x:{_UID}:{_UID}:gym:{HOME}:/bin/sh\nnobody:x:65534:65534:nobody:/nonexistent:/bin/false\n"
    ),
    "/etc/group": f"root:x:0:\ngym:x:{_UID}:\nnogroup:x:65534:\n",
    "/etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
}
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def isolation_of(spec: SandboxSpec, options: LocalOptions) -> LocalIsolation:
    """The block's isolation with what the spec sets on top; SandboxSpecError for unknown or malformed options."""
    merged = {name: getattr(options.create, name) for name in LocalIsolation.model_fields} | spec.provider_options
    if spec.network is not None:
        merged["network"] = spec.network
    try:
        return LocalIsolation.model_validate(merged)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        known = ", ".join(LocalIsolation.model_fields)
        said = f"sandbox spec: {where}: {first['msg'].lower()} (got {first['input']!r}; options of local: {known})"
        raise SandboxSpecError(said) from error


def plan(spec: SandboxSpec, options: LocalOptions, folder: Path, ttl_s: float) -> dict[str, Any]:
    """The configuration of the keeper, with `tops`, the folders of the tree that it expects to exist."""
    isolation = isolation_of(spec, options)
    tree = folder / "tree"
    config: dict[str, Any] = {
        "ttl_s": ttl_s,
        "ready_timeout_s": spec.ready_timeout_s,
        "unconfined": options.unconfined,
        "supervisor_file": str(Path(__file__).with_name("supervisor.py")),
        "uid": 0,
    }
    if options.unconfined:
        workdir, home = str(tree / "work"), str(tree / "home")
        if spec.workdir is not None or spec.files:
            raise SandboxSpecError(f"an unconfined sandbox has its work tree in {str(folder)!r}: drop workdir and files from the spec")
        config |= {"python": [os.path.realpath(sys.executable), "-I", "-S"], "tops": ["work", "home"]}
    else:
        workdir, home = spec.workdir or WORKDIR, HOME
        tops = _tops([workdir, home, "/tmp/x", f"{WORKDIR}/x", *spec.files], isolation.visible)
        _check_visible(isolation.visible, folder)
        python, python_binds = _python()
        binds = [
            *python_binds,
            *((path, path, "ro") for path in _system(isolation.network)),
            *((str(tree / top), f"/{top}", "rw") for top in tops),
            *((path, path, "ro") for path in isolation.visible),  # last, so that they can lie in the tree
        ]
        config |= {
            "python": python,
            "tops": tops,
            "bwrap": _bwrap(options.bwrap, isolation),
            "binds": binds,
            "data": _DATA,
            "uid": _FIRST_UID + secrets.randbelow(200_000_000) if os.geteuid() == 0 else 0,
        }
    config["supervisor"] = {
        "ttl_s": ttl_s,
        "workdir": workdir,
        "home": home,
        "entrypoint": spec.entrypoint,
        "pids_limit": None if options.unconfined else isolation.pids_limit,
        "env": {"PATH": _PATH, "HOME": home, "LANG": "C.UTF-8", **spec.env},
    }
    return config


def _tops(paths: list[str], visible: list[str]) -> list[str]:
    """The folders right below the root in which `paths` lie: each is a private, writable part of the tree."""
    taken = {PurePosixPath(path).parts[1] for path in (*_SYSTEM, "/etc", "/proc", "/run", "/sys")}
    tops: dict[str, None] = {}
    for path in paths:
        parts = PurePosixPath(path).parts
        if ".." in parts or len(parts) < 2 or parts[1] in taken or any(PurePosixPath(path).is_relative_to(seen) for seen in visible):
            raise SandboxSpecError(f"{path!r} cannot be in the private tree of a local sandbox: choose a folder such as {WORKDIR!r}")
        if parts[1] != "dev":
            tops[parts[1]] = None
    return list(tops)


def _system(network: str) -> list[str]:
    names = [*_ETC, *(_ETC_NETWORK if network == "host" else ())]
    wanted = [*(path for path in _SYSTEM if not Path(path).is_symlink()), *(f"/etc/{name}" for name in names)]
    return [path for path in wanted if Path(path).exists()]


def _check_visible(visible: list[str], folder: Path) -> None:
    root = Path(os.path.realpath(folder.parent))
    for path in visible:
        if not Path(path).exists():
            raise SandboxSpecError(f"visible: there is no {path!r} on this host")
        real = Path(os.path.realpath(path))
        if root.is_relative_to(real) or real.is_relative_to(root):
            raise SandboxSpecError(f"visible: {path!r} would show the folder of the sandboxes themselves, {str(root)!r}")


def _bwrap(program: str, isolation: LocalIsolation) -> list[str]:
    found = shutil.which(program)
    if found is None:
        raise SandboxError(
            f"the local sandbox provider needs bubblewrap, and there is no {program!r} here: install the Debian package bubblewrap"
        )
    argv = [found, "--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"]
    if isolation.network == "none":
        argv.append("--unshare-net")
    if "--disable-userns" in _help(found):  # since 0.8: commands cannot make namespaces of their own
        argv.append("--disable-userns")
    argv += ["--as-pid-1", "--die-with-parent", "--new-session", "--clearenv", "--hostname", "sandbox"]
    argv += ["--uid", str(_UID), "--gid", str(_UID), "--proc", "/proc", "--dev", "/dev"]
    for path in map(Path, _SYSTEM):
        if path.is_symlink():
            argv += ["--symlink", str(path.readlink()), str(path)]
    if sysconfig.get_config_var("Py_ENABLE_SHARED"):
        argv += ["--setenv", "LD_LIBRARY_PATH", f"{_PYTHON}/lib"]  # for the supervisor; commands get an environment of their own
    return argv


@cache
def _help(program: str) -> str:
    return subprocess.run([program, "--help"], capture_output=True, check=False, timeout=10, stdin=subprocess.DEVNULL, text=True).stdout


def _python() -> tuple[list[str], list[tuple[str, str, str]]]:
    """How the supervisor is run in a sandbox, and what it needs to see for that."""
    program = Path(os.path.realpath(sys.executable))
    base = Path(os.path.realpath(sys.base_prefix))
    if any(program.is_relative_to(path) for path in _SYSTEM):
        return [str(program), "-I", "-S"], []
    if not program.is_relative_to(base):
        raise SandboxError(f"the local sandbox provider cannot show Python to its sandboxes: {program} is not in {base}")
    return [f"{_PYTHON}/{program.relative_to(base)}", "-I", "-S"], [(str(base), _PYTHON, "ro")]
