"""What has to be different in the package's scripts for some repositories of SWE-bench Multilingual to be testable.

Each change is a fact about one repository, made without a network and without a change to what is tested. Left out is
what would need one: mirrors of Maven and Gradle packages, pins of crates, and settings inside a repository's own files.
"""

import re
from collections.abc import Callable

_STDERR = "/tmp/gym-stderr"


def _maven(command: str) -> str:
    """Maven itself in place of its daemon, which does not start in every sandbox and prints the same."""
    return re.sub(r"\bmvnd\b", "mvn", command)


def _druid(command: str) -> str:
    """Without the plugin that describes the commit, which fails in a history that was scrubbed."""
    return re.sub(r"^mvn test\b", "mvn test -Dmaven.gitcommitid.skip=true -Dgit.commit.id.skip=true", _maven(command))


def _axios(command: str) -> str:
    """Ten seconds are too few where several sandboxes share a machine."""
    return re.sub(r"^timeout 10s\b", "timeout 120s", command)


def _rubocop(command: str) -> str:
    """What goes to stderr is printed afterwards: it would stand in the midst of the lines that are parsed."""
    return f"{command} 2>{_STDERR}; cat {_STDERR}" if command.startswith("bundle exec rspec") else command


_FIXUPS: dict[str, Callable[[str], str]] = {
    "google/gson": _maven,
    "apache/druid": _druid,
    "axios/axios": _axios,
    "rubocop/rubocop": _rubocop,
}


def fixed(repo: str, commands: list[str]) -> list[str]:
    """The commands of a script, with what the repository needs."""
    fixup = _FIXUPS.get(repo)
    return commands if fixup is None else [fixup(command) for command in commands]
