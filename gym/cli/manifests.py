"""`gym env` on environments as a whole: their manifests, lists, beginning one and testing it. Thin: each calls `gym.manifests`."""

import json
import shutil
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gym.cli.tables import print_table

if TYPE_CHECKING:
    from gym.config.errors import Problem


class Kind(StrEnum):
    """What there is to choose from."""

    ENVIRONMENT = "environment"
    BENCHMARK = "benchmark"


def check(paths: list[Path], sync: bool, each: list[Path]) -> "tuple[list[Problem], str]":
    """The problems of these manifests, or of `each` of these files, or else of all that is found; and what to say if there is no error."""
    from gym.config.roots import find_file, search_roots
    from gym.manifests.check import check_all, check_each, check_manifest
    from gym.manifests.sync import sync as synchronise

    cwd, roots = Path.cwd(), search_roots()
    if paths:
        found = dict.fromkeys(find_file(path, roots) or path for path in paths)
        checked, problems, bare = [check_manifest(path, cwd) for path in found], [], 0
    else:
        checked, problems, bare = check_each(each, cwd) if each else check_all(roots, cwd)
    for one in checked:
        if sync and synchronise(one):
            typer.echo(f"updated {one.path}", err=True)
        problems += [*one.problems, *one.stale]
    if not paths:
        return list(dict.fromkeys(problems)), f"{len(checked)} manifests and {bare} configs without one are valid"
    return list(dict.fromkeys(problems)), "Manifest is valid" if len(checked) == 1 else f"{len(checked)} manifests are valid"


def list_environments(
    kind: Annotated[Kind | None, typer.Option("--kind", help="Only these.")] = None,
    domain: Annotated[str | None, typer.Option("--domain", metavar="NAME", help="Only those of this domain, e.g. coding.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything that is known of each, as JSON.")] = False,
) -> None:
    """List the environments and benchmarks that there are.

    Those of the working directory, of $GYM_EXTRA_ROOTS and of the installation, as their manifests describe
    them; those without one as their configs do.
    """
    from gym.config.errors import printable
    from gym.config.roots import search_roots
    from gym.manifests.catalog import INVALID, catalog

    entries = [entry for entry in catalog(search_roots()) if kind is None or entry.fields.get("kind") == kind]
    entries = [entry for entry in entries if domain is None or entry.fields.get("domain") == domain]
    if as_json:
        typer.echo(json.dumps([entry.as_dict() for entry in entries], indent=2, ensure_ascii=False))
    elif entries:
        rows = [["NAME", "KIND", "STATUS", "AGENT", "DATA SETS", "DESCRIPTION"]]
        for entry in entries:
            told = [entry.name, entry.fields.get("kind"), entry.state, entry.agents, entry.datasets, entry.fields.get("description")]
            rows.append([printable(text or "-") for text in told])
        print_table(rows, shutil.get_terminal_size().columns if sys.stdout.isatty() else None)
    broken = sum(entry.status == INVALID for entry in entries)
    if broken:
        typer.echo(f"manifests that cannot be read: {broken}; gym env validate --all says why", err=True)
    typer.echo(f"{len(entries)} environment{'s' * (len(entries) != 1)}", err=True)


def show(
    name: Annotated[str, typer.Argument(metavar="NAME", help="As 'gym env list' has it, or the path of a config.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print it as JSON.")] = False,
) -> None:
    """Say everything that is known of one environment, and how to run it."""
    from gym.config.roots import search_roots
    from gym.config.yamlfile import to_yaml
    from gym.manifests.catalog import find_entry

    entry = find_entry(name, search_roots())
    told = {**entry.as_dict(), "commands": entry.commands}
    if as_json:
        typer.echo(json.dumps(told, indent=2, ensure_ascii=False))
        return
    typer.echo(to_yaml({key: value for key, value in told.items() if value not in (None, [])}), nl=False)


class Scaffold(StrEnum):
    """What can be begun."""

    ENVIRONMENT = "environment"
    BENCHMARK = "benchmark"
    AGENT = "agent"


def init(
    name: Annotated[str, typer.Argument(metavar="NAME", help="What it is to be called: small letters, digits, underscores.")],
    kind: Annotated[Scaffold, typer.Option("--kind", help="What to begin.")] = Scaffold.ENVIRONMENT,
    into: Annotated[
        Path, typer.Option("--into", metavar="DIR", help="The folder that holds, or is to hold, resources_servers/ and others.")
    ] = Path(),
    author: Annotated[
        str | None, typer.Option("--author", metavar="TEXT", help="Who stands in the manifest; else your login name.")
    ] = None,
) -> None:
    """Begin an environment, a benchmark or an agent: a small whole one, with config, manifest, page and tests that pass.

    Prints the files that were made. Nothing that exists is changed.
    """
    from gym.manifests.scaffold import scaffold

    for path in scaffold(name, kind.value, into.absolute(), author or _login_name()):
        typer.echo(path.relative_to(into.absolute()))
    typer.echo(f"next: gym env test {name}", err=True)


def _login_name() -> str:
    import getpass

    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a user that the system has no name for
        return "unknown"


def run_tests(
    name: Annotated[str, typer.Argument(metavar="NAME", help="An implementation, a benchmark, or a name of 'gym env list'.")],
    arguments: Annotated[list[str] | None, typer.Option("--pytest", metavar="ARG", help="Pass this on to pytest; may be repeated.")] = None,
    no_tests: Annotated[bool, typer.Option("--no-tests", help="Only check; run no tests.")] = False,
) -> None:
    """Check the configs, manifests and rows of one environment, benchmark or agent, and run its own tests.

    Exit codes: 0 all holds; 1 something does not; 2 wrong usage.
    """
    from gym.config.roots import search_roots
    from gym.manifests.trial import find_trial

    trial = find_trial(name, search_roots())
    problems, rows = trial.check(Path.cwd())
    for problem in problems:
        typer.echo(str(problem), err=True)
    wrong = sum(problem.severity == "error" for problem in problems)
    typer.echo(f"{', '.join(map(str, trial.folders))}: {rows} row{'s' * (rows != 1)} checked, {wrong} error{'s' * (wrong != 1)}", err=True)
    if wrong or (not no_tests and trial.run_tests(arguments or []) != 0):
        raise typer.Exit(1)


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
    app.command("list")(list_environments)
    for command in (show, init, schema):
        app.command()(command)
    app.command("test")(run_tests)
