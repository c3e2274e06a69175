"""An implementation's folder as the package of that name, whichever root it lies in.

Implementation folders have no `__init__.py`; left to itself, Python would join the folders of all
roots and take each module from whichever comes first on its path. Here `<kind>.<name>` is made to
mean exactly the folder that the configuration found, so that what is checked is what runs.
"""

import sys
from pathlib import Path
from types import ModuleType

from gym.config.roots import search_roots


def implementation_package(kind: str, name: str, directory: Path) -> str:
    """Make `<kind>.<name>` the package of `directory`, forgetting modules that came from another, and return its name."""
    parent = sys.modules.get(kind)
    if parent is None:
        parent = _package(kind, [directory.parent, *(root / kind for root in search_roots())])
    full = f"{kind}.{name}"
    package = sys.modules.get(full)
    if package is None or list(package.__path__) != [str(directory)]:
        for stale in [module for module in sys.modules if module == full or module.startswith(f"{full}.")]:
            del sys.modules[stale]
        setattr(parent, name, _package(full, [directory]))
    return full


def _package(name: str, folders: list[Path]) -> ModuleType:
    package = ModuleType(name)
    package.__path__ = list(dict.fromkeys(map(str, folders)))
    sys.modules[name] = package
    return package
