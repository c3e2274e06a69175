"""Stands in for `litellm`, which NOOA imports and which nothing here calls: 140 MB, and three seconds at every start."""

import sys
import types
from importlib.machinery import ModuleSpec
from typing import Any, ClassVar


class _Stub(types.ModuleType):
    __path__: ClassVar[list[str]] = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if name[0].isupper():
            made: Any = type(name, (Exception,), {})
        else:
            made = _Stub(f"{self.__name__}.{name}")
        setattr(self, name, made)
        return made

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError(f"{self.__name__} is not here: models are called by GymResponsesLLM")


class _Finder:
    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        return ModuleSpec(name, self, is_package=True) if name == "litellm" or name.startswith("litellm.") else None  # type: ignore[arg-type]

    def create_module(self, spec: ModuleSpec) -> types.ModuleType:
        return _Stub(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        return None


def install() -> None:
    """Make `import litellm` find the stub, unless it was imported before."""
    if "litellm" not in sys.modules:
        sys.meta_path.insert(0, _Finder())  # type: ignore[arg-type]
