"""The harnesses, their session recipes, and what their tools are called."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Call = dict[str, Any]

TASKS = {
    "swebench_verified": ("swebench:verified", "swebench/data/example"),
    "swebench_multilingual": ("swebench:multilingual", "swebench/data/example_multilingual"),
    "swebench_pro": ("swebench:pro", "swebench_pro/data/example"),
    **{name: (name, f"{name}/data/example") for name in ("swe_gym", "r2e_gym", "scale_swe")},
}
"""Data set -> taskset, and its example rows."""


@dataclass(frozen=True)
class Harness:
    """One harness. Its tools take paths that are relative to the work tree."""

    title: str
    recipes: dict[str, str]
    """Data set -> recipe."""
    killed: str
    """The data set that the interrupted run is of."""
    read: Callable[[str], Call]
    edit: Callable[[str, str, str], Call]
    """File, old text, new text."""
    write: Callable[[str, str], Call]
    shell: Callable[[str], Call]


def _call(name: str, **arguments: Any) -> Call:
    return {"name": name, "arguments": arguments}


HARNESSES = (
    Harness(
        "OpenCode",
        {
            **{f"swebench_{name}": f"benchmarks/swebench/{name}/opencode.yaml" for name in ("verified", "multilingual", "pro")},
            **{name: f"resources_servers/{name}/configs/{name}_opencode.yaml" for name in ("swe_gym", "r2e_gym", "scale_swe")},
        },
        "swe_gym",
        read=lambda file: _call("read", filePath=file),
        edit=lambda file, old, new: _call("edit", filePath=file, oldString=old, newString=new),
        write=lambda file, text: _call("write", filePath=file, content=text),
        shell=lambda command: _call("bash", command=command, description="work", timeout=600_000),
    ),
    Harness(
        "Hermes",
        {f"swebench_{name}": f"benchmarks/swebench/{name}/hermes.yaml" for name in ("verified", "pro")},
        "swebench_verified",
        read=lambda file: _call("read_file", path=file),
        edit=lambda file, old, new: _call("patch", path=file, old_string=old, new_string=new),
        write=lambda file, text: _call("write_file", path=file, content=text),
        shell=lambda command: _call("terminal", command=command, timeout=600),
    ),
)
