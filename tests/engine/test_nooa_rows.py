"""An embedded agent of NOOA's with a real, very weak model: it comes to a correct end, whatever the model says."""

import pytest

from tests.engine.conftest import Engine, policy
from tests.integration.conftest import GymRuns
from tests.integration.swe.gym_runs import skip_without_environment
from tests.integration.test_nooa_embedded import EXAMPLE, row

pytestmark = pytest.mark.slow


def test_a_weak_model_comes_to_a_correct_end(runs: GymRuns, engine: Engine) -> None:
    given = ["--config", EXAMPLE, "--input", runs.rows(row(0, "add 1 then add 2 then get the count", 3)), "--attempts", "1"]
    more = ["++example_session_state_mgmt_nooa_agent.responses_api_agents.nooa_agent.max_policy_calls=4"]
    started = runs.begin("eval", "run", *given, "--output", runs.folder / "out.jsonl", "--model-type", "vllm_model", *policy(engine), *more)
    code = started.ended(280)
    skip_without_environment(started.errors)
    assert code == 0, (started.errors, runs.lines("out_failures.jsonl"))
    (done,) = runs.lines("out.jsonl")
    observed, captured = done["ng_agent_observations"], done["ng_model_call_capture"]["metrics"]
    assert done["mask_sample"] is False
    assert done["response"]["status"] in ("completed", "incomplete")
    assert 1 <= captured["num_calls"] <= 4, "NOOA asks again where the model calls no tool, and no oftener than it may"
    assert captured["num_failed_calls"] == 0
    assert done["response"]["usage"]["output_tokens"] == captured["tokens_out"] > 0
    assert sum(len(turn["model_calls"]) for turn in done["ng_trajectory"]["turns"]) == captured["num_calls"]
    assert observed["execution_mode"] == "embedded"
    runs.check_nothing_left()
