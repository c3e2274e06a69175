"""Every page of the repository: its links lead somewhere, and its `gym` commands are commands."""

import itertools
import re
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import typer.main
import yaml

from gym.cli.main import app
from gym.config.roots import INSTALL_ROOT
from gym.config.schema import KINDS

if TYPE_CHECKING:
    from conftest import Reader

REPOSITORY = Path(__file__).resolve().parents[2]
_LINK = re.compile(r"(?<!!)\[[^\]]*\]\((?P<target>[^)\s]+)\)")
_FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_INLINE = re.compile(r"`(gym (?:env|eval|dataset) [^`]+)`")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


def _pages() -> list[Path]:
    """Every page that is, or may be, under version control; without git, those in the usual places."""
    asked = ["git", "ls-files", "-co", "--exclude-standard", "*.md"]
    listed = subprocess.run(asked, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    places = [
        *REPOSITORY.glob("*.md"),
        *REPOSITORY.glob("docs/*.md"),
        *(page for kind in KINDS for page in REPOSITORY.glob(f"{kind}/*/*.md")),
    ]
    pages = [REPOSITORY / name for name in listed.stdout.split()] if listed.returncode == 0 else places
    return sorted(page for page in pages if "task_images" not in page.parts and page.is_file())


PAGES = _pages()
NAMES = [str(page.relative_to(REPOSITORY)) for page in PAGES]


def _anchors(page: Path) -> set[str]:
    """The anchors that headings get where the repository is shown."""
    text = _FENCE.sub("", page.read_text())
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in _HEADING.findall(text)}


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_links_lead_somewhere(page: Path) -> None:
    for link in _LINK.finditer(_FENCE.sub("", page.read_text())):
        target, _, anchor = link["target"].partition("#")
        if "://" in target or target.startswith("mailto:"):
            continue
        there = (page.parent / target).resolve() if target else page
        assert there.exists(), f"{page.name} links to {target}, which does not exist"
        assert there.is_relative_to(REPOSITORY)
        if anchor:
            assert anchor in _anchors(there), f"{page.name} links to {link['target']}, which has no such heading"


def _commands(page: Path) -> list[list[str]]:
    text = page.read_text()
    blocks = [body for language, body in _FENCE.findall(text) if language in ("bash", "sh", "console")]
    lines = [line for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    written = [shlex.split(line, comments=True) for line in lines]
    return [words[words.index("gym") :] for words in written if "gym" in words]


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_commands_parse(page: Path) -> None:
    for words in _commands(page):
        _parse(words[1:])
        configs = [value for option, value in itertools.pairwise(words) if option in ("--config", "-c")]
        for config in configs:
            if config.startswith((*KINDS, "benchmarks/")) and f'title="{config}"' not in page.read_text():
                assert (INSTALL_ROOT / config).is_file(), f"{page.name} names the config {config}, which does not exist"


FOLLOWED = [
    f"resources_servers/{name}/README.md" for name in ("example_single_tool_call", "example_session_state_mgmt", "example_mcp_weather")
]
"""READMEs of implementations; those of docs/ are in test_commands.py."""


@pytest.mark.parametrize("page", FOLLOWED)
def test_commands_of_a_page_work(page: str, reader: "Callable[[str], Reader]") -> None:
    follower = reader(page)
    assert follower.commands
    follower.follow()


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_options_that_are_named_exist(page: Path) -> None:
    """`gym env logs NAME -f` in a sentence: the command and its options exist."""
    for text in _INLINE.findall(_FENCE.sub("", page.read_text())):
        words = [word for word in text.split() if "…" not in word]
        command: Any = typer.main.get_command(app)
        position = 1
        while position < len(words) and hasattr(command, "commands"):
            names = words[position].rstrip(",").split("|")
            assert names[0] in command.commands, f"{page.name}: there is no command {text!r}"
            command = command.commands[names[0]]
            position += 1
        known = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)} | {"--help"}
        for word in words[position:]:
            if word.startswith("-"):
                assert word.split("=")[0] in known, f"{page.name}: {text!r} has no option {word}"


def _parse(words: list[str]) -> None:
    """Parse a command line without running it."""
    command: Any = typer.main.get_command(app)
    arguments = list(words)
    name = "gym"
    while hasattr(command, "commands"):
        if arguments and arguments[0] in ("--version", "--help"):
            return
        assert arguments, f"{name} needs a command"
        name = arguments.pop(0)
        assert name in command.commands, f"there is no command {name!r} in {' '.join(words)!r}"
        command = command.commands[name]
    command.make_context(name, arguments, resilient_parsing=False)


def test_the_pages_that_must_be_there_are() -> None:
    assert {"README.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs/architecture.md", "docs/write-an-environment.md"} <= set(NAMES)


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_yaml_blocks_are_yaml(page: Path) -> None:
    for language, body in _FENCE.findall(page.read_text()):
        if language == "yaml":
            assert yaml.safe_load(body) is not None


def test_the_sandbox_block_is_one() -> None:
    """The blocks on the page are what the providers take."""
    from gym.sandbox.registry import read_block

    blocks = [yaml.safe_load(body) for language, body in _FENCE.findall((REPOSITORY / "docs/sandbox.md").read_text()) if language == "yaml"]
    assert {read_block(name, value).provider for block in blocks for name, value in block.items()} == {"docker", "local"}
