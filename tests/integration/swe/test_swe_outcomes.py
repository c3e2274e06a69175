"""The outcome table of SWE tasks, line by line, in real containers."""

import asyncio
import hashlib
import subprocess
from typing import Any

import pytest

from gym.client import CallError

pytestmark = pytest.mark.docker


def docker(*args: str, check: bool = True) -> str:
    return subprocess.run(["docker", *args], text=True, capture_output=True, check=check, timeout=60).stdout


def expect(verdict: dict[str, Any], **fields: Any) -> None:
    shown = {name: verdict.get(name) for name in (*fields, "failure_reason", "test_output", "patch_capture_error")}
    assert {name: verdict.get(name) for name in fields} == fields, shown


async def test_gold_resolves_and_the_row_says_everything(rig: Any) -> None:
    await rig.seed()
    assert await rig.roles() == ["task"]
    await rig.solve()
    verdict = await rig.verify()
    expect(
        verdict,
        reward=1.0,
        resolved=True,
        mask_sample=False,
        evaluation_completed=True,
        patch_applied=True,
        patch_source="worktree",
        verification_attempts=1,
        test_exit_code=1,  # the sentinel fails, as it must
        instance_id="gym-test__calc-1",
        test_count=15,
    )
    assert verdict["model_patch"].count("diff --git") == 1
    assert set(verdict["test_results"].values()) == {"PASSED"}
    assert verdict["task_sandbox_observation"]["image_id"] == verdict["verifier_sandbox_observation"]["image_id"]
    assert await rig.roles() == []
    again = await rig.verify()
    assert again == verdict, "the same verify gives the same verdict, timings included: it was graded once"
    await rig.close()
    assert await rig.verify() == verdict, "also after close"
    other = await rig.verify(extra="another body")
    expect(other, mask_sample=True, failure_kind="session_lost", lost_session_verification=True, evaluation_completed=False)


async def test_nothing_done_is_zero_without_a_run(rig: Any) -> None:
    await rig.seed()
    verdict = await rig.verify()
    expect(verdict, reward=0.0, mask_sample=False, evaluation_completed=True, patch_applied=False, patch_source="none", model_patch="")
    assert "verification_attempts" not in verdict


@pytest.mark.parametrize("options", ["-uo pipefail", "-euo pipefail"])
async def test_a_wrong_patch_is_zero(rig: Any, options: str) -> None:
    await rig.seed(eval_script=rig.row["eval_script"].replace("set -uo pipefail", f"set {options}"))
    await rig.work("echo '# a remark' >> calc/evaluate.py")
    verdict = await rig.verify()
    expect(verdict, reward=0.0, mask_sample=False, evaluation_completed=True, patch_applied=True, resolved=False, test_exit_code=1)
    assert "tests/test_evaluate.py::test_long_chain" in verdict["test_results"]


async def test_a_patch_that_does_not_fit_is_zero(make_rig: Any) -> None:
    """Stored patches can be anything; they are judged with no session."""
    rig = await make_rig()
    name = "calc/evaluate.py"
    bad = f"diff --git a/{name} b/{name}\n--- a/{name}\n+++ b/{name}\n@@ -1 +1 @@\n-nothing like it\n+x\n"
    for patch in (bad, "no patch at all\n", "diff --git a/x b/x\nGIT binary patch\ndelta 3\nzzz\n"):
        verdict = await rig.verify(model_patch=patch)
        expect(verdict, reward=0.0, mask_sample=False, evaluation_completed=True, patch_applied=False)
    expect(await rig.verify(model_patch=rig.row["patch"]), reward=1.0, mask_sample=False)
    expect(await rig.verify(), mask_sample=True, failure_kind="session_lost", lost_session_verification=True)


async def test_tests_that_the_agent_changed_are_restored(rig: Any) -> None:
    await rig.seed()
    await rig.work("printf 'def test_long_chain(): pass\\n' > tests/test_evaluate.py; mkdir tests/more; echo x > tests/more/new.txt")
    verdict = await rig.verify()
    expect(verdict, reward=0.0, evaluation_completed=True, patch_applied=True, mask_sample=False)
    assert "test_evaluate.py" not in verdict["model_patch"]
    assert "tests/more/new.txt" in verdict["model_patch"]


async def test_a_folder_in_place_of_a_test_file_masks_nothing(rig: Any) -> None:
    await rig.seed()
    await rig.work(
        "rm tests/test_evaluate.py && mkdir tests/test_evaluate.py && echo x > tests/test_evaluate.py/x; echo '#' >> calc/evaluate.py"
    )
    verdict = await rig.verify()
    expect(verdict, reward=0.0, evaluation_completed=True, mask_sample=False, patch_applied=True)


