"""What a command-line harness is told."""

from typing import Any

import pytest

from gym.harness.prompt import prompt_of, told_apart
from gym.protocol.errors import ContractError
from gym.protocol.responses import ResponseCreateParams


def told(value: Any, **more: Any) -> str:
    return prompt_of(ResponseCreateParams.model_validate({"input": value, **more}), "Harness")


def test_everything_is_told_in_order() -> None:
    items = [{"role": "system", "content": "Be good."}, {"role": "user", "content": [{"type": "input_text", "text": "Mend it."}]}]
    assert told(items, instructions="First.") == "First.\n\nBe good.\n\nMend it."
    assert told("-x") == "-x"


def test_instructions_are_told_apart() -> None:
    def apart(items: list[dict[str, str]], **more: Any) -> tuple[str, str]:
        return told_apart(ResponseCreateParams.model_validate({"input": items, **more}), "Harness")

    system, user = {"role": "system", "content": "Be good."}, {"role": "user", "content": "Mend it."}
    assert apart([system, user], instructions="First.") == ("First.\n\nBe good.", "Mend it.")
    assert apart([user, system]) == ("", "Mend it.\n\nBe good."), "the order is kept"
    assert apart([system]) == ("", "Be good."), "a task is never empty"


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (" ", "was told nothing"),
        ([], "was told nothing"),
        ("a\0b", "NUL"),
        ([{"role": "assistant", "content": "hi"}], "message of role 'assistant'"),
        ([{"type": "function_call", "name": "x"}], "a function_call of role None"),
        ([{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}], "has input_image"),
    ],
)
def test_what_cannot_be_told_is_refused(value: Any, reason: str) -> None:
    with pytest.raises(ContractError, match=reason) as raised:
        told(value)
    assert raised.value.status == 422


def test_tools_of_the_task_are_refused() -> None:
    assert told("x", tools=[]) == "x"
    with pytest.raises(ContractError, match="brings its own tools"):
        told("x", tools=[{"type": "function", "name": "f"}])


def test_tools_that_were_granted_need_no_telling() -> None:
    params = ResponseCreateParams.model_validate({"input": "x", "tools": [{"type": "function", "name": name} for name in ("f", "g")]})
    assert prompt_of(params, "X", {"f", "g"}) == "x"
    with pytest.raises(ContractError, match=r"^X brings its own tools, but the task offers g in 'tools', and grants none such over MCP$"):
        prompt_of(params, "X", {"f"})
