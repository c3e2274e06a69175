"""Which keys of two configurations differ, told from their digests."""

from pathlib import Path

from gym.config import load
from gym.config.digests import differing, digest_of, key_digests

_CONFIG = Path("resources_servers/example_session_state_mgmt/configs/example_session_state_mgmt.yaml")
_GIVEN = ["+policy_base_url=http://127.0.0.1:1/v1", "+policy_api_key=a-long-enough-key", "+policy_model_name=m"]


def _digests(*overrides: str, given: list[str] = _GIVEN) -> dict[str, str]:
    return key_digests(load([_CONFIG], [*given, *overrides], model_type="openai_model").plan)


def test_what_changes_a_result_is_named() -> None:
    before = _digests()
    after = _digests("++policy_model.responses_api_models.openai_model.sampling_overrides.temperature=0.5")
    assert differing(before, after) == ["policy_model.responses_api_models.openai_model.sampling_overrides.temperature"]
    assert digest_of(before) != digest_of(after)


def test_where_things_are_under_which_key_and_how_fast_are_the_same_run() -> None:
    elsewhere = ["+policy_base_url=http://other:2/v1", "+policy_api_key=EMPTY", "+policy_model_name=m"]
    pace = "++policy_model.responses_api_models.openai_model.max_concurrency=3"
    place = "++policy_model.responses_api_models.openai_model.port=4242"
    assert differing(_digests(), _digests(pace, place, given=elsewhere)) == []
    assert not any("key" in path.rpartition(".")[2] for path in _digests())


def test_another_model_and_another_sandbox_are_another_run() -> None:
    other = [*_GIVEN[:2], "+policy_model_name=n"]
    assert differing(_digests(), _digests(given=other)) == ["policy_model.responses_api_models.openai_model.model"]
    sandboxes = [_digests(f"+sandbox.docker.create.network={network}") for network in ("internal", "none")]
    assert differing(*sandboxes) == ["sandbox.docker.create.network"]
