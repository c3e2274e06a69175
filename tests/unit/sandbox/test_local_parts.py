"""The local provider's parts that need no sandbox: options, control groups, folders."""

import os
from pathlib import Path

import pytest

from gym.sandbox.ownership import Ownership
from gym.sandbox.providers.local import cgroups, folders
from gym.sandbox.registry import ProviderBlockError, read_block
from gym.sandbox.spec import SandboxError, SandboxResources, SandboxSpecError, SandboxStatus

ID = "nemo-gym-0123456789abcdef"
LABELS = Ownership("run", "inst").labels(60, {})


@pytest.mark.parametrize(
    ("block", "key", "said"),
    [
        ({"local": {"create": {"netwrok": "none"}}}, "sandbox.local.create.netwrok", "did you mean 'network'"),
        ({"local": {"create": {"network": "bridge"}}}, "sandbox.local.create.network", "'none' or 'host'"),
        ({"local": {"create": {"visible": ["/"]}}}, "sandbox.local.create.visible[0]", "cannot be shown"),
        ({"locl": {}}, "sandbox.locl", "did you mean 'local'"),
    ],
)
def test_a_wrong_block_is_told(block: dict[str, object], key: str, said: str) -> None:
    with pytest.raises(ProviderBlockError, match=said) as wrong:
        read_block("sandbox", block)
    assert wrong.value.key == key


class TestControlGroups:
    @pytest.fixture(autouse=True)
    def _as_root(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(cgroups.os, "geteuid", lambda: 0)

    def test_version_1(self, tmp_path: Path) -> None:
        for controller in ("memory", "pids"):
            (tmp_path / controller).mkdir()
            (tmp_path / controller / "cgroup.procs").touch()
        groups = cgroups.Cgroups(tmp_path)
        assert groups.available() == {"memory_mib"}
        (made,) = groups.make(ID, SandboxResources(memory_mib=64))
        assert made == tmp_path / "memory" / "nemo-gym" / ID
        assert (made / "memory.limit_in_bytes").read_text() == str(64 * 1024 * 1024)

    def test_version_2(self, tmp_path: Path) -> None:
        (tmp_path / "nemo-gym").mkdir()
        (tmp_path / "cgroup.controllers").write_text("cpuset cpu io memory pids\n")
        for level in (tmp_path, tmp_path / "nemo-gym"):
            (level / "cgroup.subtree_control").write_text("")
        groups = cgroups.Cgroups(tmp_path)
        assert groups.available() == {"memory_mib", "cpu"}
        assert (tmp_path / "cgroup.subtree_control").read_text() == "+memory +cpu"
        (made,) = groups.make(ID, SandboxResources(memory_mib=64, cpu=1.5))
        assert made == tmp_path / "nemo-gym" / ID
        assert (made / "memory.max").read_text() == str(64 * 1024 * 1024)
        assert (made / "cpu.max").read_text() == "150000 100000"

    def test_without_any_there_are_no_limits(self, tmp_path: Path) -> None:
        assert cgroups.Cgroups(tmp_path).available() == frozenset()
        (tmp_path / "file").touch()
        with pytest.raises(SandboxError, match="could not be set"):
            cgroups.Cgroups(tmp_path / "file").make(ID, SandboxResources(memory_mib=64))


class TestFolders:
    def test_one_is_alive_while_its_lock_is_held(self, tmp_path: Path) -> None:
        root = tmp_path / "state" / "sandboxes"
        folder, lock = folders.make(root, ID, LABELS, ["work", "tmp"], 0)
        assert root.stat().st_mode & 0o777 == 0o700
        assert folders.status(folder) is SandboxStatus.STARTING
        (folder / "ready").touch()
        assert folders.status(folder) is SandboxStatus.RUNNING
        with pytest.raises(SandboxSpecError, match="already in use"):
            folders.make(root, ID, LABELS, ["work"], 0)
        assert [path.name for path in root.iterdir()] == [ID]
        os.close(lock)
        (record,) = folders.find(root, {"nemo-gym.run-id": "run"})
        assert (record.sandbox_id, record.status) == (ID, SandboxStatus.STOPPED)
        assert folders.find(root, {"nemo-gym.run-id": "other"}) == []
        folders.end(folder)
        folders.end(folder)
        assert list(root.iterdir()) == []

    def test_what_is_not_ours_is_not_found(self, tmp_path: Path) -> None:
        for name, text in (("nemo-gym-aaaaaaaa", "{}"), ("nemo-gym-bbbbbbbb", "[1]"), ("nemo-gym-cccccccc", "{"), ("other", "{}")):
            (tmp_path / name).mkdir()
            (tmp_path / name / "labels.json").write_text(text)
        assert folders.find(tmp_path, {}) == []

    def test_the_root_follows_the_state_folder(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setenv("GYM_STATE_DIR", str(tmp_path))
        assert folders.default_root() == tmp_path / "sandboxes"
        monkeypatch.delenv("GYM_STATE_DIR")
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
        assert folders.default_root() == tmp_path / "gym" / "sandboxes"