@pytest.mark.parametrize(
    "tail",
    [
        "git add -A && git commit -qm work",
        "git add -A && git commit -qm work && git checkout -q -b other && git reset -q --hard && git commit -q --allow-empty -m more",
        # What hides a change from the agent's own git does not hide it from us,
        "git update-index --skip-worktree calc/evaluate.py && touch .git/index.lock",
        # nor does what changes how git writes and looks,
        "git config diff.external /bin/false && git config core.autocrlf true && git config diff.noprefix true && "
        "printf '* -text -diff filter=nothing\\n' > .git/info/attributes && "
        "git config core.fsmonitor /bin/false && git config core.worktree /tmp",
        # and no leftover costs the work: a repository without a commit, files that are ignored no longer.
        "git stash -q && git stash apply -q && git gc -q --prune=now && git init -q vendored && echo x > vendored/file && "
        "printf '!__pycache__/\\n' > .gitignore && python3 -m compileall -q calc",
    ],
)
async def test_however_the_work_was_left_it_counts(rig: Any, tail: str) -> None:
    await rig.seed()
    await rig.solve()
    await rig.work(tail)
    expect(await rig.verify(), reward=1.0, evaluation_completed=True, mask_sample=False, patch_source="worktree")


FILES = {
    "blob.bin": bytes(range(256)) * 20,
    "crlf.txt": b"a\r\nb\r\n",
    "latin1.txt": b"caf\xe9\n",
    "no-newline": b"x",
    "empty": b"",
    'deep er/ü/na"me\ttab.txt': b"1\n",
}


async def test_files_of_all_sorts_survive(rig: Any) -> None:
    sums = "".join(f"{hashlib.sha256(data).hexdigest()}  {path}\n" for path, data in FILES.items())
    check = f"sha256sum -c - <<'X' && [ -x run.sh ] && [ -L link ] || exit 3\n{sums}X\n"  # in the fresh sandbox
    await rig.seed(eval_script=rig.row["eval_script"].replace("git apply -v -", check + "git apply -v -"))
    await rig.solve()
    for path, data in FILES.items():
        await rig.box.upload(f"/testbed/{path}", data)
    await rig.work("ln -s calc/evaluate.py link; cp README.md run.sh; chmod +x run.sh")
    verdict = await rig.verify()
    expect(verdict, reward=1.0, mask_sample=False)
    assert "build-stamp.txt" not in verdict["model_patch"], "what the image had untracked is no work of the agent's"
    assert "caf\ufffd" in verdict["model_patch"]
    stored = {name: verdict[name] for name in ("model_patch", "model_patch_base64")}
    rig.cookies = {}
    again = await rig.verify(**stored)
    expect(again, reward=1.0, model_patch_sha256=verdict["model_patch_sha256"])


