"""The Python of an implementation's own environment."""

import sys
from pathlib import Path

import pytest

from gym.config.errors import UserError
from gym.config.plan import Instance
from gym.config.schema import ServerConfig, Settings
from gym.runtime.environments import environment_python


def instance(folder: Path, python: str | None, requirements: str | None) -> Instance:
    for name, text in (("python.txt", python), ("requirements.txt", requirements)):
        if text is not None:
            (folder / name).write_text(text)
    return Instance("mine", "resources_servers", "box", folder, ServerConfig(), {})


def test_without_requirements_it_is_ours(tmp_path: Path) -> None:
    made = instance(tmp_path, None, None)
    assert (made.python, environment_python(made, Settings(), print)) == (None, sys.executable)


def test_one_that_is_not_there_is_said_with_who_needs_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UV_PYTHON_DOWNLOADS", "never")
    made = instance(tmp_path, "3.99\n", "six\n")
    assert made.python == "3.99"
    with pytest.raises(UserError, match=r"^mine \(box\): a Python 3\.99 is needed, and there is none on this machine"):
        environment_python(made, Settings(cache_dir=tmp_path / "cache"), print)
