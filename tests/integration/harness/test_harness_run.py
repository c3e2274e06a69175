"""The runner of harnesses in real containers, with shell scripts for harnesses: whatever they do, nothing of them is left."""

import asyncio
import subprocess
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from gym.harness.adapter import Launch
from gym.harness.bundle import Built, Bundle
from gym.harness.placing import COPIED, place
from gym.harness.run import HarnessRun
from gym.protocol.errors import ContractError
from gym.sandbox.handles import BorrowedSandbox, OwnedSandbox
from gym.sandbox.ownership import Ownership
from gym.sandbox.provider import Provider
from gym.sandbox.registry import provider_from_block
from gym.sandbox.spec import SandboxSpec

pytestmark = pytest.mark.docker

DETACHED = """
(setsid sleep 300 >/dev/null 2>&1 &)
(trap '' TERM INT HUP; nohup sh -c 'while :; do sleep 0.2; done' >/dev/null 2>&1 &)
(setsid sh -c 'for i in 1 2 3; do (setsid sleep 301 &) ; done; sleep 302' >/dev/null 2>&1 &)
"""


def script(text: str) -> Launch:
    return Launch(("sh", "-c", text), {}, "/opt/none")


class Boxes:
    """Sandboxes of one test, lent out."""

    def __init__(self, provider: Provider, run_id: str) -> None:
        self.provider, self.run_id = provider, run_id
        self.owned: list[OwnedSandbox] = []

    async def lend(self, **fields: object) -> BorrowedSandbox:
        spec = SandboxSpec.model_validate({"image": "gym-test/calc:latest", "ttl_s": 900, "workdir": "/testbed", **fields})
        self.owned.append(await OwnedSandbox.start(self.provider, spec, Ownership(self.run_id, "t")))
        return await BorrowedSandbox.connect(self.owned[-1].serialize("sandbox"), {"sandbox": self.provider})


@pytest.fixture
async def boxes(docker_run_id: str) -> AsyncIterator[Boxes]:
    provider = provider_from_block("sandbox", {"docker": {"create": {"network": "none", "pull": "never"}}})
    made = Boxes(provider, docker_run_id)
    yield made
    for box in made.owned:
        await box.stop()
    await provider.aclose()


@pytest.fixture
async def run(boxes: Boxes, tmp_path: Path) -> HarnessRun:
    made = HarnessRun("Script", await boxes.lend(), tmp_path, 1024 * 1024)
    await made.prepare("the prompt, with 'quotes' and $signs\n", 60)
    return made


async def processes(box: BorrowedSandbox) -> list[str]:
    """What runs in the sandbox but for its own."""
    done = await box.exec("for d in /proc/[0-9]*; do tr '\\0' ' ' < $d/cmdline; echo; done 2>/dev/null")
    return [line.strip() for line in done.stdout.splitlines() if "sleep 30" in line or "while :" in line]


async def has_printed(run: HarnessRun) -> None:
    """Wait until the harness has printed something."""
    async with asyncio.timeout(30):
        while not ((run.evidence / "stdout").exists() and (run.evidence / "stdout").read_text()):  # noqa: ASYNC110 - another process's doing
            await asyncio.sleep(0.05)


async def test_a_harness_runs_in_the_work_tree_with_its_prompt(run: HarnessRun) -> None:
    ending = await run.launch(script('pwd; cat; echo "$PATH" >&2; exit 3'), 'cd "$PWD"', 60)
    assert (run.evidence / "stdout").read_text() == "/testbed\nthe prompt, with 'quotes' and $signs\n"
    assert (ending.return_code, ending.stopped) == (3, None)
    assert ending.stderr.strip().endswith(":/opt/none")
    await run.end()
    await run.remove()
    assert not (await run.box.exec(f"ls {run.folder}")).ok
    assert (await run.box.exec("git status --porcelain --ignored")).stdout == (
        await run.box.exec("git stash list; echo '?? build-stamp.txt'")
    ).stdout


async def test_nothing_of_a_harness_is_left_however_it_detached_itself(run: HarnessRun) -> None:
    await run.box.exec("(setsid sleep 309 >/dev/null 2>&1 &)")  # somebody else's
    ending = await run.launch(script(DETACHED), "", 60)
    assert ending.return_code == 0
    assert len(await processes(run.box)) > 4
    await run.end()
    assert await processes(run.box) == ["sleep 309"]


async def test_a_harness_that_takes_too_long_is_stopped_and_its_evidence_stays(run: HarnessRun) -> None:
    ending = await run.launch(script(f"{DETACHED} echo one; trap '' TERM INT; sleep 303; sleep 304"), "", 2)
    assert ending.stopped == "agent_timeout"
    assert (run.evidence / "stdout").read_text() == "one\n"
    await run.end()
    assert await processes(run.box) == []


async def test_a_harness_that_prints_without_end_is_stopped(run: HarnessRun) -> None:
    ending = await run.launch(script("yes no | head -c 4000000; sleep 305"), "", 60)
    assert ending.stopped == "transcript_limit"
    await run.end()
    assert await processes(run.box) == []


async def test_a_close_in_the_midst_of_a_run_ends_it(run: HarnessRun) -> None:
    running = asyncio.ensure_future(run.launch(script(f"{DETACHED} echo one; sleep 306"), "", 60))
    await has_printed(run)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await run.end()
    assert (run.evidence / "stdout").read_text() == "one\n"
    assert await processes(run.box) == []


async def test_a_start_that_comes_after_the_stop_starts_nothing(run: HarnessRun) -> None:
    run.launched = True
    await run.end()
    ending = await run.launch(script("echo started"), "", 60)
    assert ending.return_code != 0
    assert (run.evidence / "stdout").read_text() == ""


