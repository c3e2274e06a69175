"""`gym eval run`: from options to exit codes, with the shipped example served in this process."""

import asyncio
import contextlib
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from typer.testing import CliRunner

from gym.cli.main import app
from gym.config.errors import UserError

_CONFIG = "resources_servers/example_session_state_mgmt/configs/example_session_state_mgmt.yaml"
_ROWS = Path(__file__).parents[3] / "resources_servers/example_session_state_mgmt/data/example.jsonl"
_EXAMPLE = ["run", "--config", _CONFIG, "--model-type", "scripted_model"]


@pytest.fixture(autouse=True)
def _own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GYM_STATE_DIR", str(tmp_path / "state"))


def _run(arguments: list[str]) -> Any:
    return CliRunner().invoke(app, ["eval", *arguments])


def _records(stdout: str) -> list[dict[str, Any]]:
    return [orjson.loads(line) for line in stdout.splitlines()]


def test_the_example_is_measured(tmp_path: Path) -> None:
    output = tmp_path / "results" / "out.jsonl"
    ended = _run([*_EXAMPLE, "--output", str(output), "--num-repeats", "2", "--limit", "2", "--json"])
    assert ended.exit_code == 0, ended.output
    launch, done = _records(ended.stdout)
    assert (launch["event"], launch["expected"]) == ("launch", 4)
    assert (done["event"], done["coverage"]["measured"], done["exit_code"]) == ("done", 4, 0)
    assert "4 expected = 4 measured + 0 masked" in ended.stderr
    assert "named by position" in ended.stderr
    assert "failed attempts are in" not in ended.stderr
    assert len(output.read_bytes().splitlines()) == 4
    again = _run([*_EXAMPLE, "--output", str(output)])
    assert isinstance(again.exception, UserError)
    assert "--overwrite" in str(again.exception)


def test_shards_are_merged_and_a_finished_run_is_resumed(tmp_path: Path) -> None:
    parts = [tmp_path / "part1.jsonl", tmp_path / "part2.jsonl"]
    for number, part in enumerate(parts, 1):
        assert _run([*_EXAMPLE, "--output", str(part), "--shard", f"{number}/2"]).exit_code == 0
    whole = tmp_path / "out.jsonl"
    merged = _run(["merge", *map(str, parts), "--output", str(whole), "--json"])
    assert merged.exit_code == 0, merged.output
    assert [record["coverage"]["measured"] for record in _records(merged.stdout)] == [5]
    again = _run([*_EXAMPLE, "--output", str(whole), "--resume"])
    assert again.exit_code == 0, again.output
    assert "resumed: 5 rollouts ended before, 0 to run" in again.stderr
    changed = "++policy_model.responses_api_models.scripted_model.max_calls_per_rollout=99"
    other = _run([*_EXAMPLE, changed, "--output", str(whole), "--resume"])
    assert isinstance(other.exception, UserError)
    assert "begun with another policy_model.responses_api_models.scripted_model.max_calls_per_rollout" in str(other.exception)


def test_a_run_is_resumed_and_another_configuration_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    output = tmp_path / "out.jsonl"
    example = [*_EXAMPLE, "--output", str(output), "--limit", "3"]
    first = _run([*example, "--resume", "--json"])
    assert first.exit_code == 0, first.output
    launch, done = _records(first.stdout)
    assert launch["resumed"] is None, "there was nothing to resume"
    assert done["resumed"] is None
    rows = output.read_bytes().splitlines(keepends=True)
    output.write_bytes(rows[0] + rows[1] + rows[2][:20])
    again = _run([*example, "--resume", "--json"])
    assert again.exit_code == 0, again.output
    launch, done = _records(again.stdout)
    assert (launch["resumed"]["ended_before"], launch["resumed"]["to_run"]) == (2, 1)
    assert launch["resumed"]["torn_bytes_cut"] == {"out.jsonl": 20}
    assert (done["resumed"]["measured_now"], done["coverage"]["measured"]) == (1, 3)
    assert "resumed: 2 rollouts ended before, 1 to run" in again.stderr
    assert "the last line of out.jsonl was torn: 20 bytes are cut" in again.stderr
    monkeypatch.setattr("gym.runtime.launch.launch", lambda *_, **__: pytest.fail("servers were started"))
    key = "policy_model.responses_api_models.scripted_model.max_calls_per_rollout"
    other = _run([*example, "--resume", f"++{key}=99"])
    assert isinstance(other.exception, UserError)
    assert f"was begun with another {key}: give the same again" in str(other.exception)
    foreign = output.read_bytes()
    output.write_bytes(b'{"text":"somebody\'s"}\n')
    for options, says in ((["--resume"], "out.jsonl:1 is no line of this run"), (["--resume", "--limit", "2"], "--limit (3 then, 2 now)")):
        said = _run([*example, *options])
        assert isinstance(said.exception, UserError)
        assert says in str(said.exception)
    output.write_bytes(foreign)


