#!/usr/bin/env python3
"""Writes docs/reference/ from the code: every command with its options, and every configuration key; and the schema of manifests.

scripts/update_reference.py [--check]     --check writes nothing, and fails if a page is not what the code says
"""

import ast
import inspect
import itertools
import json
import sys
import textwrap
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

import typer.main
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from gym.cli.main import app
from gym.config.implementations import find, open_model
from gym.config.plan import Origin
from gym.config.roots import INSTALL_ROOT, implementation_names
from gym.config.schema import BASE_CONFIGS, KINDS, Dataset, ServerRef
from gym.manifests.schema import SCHEMA_ID, json_schema
from gym.sandbox.spec import SandboxSpec

REPOSITORY = Path(__file__).resolve().parents[1]
NOTE = "<!-- Written by scripts/update_reference.py: change the code, then run it. -->"
TITLES = {
    "resources_servers": "Resources servers",
    "responses_api_agents": "Agents",
    "responses_api_models": "Model servers",
    "environment_servers": "Environment servers",
}


def commands_page() -> str:
    """Every command, as `--help` has it."""
    intro = "Every command with its arguments and options, as `--help` prints them. Exit codes stand with each command."
    return "\n".join(["# Commands", "", NOTE, "", intro, *_command("gym", typer.main.get_command(app))]) + "\n"


def _command(name: str, command: Any) -> Iterator[str]:
    if hasattr(command, "commands"):
        for word, below in command.commands.items():
            yield from _command(f"{name} {word}", below)
        return
    context = command.make_context(name, [], resilient_parsing=True)
    yield from ("", f"## {name}", "", *_paragraphs(command.help or ""), "")
    yield from ("```text", " ".join([name, *command.collect_usage_pieces(context)]), "```", "")
    told = [record for parameter in command.params if (record := parameter.get_help_record(context)) is not None]
    yield from _table(("argument or option", "meaning"), [(f"`{names}`", meaning) for names, meaning in told])


def _paragraphs(text: str) -> list[str]:
    return textwrap.dedent(inspect.cleandoc(text)).replace("\b", "").splitlines()


def keys_page() -> str:
    """Every key of every kind of instance and of every implementation."""
    lines = ["# Configuration keys", "", NOTE, ""]
    lines += [
        "What an instance may set, by kind and implementation. Top-level settings are in [configuration.md](../configuration.md#settings);"
    ]
    lines += ["times are in seconds unless a name says otherwise. A key of a nested block is written with a dot.", "", "## Data sets", ""]
    lines += ["An entry of `datasets`.", "", *_keys_of(Dataset, frozenset())]
    lines += ["", "## Sandboxes", "", "What a `sandbox_config` holds.", "", *_keys_of(SandboxSpec, frozenset())]
    for kind in KINDS:
        base = BASE_CONFIGS[kind]
        lines += ["", f"## {TITLES[kind]}", "", f"Every one of `{kind}` takes:", "", *_keys_of(base, frozenset())]
        for name in implementation_names(kind, [INSTALL_ROOT]):
            model = find(kind, name, [INSTALL_ROOT], key_path=name, origin=Origin("", 1, 1), remote=False).model
            own = [] if model is open_model(kind) else _keys_of(model, frozenset(base.model_fields))
            lines += ["", f"### {name}", "", *(own or ["No keys of its own."])]
    return "\n".join(lines) + "\n"


def _keys_of(model: type[BaseModel], without: frozenset[str]) -> list[str]:
    rows = [(f"`{name}`", f"`{kind}`", default, meaning) for name, kind, default, meaning in _fields(model) if name not in without]
    return list(_table(("key", "type", "default", "meaning"), rows)) if rows else []


def _fields(model: type[BaseModel], above: str = "") -> Iterator[tuple[str, str, str, str]]:
    docs = _docstrings(model)
    for name, field in model.model_fields.items():
        section = _section(field.annotation)
        meaning = docs.get(name, field.description or "")
        if section is SandboxSpec:
            section, meaning = None, f"{meaning} Its keys: [Sandboxes](#sandboxes).".strip()
        yield above + name, _type(field.annotation), "" if section else _default(field), meaning
        if section:
            yield from _fields(section, f"{above}{name}.")


def _section(annotation: Any) -> type[BaseModel] | None:
    """The block that a key holds, where it is one of ours and not a reference or a list."""
    found = [part for part in _parts(annotation) if inspect.isclass(part) and issubclass(part, BaseModel)]
    return found[0] if len(found) == 1 and not issubclass(found[0], ServerRef) else None


def _parts(annotation: Any) -> tuple[Any, ...]:
    return get_args(annotation) if get_origin(annotation) in (Union, types.UnionType) else (annotation,)


def _type(annotation: Any) -> str:
    words: list[str] = []
    for part in _parts(annotation):
        origin, arguments = get_origin(part), get_args(part)
        if part is type(None):
            words.append("null")
        elif origin is Literal:
            words += [str(argument) for argument in arguments]
        elif hasattr(part, "__metadata__"):
            words.append(_type(arguments[0]))
        elif origin in (list, tuple, frozenset, set):
            words.append(f"list of {_type(arguments[0])}" if arguments else "list")
        elif inspect.isclass(part) and issubclass(part, ServerRef):
            words.append("reference")
        elif origin is dict or part is dict:
            words.append("mapping")
        else:
            words.append(_NAMES.get(part) or ("mapping" if _section(part) else getattr(part, "__name__", str(part))))
    return " or ".join(dict.fromkeys(words))


_NAMES: dict[Any, str] = {str: "text", int: "whole number", float: "number", bool: "true or false", Path: "path", Any: "anything"}


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True)
    if value is None or value is PydanticUndefined:
        return "null"
    if isinstance(value, BaseModel):
        return ""
    text = f"{value:g}" if isinstance(value, float) else str(value).lower() if isinstance(value, bool) else str(value)
    return f"`{text}`" if text and len(text) <= 60 else ('`""`' if not text else "long")


def _docstrings(model: type[BaseModel]) -> dict[str, str]:
    """The text under each field, from the source; that of a subclass counts."""
    found: dict[str, str] = {}
    for owner in reversed(model.__mro__):
        if not issubclass(owner, BaseModel) or owner is BaseModel:
            continue
        (definition,) = ast.parse(textwrap.dedent(inspect.getsource(owner))).body
        body = definition.body if isinstance(definition, ast.ClassDef) else []
        for field, text in itertools.pairwise(body):
            documented = isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant) and isinstance(text.value.value, str)
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and documented:
                found[field.target.id] = " ".join(inspect.cleandoc(text.value.value).split())
    return found


def _table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> Iterator[str]:
    if rows:
        yield "| " + " | ".join(head) + " |"
        yield "|" + "---|" * len(head)
        yield from ("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows)


def schema_page() -> str:
    """The JSON Schema of manifests, as `gym env schema manifest` prints it."""
    return json.dumps(json_schema(), indent=2, ensure_ascii=False) + "\n"


PAGES = {"reference/commands.md": commands_page, "reference/configuration-keys.md": keys_page, SCHEMA_ID: schema_page}


def main() -> int:
    """Write the pages, or say which differ."""
    wrong = 0
    for name, page in PAGES.items():
        path, text = REPOSITORY / "docs" / name, page()
        if path.is_file() and path.read_text() == text:
            continue
        if "--check" in sys.argv[1:]:
            print(f"{path.relative_to(REPOSITORY)} is not what the code says: run scripts/update_reference.py", file=sys.stderr)
            wrong = 1
        else:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
    return wrong


if __name__ == "__main__":
    sys.exit(main())
