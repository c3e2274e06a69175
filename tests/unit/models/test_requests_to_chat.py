"""Requests of the other dialects as Chat Completions requests, and replies that come back as history."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gym.models.dialects.errors import UnsupportedRequest
from gym.models.dialects.from_chat import anthropic_to_items, chat_to_message, message_to_items, messages_to_items
from gym.models.dialects.histories import items_to_messages, turns_to_messages
from gym.models.dialects.to_chat import Options, messages_to_chat, responses_to_chat, with_metadata
from tests.unit.models.dialect_examples import ARGUMENTS, IMAGES, TEXT, assistants

EXAMPLES = settings(deadline=None, max_examples=100)
OPTIONS = Options()


def responses(**fields: Any) -> dict[str, Any]:
    return responses_to_chat({"model": "m", "input": "q", **fields}, OPTIONS)


def messages(**fields: Any) -> dict[str, Any]:
    return messages_to_chat({"model": "m", "max_tokens": 5, "messages": [{"role": "user", "content": "q"}], **fields}, OPTIONS)


def same(message: dict[str, Any]) -> dict[str, Any]:
    """An assistant message, with what may be said in two ways said in one."""
    thought = message.get("reasoning_content") or message.get("reasoning")
    held = {"content": message.get("content") or None, "reasoning_content": thought, "refusal": message.get("refusal")}
    return {key: value for key, value in {**held, "tool_calls": message.get("tool_calls")}.items() if value}


@EXAMPLES
@given(assistants())
def test_what_a_model_said_comes_back_from_responses_as_it_was(message: Any) -> None:
    (back,) = items_to_messages(message_to_items(message), OPTIONS)
    assert same(back) == same(message)


@EXAMPLES
@given(assistants(ARGUMENTS).filter(lambda message: not message.get("refusal")))
def test_and_from_messages(message: Any) -> None:
    content = chat_to_message({"id": "c", "choices": [{"message": message}]}, {})["content"]
    (back,) = turns_to_messages([{"role": "assistant", "content": content}], OPTIONS)
    assert same(back) == same(message)


@pytest.mark.parametrize("arguments", ["", "{bad", "[1]", '"text"', "null"])
def test_arguments_that_are_no_object_come_back_too(arguments: str) -> None:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": arguments}}
    content = chat_to_message({"choices": [{"message": {"role": "assistant", "tool_calls": [call]}}]}, {})["content"]
    (back,) = turns_to_messages([{"role": "assistant", "content": content}], OPTIONS)
    assert back["tool_calls"][0]["function"]["arguments"] == (arguments or "{}")


@EXAMPLES
@given(TEXT, IMAGES, TEXT)
def test_images_travel_by_url_and_as_base64(before: str, url: str, after: str) -> None:
    image: dict[str, Any] = {"type": "image_url", "image_url": {"url": url, "detail": "auto"}}
    content = [{"type": "text", "text": before}, image, {"type": "text", "text": after}]
    said = [{"role": "user", "content": content}, {"role": "tool", "tool_call_id": "c", "content": content}]
    assert items_to_messages(messages_to_items(said), OPTIONS) == said
    source: dict[str, Any] = {"type": "url", "url": url}
    if url.startswith("data:"):
        kind, _, data = url[5:].partition(";base64,")
        source = {"type": "base64", "media_type": kind, "data": data}
    blocks = [content[0], {"type": "image", "source": source}, content[2]]
    turn = [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": blocks}, *blocks]}]
    plain = [content[0], {"type": "image_url", "image_url": {"url": url}}, content[2]]
    assert turns_to_messages(turn, OPTIONS) == [{"role": "tool", "tool_call_id": "c", "content": plain}, {"role": "user", "content": plain}]


def test_a_turn_of_several_items_is_one_message_with_its_results_behind_it() -> None:
    call = {"type": "function_call", "name": "f", "arguments": "{}"}
    items = [
        {"role": "user", "content": "q"},
        {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}], "encrypted_content": "x"},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "I call"}]},
        {**call, "call_id": "a"},
        {**call, "call_id": "b"},
        {"type": "function_call_output", "call_id": "b", "output": "2"},
        {"type": "function_call_output", "call_id": "a", "output": [{"type": "input_text", "text": "1"}]},
        {"role": "developer", "content": "now"},
    ]
    made = items_to_messages(items, OPTIONS, instructions="be brief")
    assert [message["role"] for message in made] == ["system", "user", "assistant", "tool", "tool", "system"]
    assert (made[2]["content"], made[2]["reasoning_content"], [call["id"] for call in made[2]["tool_calls"]]) == (
        "I call",
        "hm",
        ["a", "b"],
    )
    assert [(message["tool_call_id"], message["content"]) for message in made[3:5]] == [("b", "2"), ("a", "1")]
    assert "reasoning_content" not in items_to_messages(items, Options(reasoning_field=None))[1]


def test_a_user_turn_of_messages_with_results_and_text() -> None:
    turn = [
        {"type": "text", "text": "and then?"},
        {"type": "tool_result", "tool_use_id": "a", "content": "1"},
        {"type": "tool_result", "tool_use_id": "b", "is_error": True, "content": [{"type": "text", "text": "no such file"}]},
        {"type": "tool_result", "tool_use_id": "c"},
    ]
    system = [
        {"type": "text", "text": "x-anthropic-billing-header: 1"},
        {"type": "text", "text": "be brief", "cache_control": {"type": "e"}},
    ]
    made = turns_to_messages([{"role": "user", "content": turn}], OPTIONS, system=system)
    assert made == [
        {"role": "system", "content": "be brief"},
        {"role": "tool", "tool_call_id": "a", "content": "1"},
        {"role": "tool", "tool_call_id": "b", "content": "Error: no such file"},
        {"role": "tool", "tool_call_id": "c", "content": ""},
        {"role": "user", "content": "and then?"},
    ]
    assert [item["type"] for item in anthropic_to_items([{"role": "user", "content": turn}])] == [*["function_call_output"] * 3, "message"]


TOOL = {"type": "function", "name": "f", "description": "d", "parameters": {"type": "object"}, "strict": None}
CHAT_TOOL = {"type": "function", "function": {"name": "f", "description": "d", "parameters": {"type": "object"}}}
NAMED = {"type": "function", "function": {"name": "f"}}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"max_output_tokens": 9}, {"max_completion_tokens": 9}),
        ({"reasoning": {"effort": "low", "summary": "auto"}}, {"reasoning_effort": "low"}),
        (
            {"text": {"format": {"type": "json_object"}, "verbosity": "low"}},
            {"response_format": {"type": "json_object"}, "verbosity": "low"},
        ),
        (
            {"text": {"format": {"type": "json_schema", "name": "n", "schema": {}, "strict": True}}},
            {"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {}, "strict": True}}},
        ),
        ({"tools": [TOOL], "parallel_tool_calls": False}, {"tools": [CHAT_TOOL], "parallel_tool_calls": False}),
        ({"tools": [], "parallel_tool_calls": False, "tool_choice": "auto"}, {}),
        ({"tools": [TOOL], "tool_choice": "required"}, {"tools": [CHAT_TOOL], "tool_choice": "required"}),
        ({"tools": [TOOL], "tool_choice": {"type": "function", "name": "f"}}, {"tools": [CHAT_TOOL], "tool_choice": NAMED}),
        (
            {"tools": [TOOL, {**TOOL, "name": "g"}], "tool_choice": {"type": "allowed_tools", "mode": "required", "tools": [TOOL]}},
            {"tools": [CHAT_TOOL], "tool_choice": "required"},
        ),
        ({"stream": True, "stream_options": {"x": 1}}, {"stream": True, "stream_options": {"include_usage": True}}),
        ({"top_logprobs": 3}, {"logprobs": True, "top_logprobs": 3}),
        ({"top_k": 5, "return_token_ids": True, "temperature": 0, "user": None}, {"top_k": 5, "return_token_ids": True, "temperature": 0}),
        ({"store": False, "previous_response_id": None, "truncation": "auto", "include": ["reasoning.encrypted_content"]}, {}),
        (
            {"metadata": {"extra_body": '{"top_k": 1}', "chat_template_kwargs": '{"a": 1}', "other": "x"}},
            {"top_k": 1, "chat_template_kwargs": {"a": 1}},
        ),
    ],
)
def test_fields_of_responses(given: Any, expected: Any) -> None:
    assert responses(**given) == {"model": "m", "messages": [{"role": "user", "content": "q"}], **expected}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"stop_sequences": ["x"], "temperature": 1, "top_k": 4}, {"stop": ["x"], "temperature": 1, "top_k": 4}),
        ({"thinking": {"type": "disabled"}}, {"reasoning_effort": "none"}),
        ({"thinking": {"type": "enabled", "budget_tokens": 99}}, {}),
        ({"output_config": {"effort": "high"}}, {"reasoning_effort": "high"}),
        ({"tools": [{"name": "f", "description": "d", "input_schema": {"type": "object"}}]}, {"tools": [CHAT_TOOL]}),
        *(
            (
                {"tools": [{"name": "f", "description": "d", "input_schema": {"type": "object"}}], "tool_choice": choice},
                {"tools": [CHAT_TOOL], **made},
            )
            for choice, made in (
                ({"type": "any"}, {"tool_choice": "required"}),
                ({"type": "auto", "disable_parallel_tool_use": True}, {"tool_choice": "auto", "parallel_tool_calls": False}),
                ({"type": "tool", "name": "f"}, {"tool_choice": NAMED}),
                ({"type": "none"}, {"tool_choice": "none"}),
            )
        ),
        ({"metadata": {"user_id": "u"}, "service_tier": "auto", "context_management": {"edits": []}}, {}),
        ({"stream": True}, {"stream": True, "stream_options": {"include_usage": True}}),
    ],
)
def test_fields_of_messages(given: Any, expected: Any) -> None:
    assert messages(**given) == {"model": "m", "max_completion_tokens": 5, "messages": [{"role": "user", "content": "q"}], **expected}


@pytest.mark.parametrize(
    ("make", "given", "param"),
    [
        (responses, {"previous_response_id": "r"}, "previous_response_id"),
        (responses, {"store": True}, "store"),
        (responses, {"background": True}, "background"),
        (responses, {"tools": [TOOL, {"type": "web_search"}]}, "tools[1]"),
        (responses, {"tool_choice": {"type": "web_search_preview"}}, "tool_choice"),
        (responses, {"input": [{"type": "item_reference", "id": "x"}]}, "input[0]"),
        (responses, {"input": [{"role": "user", "content": [{"type": "input_image", "file_id": "f"}]}]}, "input[0].content[0]"),
        (responses, {"input": [{"type": "function_call", "name": "f"}]}, "input[0].call_id"),
        (responses, {"input": 3}, "input"),
        (responses, {"input": [3]}, "input[0]"),
        (responses, {"n": 2}, "n"),
        (responses, {"text": 3}, "text"),
        (responses, {"text": {"format": {"type": "grammar"}}}, "text.format"),
        (responses, {"metadata": {"extra_body": "{"}}, "metadata.extra_body"),
        (responses, {"metadata": {"extra_body": '{"messages": []}'}}, "metadata.extra_body"),
        (messages, {"mcp_servers": [{}]}, "mcp_servers"),
        (messages, {"tools": [{"type": "web_search_20250305", "name": "w"}]}, "tools[0]"),
        (messages, {"messages": [{"role": "user", "content": [{"type": "server_tool_use"}]}]}, "messages[0].content[0]"),
        (messages, {"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "I"}]}, "messages"),
        (messages, {"messages": None}, "messages"),
    ],
)
def test_what_cannot_be_had_is_refused_by_name(make: Any, given: Any, param: str) -> None:
    with pytest.raises(UnsupportedRequest) as caught:
        make(**given)
    assert (caught.value.param, caught.value.status) == (param, 422)
    assert caught.value.message.startswith(f"{param}: ")


def test_what_differs_between_endpoints() -> None:
    turns = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "I"}]
    options = Options(max_tokens_field="max_tokens", continue_final_message=True, disabled_thinking_effort=None)
    chat = messages_to_chat({"messages": turns, "max_tokens": 5, "thinking": {"type": "disabled"}}, options)
    assert chat == {"messages": turns, "max_tokens": 5, "continue_final_message": True, "add_generation_prompt": False}


@EXAMPLES
@given(st.dictionaries(TEXT, st.booleans()), st.dictionaries(TEXT, st.booleans()))
def test_template_arguments_of_the_metadata_are_laid_over_those_of_the_request(own: Any, given: Any) -> None:
    merged = with_metadata({"chat_template_kwargs": own}, {"chat_template_kwargs": json.dumps(given)})
    assert merged == {"chat_template_kwargs": {**own, **given}}