def test_a_bad_row_gives_76(tmp_path: Path) -> None:
    example = _ROWS.read_bytes().splitlines(keepends=True)
    rows = tmp_path / "rows.jsonl"
    # the second row misses what the server's TaskData asks for
    rows.write_bytes(example[0] + b'{"responses_create_params":{"input":"q"}}\n')
    ended = _run([*_EXAMPLE, "--input", str(rows), "--output", str(tmp_path / "out.jsonl")])
    assert ended.exit_code == 76, ended.output
    assert ended.stdout == ""
    assert f"{rows}:2: the task data does not fit the server's schema" in ended.stderr
    last = ended.stderr.splitlines()[-1]
    assert last.startswith(f"failed attempts are in {tmp_path / 'out_failures.jsonl'}; the first, of rollout 1-0: ")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--input", "absent.jsonl"], "absent.jsonl does not exist"),
        (["--input", "."], "--input . is a folder"),
        (["--dataset", "exampel"], "did you mean 'example'"),
        (["--agent", "nobody"], "no environment server runs this agent"),
        (["--env", "nowhere"], "no such environment server"),
    ],
)
def test_mistakes_are_said_before_anything_starts(tmp_path: Path, options: list[str], says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import gym.runtime.launch

    @contextlib.asynccontextmanager
    async def launch(*_: Any, **__: Any) -> AsyncIterator[None]:
        pytest.fail("servers were started")
        yield

    monkeypatch.setattr(gym.runtime.launch, "launch", launch)
    ended = _run([*_EXAMPLE, "--output", str(tmp_path / "out.jsonl"), *options])
    assert isinstance(ended.exception, UserError)
    assert says in str(ended.exception)
    assert not (tmp_path / "out.jsonl").exists()


def test_verdicts_are_given_again_where_that_can_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = "resources_servers/example_single_tool_call/configs/example_single_tool_call.yaml"
    example = ["--config", config, "--model-type", "scripted_model"]
    old, new = tmp_path / "old.jsonl", tmp_path / "new.jsonl"
    assert _run(["run", *example, "--limit", "2", "--num-repeats", "2", "--output", str(old)]).exit_code == 0
    again = _run(["reverify", str(old), *example, "--output", str(new), "--json"])
    assert again.exit_code == 0, again.output
    launch, done = _records(again.stdout)
    assert (launch["expected"], done["coverage"]["measured"], done["verdicts"]["unchanged"]) == (4, 4, 4)
    assert again.stderr.splitlines()[-1] == "0 of 4 verdicts changed"
    resumed = _run(["reverify", str(old), *example, "--output", str(new), "--resume"])
    assert "resumed: 4 rollouts ended before, 0 to run" in resumed.stderr
    stateful = tmp_path / "stateful.jsonl"
    assert _run([*_EXAMPLE, "--output", str(stateful), "--limit", "1"]).exit_code == 0
    refused = _run(["reverify", str(stateful), *_EXAMPLE[1:], "--output", str(tmp_path / "none.jsonl")])
    assert isinstance(refused.exception, UserError)
    assert "cannot verify without the episode" in str(refused.exception)
    assert not (tmp_path / "none.jsonl").exists()
    monkeypatch.setattr("gym.runtime.launch.launch", lambda *_, **__: pytest.fail("servers were started"))
    for output, options, says in (
        (new, [], "go on with it with --resume"),
        (old, ["--overwrite"], "is one of the files that this run writes"),
        (tmp_path / "old_failures.jsonl", ["--overwrite"], "is one of the files that this run writes"),
        (tmp_path / "other.jsonl", ["--env", "nowhere"], "no such environment server"),
    ):
        ended = _run(["reverify", str(old), *example, "--output", str(output), *options])
        assert isinstance(ended.exception, UserError)
        assert says in str(ended.exception)
    absent = _run(["reverify", str(tmp_path / "absent.jsonl"), *example, "--output", str(tmp_path / "other.jsonl")])
    assert "absent.jsonl is not there" in str(absent.exception)


@pytest.mark.parametrize(
    "options",
    [
        ["--concurrency", "0"],
        ["--concurrency", "auto:0"],
        ["--concurrency", "autos"],
        ["--attempts", "0"],
        ["--limit", "-1"],
        ["--dataset", "a", "--input", "b"],
        ["--run", "x"],
        ["notanoverride"],
        ["--resume", "--overwrite"],
        ["--allow-unsafe-resume"],
    ],
)
def test_wrong_usage_is_2(tmp_path: Path, options: list[str]) -> None:
    assert _run([*_EXAMPLE, "--output", str(tmp_path / "out.jsonl"), *options]).exit_code == 2


def test_without_an_output_is_2() -> None:
    assert _run(_EXAMPLE).exit_code == 2


def test_no_serve_without_servers(tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text("{}\n")
    ended = _run(["run", "--no-serve", "--input", str(rows), "--output", str(tmp_path / "out.jsonl")])
    assert isinstance(ended.exception, UserError)
    assert "no servers are running" in str(ended.exception)


async def test_no_serve_uses_the_servers_that_are_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Servers in this process, over HTTP, and the command in a thread with a loop of its own would need signals: so by its parts."""
    from gym.cli import eval as command
    from gym.cli.serving import servers
    from gym.config import load
    from gym.rollouts.collect import collect
    from gym.rollouts.dispatch import PeerDispatcher
    from gym.runtime.head import head_app
    from gym.runtime.launch import launch
    from gym.runtime.listen import answering, open_socket, url_of

    plan = load([Path(_CONFIG)], ["+head_server.port=0"], model_type="scripted_model").plan
    token = tmp_path / "token"
    async with launch(plan, "process") as running:
        head = open_socket("127.0.0.1", 0, "the head server")
        async with answering(head_app(running), head):
            token.write_text(running.credentials.token or "")
            monkeypatch.setenv("GYM_HEAD_URL", url_of(head))
            monkeypatch.setenv("GYM_TOKEN_FILE", str(token))
            request = command._Request(tmp_path / "out.jsonl", _ROWS, None, None, None, None, (4, False), 3, None, False)
            async with servers(plan, no_serve=True, run_id=None) as up:
                options, dispatcher = request.options(up.datasets, up.default_agent), PeerDispatcher(up.peer, up.timeouts)
                running_to_end = collect(options, up.targets, dispatcher, run_id=up.run_id, config_keys=up.config_keys)
                summary = await asyncio.wait_for(running_to_end, 60)
            assert summary.exit_code == 0
            assert summary.coverage.measured == 15
            assert summary.run_id == running.run_id
            other = load([Path(_CONFIG)], ["++policy_model.responses_api_models.scripted_model.description=x"], model_type="scripted_model")
            with pytest.raises(UserError, match="another configuration of policy_model"):
                async with servers(other.plan, no_serve=True, run_id=None):
                    pass


def test_the_light_part_stays_light() -> None:
    """`gym --help` imports this module: it must bring nothing heavy."""
    heavy = ("aiohttp", "orjson", "pydantic", "starlette", "rich", "gym.rollouts.collect")
    code = f"import sys, gym.cli.eval; print(*[m for m in {heavy} if m in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == ""
