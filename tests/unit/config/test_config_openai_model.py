"""The address of an endpoint is checked before anything starts."""

import pytest

from gym.config.loading import examine

SETTINGS = ["policy_api_key=EMPTY", "policy_model_name=m"]


@pytest.mark.parametrize("url", ["http://127.0.0.1:8000/v1", "https://api.example.com/v1", "http://[::1]:8000/v1"])
def test_an_address(url):
    examined = examine([], [f'policy_base_url="{url}"', *SETTINGS], model_type="openai_model", env={})
    assert examined.problems == []


@pytest.mark.parametrize("url", ["nonsense", "127.0.0.1:8000/v1", "ftp://host/v1", "http://", "http://host:port/v1", "http:///v1"])
def test_no_address(url):
    examined = examine([], [f'policy_base_url="{url}"', *SETTINGS], model_type="openai_model", env={})
    (problem,) = examined.problems
    assert problem.key_path.endswith("openai_model.base_url")
    assert "is not an address that can be called" in problem.message
