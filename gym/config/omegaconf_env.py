"""Lends OmegaConf an environment other than the process's own while one value is resolved.

Importing this imports OmegaConf. The resolver that was registered before is put back.
"""

import os
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any

from omegaconf import OmegaConf
from omegaconf.resolvers import oc

_UNSET = object()


@contextmanager
def environment_resolver(env: Mapping[str, str]) -> Generator[None]:
    """Inside, `${oc.env:…}` reads `env`."""
    if env is os.environ:
        yield
        return

    def look_up(name: str, default: Any = _UNSET) -> str | None:
        if name in env:
            return env[name]
        if default is _UNSET:
            raise KeyError(f"the environment variable {name} is not set")
        return None if default is None else str(default)

    OmegaConf.register_new_resolver("oc.env", look_up, replace=True)
    try:
        yield
    finally:
        OmegaConf.register_new_resolver("oc.env", oc.env, replace=True)