async def test_a_sandbox_that_dies_leaves_it_unknown_what_became_of_the_harness(run: HarnessRun) -> None:
    running = asyncio.ensure_future(run.launch(script("echo one; sleep 307"), "", 60))
    await has_printed(run)
    await asyncio.to_thread(subprocess.run, ["docker", "kill", run.box.sandbox_id], capture_output=True, check=True)
    unknown = r"^Script launch outcome is unknown; cannot confirm termination$"
    with pytest.raises(ContractError, match=unknown) as raised:
        await running
    assert (raised.value.status, raised.value.kind, raised.value.terminal) == (500, "environment_server_failed", False)
    with pytest.raises(ContractError, match=unknown):
        await run.end()
    await run.end()  # the provider says by now that nothing runs there any more


async def test_an_image_without_glibc_is_refused_with_the_reason(boxes: Boxes, busybox_image: str, bundles: Callable[[str], Built]) -> None:
    box = await boxes.lend(image=busybox_image, workdir="/root")
    with pytest.raises(
        ContractError, match=r"^OpenCode needs an image with glibc: this one has no /lib64/ld-linux-x86-64\.so\.2"
    ) as raised:
        await place(box, bundles("opencode_agent"), 60)
    assert (raised.value.status, raised.value.terminal) == (422, True)


@pytest.mark.parametrize(
    ("fields", "glibc", "reason"),
    [
        ({"machine": "s390x"}, (2, 0), "Script is here for s390x, but the sandbox is a x86_64"),
        ({}, (2, 99), r"Script needs an image with glibc 2\.99 or newer: this one has 2\.36"),
    ],
)
async def test_an_image_that_cannot_run_it_is_refused(
    boxes: Boxes, tmp_path: Path, fields: dict[str, str], glibc: tuple[int, int], reason: str
) -> None:
    built = Built(Bundle("Script", (), **fields), tmp_path, tmp_path / "none", glibc)
    with pytest.raises(ContractError, match=reason) as raised:
        await place(await boxes.lend(), built, 60)
    assert raised.value.status == 422


async def test_an_image_that_cannot_unpack_it_is_refused(boxes: Boxes, tmp_path: Path) -> None:
    box = await boxes.lend()
    assert (await box.exec("rm $(command -v gzip)", user="0")).ok
    with pytest.raises(ContractError, match=r"cannot be copied into an image that lacks gzip: add that, or mount /opt/nemo-gym") as raised:
        await place(box, Built(Bundle("Script", ()), tmp_path, tmp_path / "none", (2, 0)), 60)
    assert raised.value.status == 422


async def test_a_bundle_is_copied_once(boxes: Boxes, bundles: Callable[[str], Built]) -> None:
    box, opencode = await boxes.lend(user="nobody"), bundles("opencode_agent")
    places = await asyncio.gather(*(place(box, opencode, 120) for _ in range(2)))
    (where,) = set(places)
    assert where == f"{COPIED}/{opencode.bundle.digest}"
    first = (await box.exec(f"stat -c %i {where}/*")).stdout
    assert await place(box, opencode, 120) == where
    assert (await box.exec(f"stat -c %i {where}/*")).stdout == first
    assert (await box.exec(f"ls {where} {COPIED}")).stdout.split() == [
        f"{COPIED}:",
        opencode.bundle.digest,
        f"{where}:",
        "opencode",
        "rg",
    ]
    assert (await box.exec(f"{where}/rg --version | head -1")).stdout.startswith("ripgrep")


LIBRARIES = """
import bz2, ctypes, hashlib, lzma, sqlite3, ssl, sys, uuid, zlib
import run_agent
loaded = {line.split()[-1] for line in open("/proc/self/maps") if ".so" in line}
print(sys.prefix, *sorted(path.rpartition("/")[2] for path in loaded if not path.startswith(sys.prefix)))
"""


async def test_a_python_of_its_own_needs_nothing_of_the_image_and_leaves_its_children_alone(
    boxes: Boxes, bundles: Callable[[str], Built]
) -> None:
    box = await boxes.lend(user="nobody")
    where = await place(box, bundles("hermes_agent"), 120)
    done = await box.exec(f"{where}/bin/python3 -I -c '{LIBRARIES}'", env={"HERMES_HOME": "/tmp/home"})
    prefix, *others = done.stdout.split()
    assert prefix == where, done.stderr
    manylinux = {"libc", "libm", "libdl", "libpthread", "librt", "libutil", "ld-linux-x86-64", "libgcc_s"}
    assert {name.partition(".")[0] for name in others} <= manylinux, "what wheels may take from any image with glibc"
    child = await box.exec(f"""{where}/bin/python3 -c 'import os; os.system("env; python3 -c \\"import sys; print(sys.prefix)\\"")'""")
    assert child.stdout.endswith("/usr\n")
    assert "LD_LIBRARY_PATH" not in child.stdout
    assert "PYTHON" not in child.stdout


async def test_a_full_disk_is_said_and_nothing_is_started(boxes: Boxes, tmp_path: Path, bundles: Callable[[str], Built]) -> None:
    box = await boxes.lend(provider_options={"tmpfs": {"/tmp": "size=1m"}})
    with pytest.raises(ContractError, match=r"OpenCode could not be (copied|put) into the sandbox") as raised:
        await place(box, bundles("opencode_agent"), 120)
    assert (raised.value.status, raised.value.terminal) == (503, False)
    run = HarnessRun("Script", box, tmp_path, 1024)
    assert not (await box.exec("cat /dev/zero > /tmp/full")).ok
    with pytest.raises(ContractError, match=r"the session folder of Script could not be made: .*No space left"):
        await run.prepare("a prompt", 60)
    await run.end()
