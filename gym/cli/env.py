"""`gym env`: what concerns configurations and the servers that they describe.

Thin: each command reads its arguments, calls one function of the package, and prints. Data goes to
stdout, problems go to stderr.
"""

from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gym.cli import manifests

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gym.config import Examined, Problem

app = typer.Typer(help="Check configurations, and start the servers that they describe.", no_args_is_help=True, rich_markup_mode=None)

Config = Annotated[
    list[str] | None,
    typer.Option("--config", "-c", metavar="FILE", help="A config file; may be given several times, later files override earlier ones."),
]
ModelType = Annotated[
    str | None,
    typer.Option("--model-type", metavar="NAME", help="Add the config of this model server, as the instance policy_model."),
]
AgentType = Annotated[
    str | None,
    typer.Option("--agent-type", metavar="NAME", help="Put this harness in the place of every environment's agent, where it is allowed."),
]
Overrides = Annotated[
    list[str] | None,
    typer.Argument(metavar="OVERRIDE", help="key=value, +new=value, ++any=value or ~key; laid over the files.", show_default=False),
]


class Format(StrEnum):
    """How problems are printed."""

    TEXT = "text"
    JSON = "json"
    SARIF = "sarif"
    GITHUB = "github"


@app.command()
def validate(
    overrides: Overrides = None,
    config: Config = None,
    model_type: ModelType = None,
    agent_type: AgentType = None,
    output: Annotated[Format, typer.Option("--format", help="How to print the result.")] = Format.TEXT,
    strict: Annotated[bool, typer.Option("--strict", help="Fail on warnings too.")] = False,
    manifest: Annotated[
        list[Path] | None,
        typer.Option("--manifest", metavar="FILE", help="Check this manifest against its config instead; may be given several times."),
    ] = None,
    all: Annotated[bool, typer.Option("--all", help="Check every config and manifest that is found, instead.")] = False,
    each: Annotated[
        bool, typer.Option("--each", help="Check each config and manifest among the arguments by itself, instead: they are files then.")
    ] = False,
    sync: Annotated[bool, typer.Option("--sync", help="Write what the configs say into manifests that hold otherwise.")] = False,
) -> None:
    """Check a configuration, or manifests, and start nothing.

    Prints 'Config is valid', or everything that is wrong with it, one problem a line. Exit codes:
    0 valid; 1 problems; 2 wrong usage.
    """
    from gym.config.checks import check_not_empty

    if manifest or all or each:
        if config or model_type or agent_type or (overrides and not each) or (bool(manifest) + all + each) > 1:
            raise typer.BadParameter("give a configuration, --manifest, --all or --each, and one of them only")
        problems, said = manifests.check(manifest or [], sync, _files(overrides) if each else [])
        failed = any(problem.severity == "error" for problem in problems)
    else:
        if sync:
            raise typer.BadParameter("--sync goes with --manifest FILE, --all or --each")
        examined = examine(config, model_type, overrides, agent_type)
        problems, said = [*examined.problems, *check_not_empty(examined.plan)], "Config is valid"
        failed = examined.plan is None or not examined.plan.instances
    failed = failed or (strict and bool(problems))
    if output is Format.TEXT:
        report(problems)
        typer.echo(_tally(problems) if failed else said, err=failed)
    else:
        subject = next((str(path) for path in [*(config or []), *(manifest or [])]), None)
        typer.echo(_formatted(problems, output, subject, valid=not failed))
    if failed:
        raise typer.Exit(1)


@app.command()
def resolve(overrides: Overrides = None, config: Config = None, model_type: ModelType = None, agent_type: AgentType = None) -> None:
    """Print what a configuration comes to.

    As YAML, with everything inherited and filled in, and with secrets masked.
    """
    from gym.config import masked
    from gym.config.yamlfile import to_yaml

    examined = examine(config, model_type, overrides, agent_type)
    report(examined.problems)
    if examined.resolved or examined.plan is not None:
        typer.echo(to_yaml(masked(examined.resolved)), nl=False)
    if examined.plan is None:
        raise typer.Exit(1)


