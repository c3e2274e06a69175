"""Taking an agent's work out of its sandbox, as a patch that holds nothing of the image's or the grader's.

Invariant: what an agent did cannot make capture fail as if it were nobody's fault: a repository that
is gone, or a monstrous change, is an empty patch that says so.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any, Literal

from gym.sandbox.handles import OwnedSandbox
from gym.sandbox.spec import SandboxFileError
from gym.swe import scripts
from gym.swe.boxes import Base, run, said, scratch
from gym.swe.outcomes import Patch
from gym.swe.patches import sections, touched
from gym.swe.profile import Task

CaptureMode = Literal["worktree", "committed"]
"""What counts as the agent's work: all that stands in the work tree, or the most advanced commit."""

_PATCH_BYTES = 128 * 2**20
_NAMES_SHOWN = 100
_RUNS_BY_ITSELF = re.compile(r"(^|/)((conftest|sitecustomize|usercustomize)\.py|[^/]+\.pth)$")
"""Files that test runners and Python load unasked. They belong to the tests, and no SWE data set has them in a gold patch."""


class CaptureError(Exception):
    """Nothing can be said about the patch, and that may be nobody's fault."""


async def capture(box: OwnedSandbox, task: Task, base: Base, mode: CaptureMode, timeout: float) -> Patch:
    """What the agent changed.

    A repository that is gone, or a change of more than 128 MiB, gives an empty patch that says so: that
    is the agent's work. Raises SandboxError for a sandbox that died, CaptureError for everything else.
    """
    out = scratch()
    script = scripts.CAPTURE_WORKTREE if mode == "worktree" else scripts.CAPTURE_COMMITTED
    result = await run(box, script, timeout, workdir=task.workdir, base=base.commit, out=out)
    if result.return_code == scripts.NO_REPOSITORY:
        return Patch(b"", "none", f"the repository is gone: {said(result)}")
    if not result.ok:
        raise CaptureError(f"no end within {timeout:g} s" if result.error_type == "timeout" else said(result))
    try:
        data = await box.download(f"{out}.diff", max_bytes=_PATCH_BYTES)
        facts = _facts(await box.download(f"{out}.facts", max_bytes=4096)) if mode == "committed" else {}
    except SandboxFileError as error:
        return Patch(b"", "none", f"the patch cannot be taken: {error}")
    return cleaned(data, task, mode, base.untracked, facts)


def cleaned(data: bytes, task: Task, source: str, untracked: Iterable[str] = (), facts: Mapping[str, Any] | None = None) -> Patch:
    """A patch without what was untracked before the agent began, what is hidden, the test patch's files, and files that run by themselves.

    Of the last, one that the gold patch touches stays. What was left out of the agent's own is named in the patch's fields.
    """
    images = {name.rstrip("/") for name in untracked}
    graders = touched(task.test_patch.encode(errors="surrogateescape")) | {name.rstrip("/") for name in task.hide}
    gold = touched(task.gold_patch.encode(errors="surrogateescape"))
    kept: list[bytes] = []
    left_out: list[str] = []
    for path, section in sections(data):
        if _below(path, graders) or (_RUNS_BY_ITSELF.search(path) and path not in gold):
            left_out.append(path)
        elif not _below(path, images):
            kept.append(section)
    fields = dict(facts or {})
    if left_out:
        fields["patch_files_left_out"] = [name.encode(errors="replace").decode() for name in left_out[:_NAMES_SHOWN]]
    patch = b"".join(kept)
    return Patch(patch, source if patch else "none", fields=fields)


def _below(path: str, places: set[str]) -> bool:
    """Whether `path` is one of the places, or lies below one."""
    return path in places or any(path[:index] in places for index, letter in enumerate(path) if letter == "/")


def _facts(lines: bytes) -> dict[str, Any]:
    """Branch, number of commits, and whether more stood in the work tree; the branch's name is the agent's."""
    commits, dirty, branch = lines.decode(errors="replace").rstrip("\n").split("\n", 2)
    return {"patch_branch": branch, "patch_commits": int(commits), "worktree_dirty": dirty == "yes"}
