"""How long one call to an environment server may take."""

import pytest

from gym.config.schema import EnvironmentServerConfig


@pytest.mark.parametrize(
    ("limits", "seconds"),
    [
        ({}, None),
        ({"queue_timeout_seconds": 5}, None),
        ({"default_episode_timeout_seconds": 20, "cleanup_timeout_seconds": 10}, 60),
        ({"default_episode_timeout_seconds": 1_000, "queue_timeout_seconds": 400, "cleanup_timeout_seconds": 200}, 2_020),
        ({"default_episode_timeout_seconds": 21_600}, 22_260),
    ],
)
def test_it_is_all_the_limits_and_some_time_for_the_way(limits: dict[str, float], seconds: float | None) -> None:
    assert EnvironmentServerConfig.model_validate(limits).longest_run_seconds == seconds
