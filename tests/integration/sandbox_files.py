"""What must hold of files in any sandbox, however its provider moves them."""

from pathlib import Path

import pytest

from gym.sandbox.handles import OwnedSandbox
from gym.sandbox.spec import SandboxFileError, SandboxSpecError

ALL_BYTES = bytes(range(256)) * 3000


async def check_bytes_survive(box: OwnedSandbox, tmp_path: Path) -> None:
    """Move every kind of file into `/work` of the box and out again, and everything that is none."""
    await box.upload("/work/new folder/it's.bin", ALL_BYTES, mode=0o755)
    assert await box.download("/work/new folder/it's.bin") == ALL_BYTES
    assert (await box.exec("stat -c %a /work/new*/*.bin")).stdout == "755\n"
    await box.upload("/work/empty", ALL_BYTES)
    await box.upload("/work/empty", b"")
    assert await box.download("/work/empty") == b""
    big = tmp_path / "big"
    big.write_bytes(ALL_BYTES * 4 + b"odd")
    await box.upload("/work/big", big)
    assert await box.download("/work/big") == big.read_bytes()
    await box.exec("ln -s /work/big /work/link; ln -s /nowhere /work/dangling; mkfifo /work/pipe")
    assert await box.download("/work/link") == big.read_bytes()
    with pytest.raises(SandboxFileError, match="there is no file '/work/missing'"):
        await box.download("/work/missing")
    await box.upload("/dev/shm/shared", b"memory")
    assert (await box.exec("cat /dev/shm/shared")).stdout == "memory"
    assert await box.download("/dev/shm/shared") == b"memory"
    for odd in ("/work/dangling", "/work/pipe", "/work", "/dev/zero"):
        with pytest.raises(SandboxFileError):
            await box.download(odd)
    with pytest.raises(SandboxFileError, match="longer than the 1000 bytes"):
        await box.download("/work/big", max_bytes=1000)
    with pytest.raises(SandboxFileError, match="not a file here"):
        await box.upload("/work/x", tmp_path / "missing")
    for bad in ("relative", "/folder/"):
        with pytest.raises(SandboxSpecError, match="absolute path"):
            await box.upload(bad, b"")
