"""Which interpreter was found for a version of Python, remembered beside the environments that are made of it.

Looking for one runs other programs; a start with everything warm runs none. What is remembered holds as long as that file is as it was.
"""

import contextlib
import json
from collections.abc import Callable
from pathlib import Path

from gym.harness.interpreter import find_interpreter


def known_python(version: str, root: Path, say: Callable[[str], None]) -> tuple[Path, str]:
    """The interpreter for `version` (e.g. `3.12`) and what it says that it is (e.g. `3.12.1`). Raises UserError."""
    note = root / f"python-{version}.json"
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        said = json.loads(note.read_text())
        if said["file"] == _signature(Path(said["binary"])):
            return Path(said["binary"]), said["version"]
    found = find_interpreter(version, say, to_copy=False)
    with contextlib.suppress(OSError):  # then it is looked for again
        root.mkdir(parents=True, exist_ok=True)
        fresh = note.with_suffix(".part")
        fresh.write_text(json.dumps({"binary": str(found.binary), "version": found.version, "file": _signature(found.binary)}))
        fresh.replace(note)
    return found.binary, found.version


def _signature(binary: Path) -> list[int]:
    stat = binary.stat()
    return [stat.st_size, stat.st_mtime_ns, stat.st_ino]