@app.command()
def explain(
    key: Annotated[str, typer.Argument(metavar="KEY", help="A dotted key, e.g. policy_model.responses_api_models.vllm_model.port.")],
    overrides: Overrides = None,
    config: Config = None,
    model_type: ModelType = None,
    agent_type: AgentType = None,
) -> None:
    """Say where a value was set, and what it overrode."""
    if not key.strip("."):
        raise typer.BadParameter("KEY is empty: name a dotted key, such as default_host")
    from gym.config.explain import explain as explained

    for line in explained(examine(config, model_type, overrides, agent_type), key):
        typer.echo(line)


def examine(config: list[str] | None, model_type: str | None, overrides: list[str] | None, agent_type: str | None = None) -> "Examined":
    """Composes what the options of a command name. Wrong usage if they name nothing."""
    from gym.config import examine as examined
    from gym.config.errors import in_order
    from gym.manifests.lifecycle import check_lifecycle

    check_usage(config, model_type, overrides, agent_type)
    found = examined([Path(path) for path in config or []], overrides or [], model_type=model_type, agent_type=agent_type)
    doubts, wrong = check_lifecycle(found, Path.cwd()), []
    if found.sandbox_providers:
        from gym.sandbox.lint import check_sandboxes

        wrong = check_sandboxes(found)
    return replace(found, problems=in_order([*found.problems, *doubts, *wrong]), plan=None if wrong else found.plan)


def _files(arguments: list[str] | None) -> list[Path]:
    """The arguments as files. Wrong usage if there are none, or one is no file."""
    for argument in arguments or []:
        if not Path(argument).is_file():
            raise typer.BadParameter(f"there is no file {argument!r}: with --each the arguments are files")
    if not arguments:
        raise typer.BadParameter("--each needs files: name at least one")
    return [Path(argument) for argument in arguments]


def check_usage(config: list[str] | None, model_type: str | None, overrides: list[str] | None, agent_type: str | None = None) -> None:
    """Raises a usage error (exit 2) if there is no config to work on, or an argument is no override."""
    if "" in (config or []):
        raise typer.BadParameter("--config is empty: name a file")
    for option, value, what in (
        ("--model-type", model_type, "a model server, such as openai_model"),
        ("--agent-type", agent_type, "an agent, such as opencode_agent"),
    ):
        if value is not None and not all(part and part.strip(".") for part in value.split("/")):
            raise typer.BadParameter(f"{option} '{value}' is not the name of {what}")
    check_overrides(overrides)
    if not config and not model_type and not any("config_paths=" in text for text in overrides or []) and not Path("env.yaml").is_file():
        raise typer.BadParameter("name at least one config file: --config FILE")


def check_overrides(overrides: list[str] | None) -> None:
    """Raises a usage error (exit 2) if an argument is no override."""
    for text in overrides or []:
        if "=" not in text and not text.startswith("~"):
            hint = f"; to name a config file write --config {text}" if text.endswith((".yaml", ".yml")) else ""
            raise typer.BadParameter(f"'{text}' is not an override (key=value, +key=value, ++key=value or ~key){hint}")


def before_a_run(problems: "Iterable[Problem]") -> "list[Problem]":
    """Without data sets that are not there: a command that reads one says so itself, and the others are none of its concern."""
    return [problem for problem in problems if problem.rule != "data-not-prepared"]


def report(problems: "list[Problem]") -> None:
    """Prints problems on stderr, one a line."""
    for problem in problems:
        typer.echo(str(problem), err=True)


def _tally(problems: "list[Problem]") -> str:
    errors = sum(problem.severity == "error" for problem in problems)
    warnings = len(problems) - errors
    return f"{errors} error{'s' * (errors != 1)}, {warnings} warning{'s' * (warnings != 1)}"


def _formatted(problems: "list[Problem]", output: Format, subject: str | None, *, valid: bool) -> str:
    from gym import __version__
    from gym.config import formats

    if output is Format.SARIF:
        return formats.to_sarif(problems, __version__, subject)
    return formats.to_github(problems) if output is Format.GITHUB else formats.to_json(problems, valid=valid)
