"""`gym env` on manifests: checking them, and what is listed from them. Thin: each calls one function of `gym.manifests`."""

import json
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from gym.config.errors import Problem


def check(paths: list[Path], sync: bool, each: list[Path]) -> "tuple[list[Problem], str]":
    """The problems of these manifests, or of `each` of these files, or else of all that is found; and what to say if there is no error."""
    from gym.config.roots import search_roots
    from gym.manifests.check import check_all, check_each, check_manifest
    from gym.manifests.sync import sync as synchronise

    cwd = Path.cwd()
    if paths:
        checked, problems, bare = [check_manifest(path, cwd) for path in dict.fromkeys(paths)], [], 0
    else:
        checked, problems, bare = check_each(each, cwd) if each else check_all(search_roots(), cwd)
    for one in checked:
        if sync and synchronise(one):
            typer.echo(f"updated {one.path}", err=True)
        problems += [*one.problems, *one.stale]
    if not paths:
        return list(dict.fromkeys(problems)), f"{len(checked)} manifests and {bare} configs without one are valid"
    return list(dict.fromkeys(problems)), "Manifest is valid" if len(checked) == 1 else f"{len(checked)} manifests are valid"


class Schema(StrEnum):
    """What there is a JSON Schema of."""

    MANIFEST = "manifest"


def schema(name: Annotated[Schema, typer.Argument(metavar="manifest", help="Of what: only manifests have one so far.")]) -> None:
    """Print the JSON Schema of a kind of file, for editors and other programs."""
    from gym.manifests.schema import json_schema

    schemas = {Schema.MANIFEST: json_schema}
    typer.echo(json.dumps(schemas[name](), indent=2, ensure_ascii=False))


def add_to(app: typer.Typer) -> None:
    """Add these commands to the group `gym env`."""
    for command in (schema,):
        app.command()(command)
