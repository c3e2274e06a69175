"""What a file move says when its command goes wrong. The command is a fake: a box in which none can be started is not made at will."""

from typing import Any, cast

import pytest

from gym.sandbox.output import BoundedOutput
from gym.sandbox.providers.docker.execution import Outcome
from gym.sandbox.providers.docker.files import Files
from gym.sandbox.providers.docker_options import DockerCopy
from gym.sandbox.spec import SandboxError, SandboxFileError


class FakeCommands:
    def __init__(self, code: int) -> None:
        self._code = code

    async def run(self, command: Any) -> Outcome:
        return Outcome(BoundedOutput(100), BoundedOutput(100), self._code)


@pytest.mark.parametrize(("code", "of_the_file"), [(1, True), (3, True), (4, True), (126, False), (137, False)])
async def test_only_a_command_that_ran_to_its_end_says_something_of_a_file(code: int, of_the_file: bool) -> None:
    files = Files(cast(Any, None), cast(Any, FakeCommands(code)), cast(Any, None), DockerCopy())
    with pytest.raises(SandboxError) as failed:
        await files.get("box", "/there", 100, by_command=True)
    assert isinstance(failed.value, SandboxFileError) == of_the_file
