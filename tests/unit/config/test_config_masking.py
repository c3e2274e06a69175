# ruff: noqa: E501
import pytest

from gym.config import masked
from gym.config.masking import MASK, is_secret_key


@pytest.mark.parametrize(
    "key",
    ["api_key", "policy_api_key", "apiKey", "API_KEY", "api-key", "token", "hf_token", "access_token", "password", "db_password", "client_secret", "secret",
     "Authorization", "secret_key", "credentials", "accessToken"],
)  # fmt: skip
def test_keys_of_secrets(key):
    assert is_secret_key(key)
    assert masked({key: "v4lue-1"}) == {key: MASK}


@pytest.mark.parametrize(
    "key",
    ["max_output_tokens", "max_tokens", "answer_key", "token_id_capture", "prompt_token_ids", "generation_token_ids", "eos_token", "pad_token", "key",
     "tokenizer", "token_file", "primary_key", "secretary", "password_file"],
)  # fmt: skip
def test_keys_that_only_look_like_it(key):
    assert not is_secret_key(key)
    assert masked({key: "v4lue-1"}) == {key: "v4lue-1"}


def test_a_secret_is_masked_wherever_it_turns_up():
    data = {"policy_api_key": "sk-12345", "url": "http://h?k=sk-12345&x=1", "deep": [{"headers": {"X-Any": "Bearer sk-12345"}}]}
    assert masked(data) == {"policy_api_key": MASK, "url": f"http://h?k={MASK}&x=1", "deep": [{"headers": {"X-Any": f"Bearer {MASK}"}}]}


def test_placeholders_and_empty_values_stay_readable():
    data = {"api_key": "EMPTY", "b": {"api_key": "", "c_token": None}, "d": "EMPTY is fine", "port": 3}
    assert masked(data) == data


def test_lists_and_numbers_under_a_secret_key():
    assert masked({"api_key": ["one-key-1", "two-key-2"], "password": 12345678}) == {"api_key": [MASK, MASK], "password": MASK}


def test_the_original_is_left_alone():
    data = {"api_key": "abcdefgh", "x": {"y": ["abcdefgh"]}}
    masked(data)
    assert data == {"api_key": "abcdefgh", "x": {"y": ["abcdefgh"]}}