async def test_a_huge_patch_is_judged_and_a_monstrous_one_is_zero(rig: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gym.swe.outcomes.PATCH_BYTES", 2**20)
    await rig.seed()
    await rig.solve()
    await rig.work("head -c 5000000 /dev/urandom > big.bin")
    verdict = await rig.verify()
    expect(verdict, reward=1.0, mask_sample=False)
    assert verdict["model_patch_bytes"] > 5_000_000
    assert "model_patch" not in verdict, "the row stays of a bounded size"
    await rig.close()
    monkeypatch.setattr("gym.swe.capture._PATCH_BYTES", 2**20)
    await rig.seed("s2")
    await rig.solve()
    await rig.work("head -c 2000000 /dev/urandom > big.bin")
    verdict = await rig.verify()
    expect(verdict, reward=0.0, mask_sample=False, evaluation_completed=True)
    assert "longer than the 1048576 bytes allowed" in verdict["patch_capture_error"]


async def test_a_changed_crlf_file_applies(rig: Any) -> None:
    setup = ["printf 'one\\r\\ntwo\\r\\n' > dos.txt && git add dos.txt && git -c user.name=x -c user.email=x@x commit -qm dos"]
    await rig.seed(setup=setup)
    await rig.solve()
    await rig.work("printf 'one\\r\\n2\\r\\nthree\\r\\n' > dos.txt")
    verdict = await rig.verify()
    expect(verdict, reward=1.0)
    assert "-two\r\n+2\r\n" in verdict["model_patch"]


async def test_what_the_image_changed_itself_is_not_the_agents(rig: Any) -> None:
    """An image may have tracked files that differ from its commit, and files of another user."""
    await rig.seed(
        setup=["printf 'calc, prepared\\n' > README.md && chown -R 1234:1234 . && git config --global --unset-all safe.directory; true"]
    )
    assert await rig.work("cat README.md") == "calc, prepared\n"
    assert await rig.work("git status --porcelain") == "?? build-stamp.txt\n"
    await rig.solve()
    await rig.work("printf 'calc, prepared\\nand changed\\n' > README.md")
    verdict = await rig.verify()
    expect(verdict, reward=1.0)
    assert "+and changed" in verdict["model_patch"]
    assert "+calc, prepared" not in verdict["model_patch"]


@pytest.mark.parametrize("ruin", ["rm -rf .git", "rm -rf .git/objects/pack", "rm -rf /testbed"])
async def test_an_agent_that_destroys_the_repository_gets_zero(rig: Any, ruin: str) -> None:
    await rig.seed()
    await rig.solve()
    await rig.work(f"cd / && cd /testbed && {ruin}")
    verdict = await rig.verify()
    expect(verdict, reward=0.0, mask_sample=False, evaluation_completed=True, patch_applied=False)
    assert "the repository is gone" in verdict["patch_capture_error"]


async def test_a_capture_that_fails_for_another_reason_is_masked(rig: Any) -> None:
    await rig.seed()
    await rig.work(
        'mv /usr/bin/git /usr/bin/git.real; printf \'#!/bin/sh\\ncase "$*" in *diff*) exit 5;; esac; exec git.real "$@"\' >/usr/bin/git'
    )
    await rig.work("chmod +x /usr/bin/git; echo x > new")
    expect(await rig.verify(), mask_sample=True, failure_kind="verifier_error", evaluation_completed=False, lost_session_verification=None)


async def test_a_lost_task_sandbox_is_masked(rig: Any) -> None:
    await rig.seed()
    docker("kill", await rig.id_of("task"))
    verdict = await rig.verify()
    expect(
        verdict, mask_sample=True, failure_kind="session_lost", lost_session_verification=True, evaluation_completed=False, resolved=False
    )
    await rig.close()


def with_tests(row: dict[str, Any], commands: str) -> str:
    """The row's script with other test commands."""
    before, _, after = row["eval_script"].partition("python -m pytest")
    return before + commands + "\n" + after.partition("\n")[2]


@pytest.mark.parametrize(
    ("printed", "fields"),
    [
        ("echo 'FAILED tests/test_evaluate.py::test_long_chain'", {"mask_sample": False, "evaluation_completed": True}),
        ("echo 'PASSED tests/test_evaluate.py::test_long_chain'", {"mask_sample": True, "evaluation_completed": False}),
        (":", {"mask_sample": True, "evaluation_completed": False, "failure_kind": "verifier_error"}),
    ],
)
async def test_a_time_out_is_a_zero_only_with_a_failed_test(make_rig: Any, printed: str, fields: dict[str, Any]) -> None:
    rig = await make_rig(evaluation_timeout=1.5, inconclusive_verification_retries=0)
    await rig.seed(eval_script=with_tests(rig.row, f"{printed}; sleep 30"))
    await rig.solve()
    expect(await rig.verify(), reward=0.0, eval_timed_out=True, resolved=False, patch_applied=True, **fields)


@pytest.mark.parametrize(
    ("commands", "reason", "retries"),
    [
        ("true", "no test result could be read", 1),
        ("printf 'PASSED a\\n>>>>> %s Test Output\\n' End; exit 0", "without their end marker", 0),
    ],
)
async def test_output_without_evidence_is_masked_after_fresh_tries(make_rig: Any, commands: str, reason: str, retries: int) -> None:
    rig = await make_rig(inconclusive_verification_retries=retries)
    await rig.seed(eval_script=with_tests(rig.row, commands))
    await rig.solve()
    verdict = await rig.verify()
    expect(verdict, mask_sample=True, failure_kind="verifier_error", evaluation_completed=False, verification_attempts=retries + 1)
    assert reason in verdict["failure_reason"]


async def test_a_test_patch_that_does_not_apply_is_masked(make_rig: Any) -> None:
    rig = await make_rig(inconclusive_verification_retries=0)
    await rig.seed(eval_script=rig.row["eval_script"].replace("\n def test_division_by_zero", "\n def test_nothing_like_it"))
    await rig.solve()
    verdict = await rig.verify()
    expect(verdict, mask_sample=True, failure_kind="verifier_error", evaluation_completed=False)
    assert "test patch did not apply" in verdict["failure_reason"]


async def test_a_grading_sandbox_that_dies_is_tried_again(rig: Any) -> None:
    """The first is killed while its tests run; a fresh one gives the verdict."""
    await rig.seed(eval_script=with_tests(rig.row, "sleep 4; python -m pytest -rA -p no:cacheprovider tests/test_evaluate.py"))
    await rig.solve()
    verifying = asyncio.ensure_future(rig.verify())
    first = await rig.id_of("verifier")
    async with asyncio.timeout(30):
        # `top` fails while the container is only created
        while "sleep 4" not in docker("top", first, check=False):  # noqa: ASYNC110 - another program's doing
            await asyncio.sleep(0.1)
    docker("kill", first)
    expect(await verifying, reward=1.0, mask_sample=False, verification_attempts=2)


async def test_a_dead_grading_sandbox_is_never_a_zero(make_rig: Any) -> None:
    rig = await make_rig(inconclusive_verification_retries=0)
    ending = "echo FAILED tests/test_evaluate.py::test_long_chain; kill -9 $(pgrep -x sleep); sleep 20"  # what keeps the container up
    await rig.seed(eval_script=with_tests(rig.row, ending))
    await rig.solve()
    expect(await rig.verify(), mask_sample=True, failure_kind="provider_unavailable", evaluation_completed=False)


async def test_closing_during_verify_stops_the_grading_sandbox(rig: Any) -> None:
    await rig.seed(eval_script=with_tests(rig.row, "sleep 60"))
    await rig.solve()
    verifying = asyncio.ensure_future(rig.verify())
    await rig.id_of("verifier")
    await asyncio.sleep(0.5)
    await rig.close()
    assert await rig.roles() == []
    with pytest.raises(CallError):
        await verifying
