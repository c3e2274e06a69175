"""Makes the folders of a new environment, benchmark or agent from templates: whole ones, that run and whose tests pass.

Invariant: nothing that exists is changed, and a folder is there as a whole or not at all. The
templates are files beside this module; `NAME` in their paths and `@name@`, `@Name@` and `@author@`
in their text are filled in. `TESTS` stands for tests, of which the package holds none of its own.
"""

import json
import os
import re
import shutil
from pathlib import Path
from typing import Literal, get_args

from gym.config.errors import UserError, shown
from gym.config.roots import search_roots

Scaffold = Literal["environment", "benchmark", "agent"]
SCAFFOLDS: tuple[Scaffold, ...] = get_args(Scaffold)
_TEMPLATES = Path(__file__).with_name("templates")
_SUFFIX = ".template"
_NAME = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")


def scaffold(name: str, kind: Scaffold, root: Path, author: str) -> list[Path]:
    """Write the files of `name` below `root`; returns them, sorted. Raises UserError or OSError."""
    if not _NAME.fullmatch(name):
        raise UserError(f"{shown(name)} cannot be the name of a folder of servers: write small letters, digits and single underscores")
    templates = _TEMPLATES / kind
    texts = {_path(str(path.relative_to(templates)), name): path for path in templates.rglob(f"*{_SUFFIX}")}
    folders = sorted({Path(*Path(path).parts[:2]) for path in texts})
    for folder in folders:
        for place in (root, *search_roots()):
            if (place / folder).exists():
                raise UserError(f"{place / folder} exists: choose another name")
    made: list[Path] = []
    unfinished = f".{name}.{os.getpid()}.new"
    try:
        for path, template in texts.items():
            target = root.joinpath(*_in_folder(Path(path), unfinished))
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(_filled(template.read_text(encoding="utf-8"), name, author), encoding="utf-8")
        for folder in folders:
            (root / folder.parent / unfinished).rename(root / folder)
            made.append(root / folder)
    except BaseException:
        for folder in (*made, *(root / folder.parent / unfinished for folder in folders)):
            shutil.rmtree(folder, ignore_errors=True)
        raise
    return sorted(root / path for path in texts)


def _path(template: str, name: str) -> str:
    return template.replace("TESTS", "tests").replace("NAME", name).removesuffix(_SUFFIX)


def _filled(text: str, name: str, author: str) -> str:
    camel = "".join(part.capitalize() for part in name.split("_"))
    return text.replace("@name@", name).replace("@Name@", camel).replace("@author@", json.dumps(author, ensure_ascii=False))


def _in_folder(path: Path, name: str) -> tuple[str, ...]:
    kind, _, *rest = path.parts
    return (kind, name, *rest)
