"""`gym dataset export`: what each form says of a rollout, what is left out, and that nothing is half written."""

import json
import tracemalloc
from pathlib import Path
from typing import Any

import orjson
import pyarrow.parquet as pq
import pytest
from atif import Trajectory
from hypothesis import given, settings
from hypothesis import strategies as st

from gym.cli.main import run as gym
from gym.config.errors import UserError
from gym.models.calls import CallNotes, ModelCall, TokenIds
from gym.models.tokens import TOKEN_FIELDS, training_of
from gym.rollouts.export import ExportOptions, Format, Summary, export
from gym.rollouts.export.rollout import Rollout, Unusable
from gym.rollouts.export.turns import LiftedRow, load_row, turns_of

TOOL = {
    "type": "function",
    "name": "weather",
    "description": "Tell it.",
    "parameters": {"type": "object", "properties": {}},
    "strict": True,
}
ASKED = [{"role": "developer", "content": "use the tool"}, {"role": "user", "content": [{"type": "input_text", "text": "Oslo?"}]}]
CALL = {"type": "function_call", "id": "fc", "call_id": "call_1", "name": "weather", "arguments": '{"city": "Oslo"}'}
THOUGHT = {"type": "reasoning", "id": "rs", "summary": [], "content": [{"type": "reasoning_text", "text": "ask it"}]}
SEEN = {"type": "function_call_output", "call_id": "call_1", "output": "cold — 5°"}
SAID = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "It is cold.", "annotations": []}]}


def call(number: int, history: list[Any], reply: list[Any], prompt: list[int], generation: list[int]) -> ModelCall:
    notes = CallNotes(tokens=TokenIds(prompt, generation, [-0.25 * (place + 1) for place in range(len(generation))]))
    return ModelCall(f"c{number}", number, "responses", False, {"input": history}, {"id": "r", "output": reply}, 200, True, notes=notes)


def training_items() -> list[dict[str, Any]]:
    """The items of a rollout of two calls, as they get into a row."""
    first, second = [THOUGHT, CALL], [SAID]
    calls = [call(0, ASKED, first, [1, 2, 3], [4, 5]), call(1, [*ASKED, *first, SEEN], second, [1, 2, 3, 4, 5, 6, 7], [8, 9, 10])]
    training = training_of(calls, {"id": "x", "output": second})
    assert training.masked_reason is None
    assert training.items is not None
    return training.items


def row(index: int = 0, *, items: list[dict[str, Any]] | None = None, **more: Any) -> dict[str, Any]:
    return {
        "responses_create_params": {"input": ASKED, "tools": [TOOL]},
        "response": {
            "id": "resp",
            "model": "small",
            "status": "completed",
            "output": training_items() if items is None else items,
            "usage": {"input_tokens": 10, "input_tokens_details": {"cached_tokens": 4}, "output_tokens": 5, "total_tokens": 15},
        },
        "reward": 1.0,
        "mask_sample": False,
        "_ng_task_index": index,
        "_ng_rollout_index": 0,
        "_ng_rollout_id": f"{index}-0",
        "_ng_attempt_index": 0,
        "_ng_run_id": "run",
        "_ng_task_id": {"taskset": "weather", "task_id": f"t{index}"},
        "agent_ref": {"type": "responses_api_agents", "name": "agent"},
        **more,
    }


class Bench:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.input = folder / "out.jsonl"

    def write(self, *rows: Any) -> None:
        self.input.write_bytes(b"".join(each if isinstance(each, bytes) else orjson.dumps(each) + b"\n" for each in rows))

    def export(self, form: str, name: str, **more: Any) -> Summary:
        return export(ExportOptions(self.input, self.folder / name, Format(form), **more))

    def lines(self, form: str, **more: Any) -> list[dict[str, Any]]:
        self.export(form, "export.jsonl", **more)
        return [orjson.loads(line) for line in (self.folder / "export.jsonl").read_bytes().splitlines()]

    def names(self) -> list[str]:
        return sorted(path.name for path in self.folder.iterdir() if path != self.input)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_nemo_rl_gets_the_rows_as_they_are(bench: Bench) -> None:
    plain = row(1, items=[CALL, SEEN, SAID])
    bench.write(row(0), plain, row(2, reward=None))
    summary = bench.export("nemo-rl", "export.jsonl")
    assert (bench.folder / "export.jsonl").read_bytes() == orjson.dumps(row(0)) + b"\n"
    assert (summary.written, summary.skipped) == (1, {"no token ids": [2], "no reward": [3]})


def test_verl_gets_its_columns_and_the_tokens_as_one_sequence(bench: Bench) -> None:
    bench.write(row(0, expected_answer=[5]), row(1, items=[SAID]))
    bench.export("verl", "export.parquet")
    first, second = pq.read_table(bench.folder / "export.parquet").to_pylist()
    assert first["data_source"] == first["ability"] == "weather"
    assert first["prompt"] == [{"role": "system", "content": "use the tool"}, {"role": "user", "content": "Oslo?"}]
    assert first["reward_model"] == {"style": "rule", "ground_truth": "[5]"}
    assert first["extra_info"] == {"index": 0, "rollout_id": "0-0", "task_id": "t0", "masked": None}
    assert [message["role"] for message in first["messages"]] == ["system", "user", "assistant", "tool", "assistant"]
    assert first["messages"][2]["tool_calls"][0]["function"] == {"name": "weather", "arguments": '{"city": "Oslo"}'}
    assert (first["prompt_ids"], first["response_ids"]) == ([1, 2, 3], [4, 5, 6, 7, 8, 9, 10])
    assert first["response_mask"] == [1, 1, 0, 0, 1, 1, 1]
    assert first["response_logprobs"] == [-0.25, -0.5, 0.0, 0.0, -0.25, -0.5, -0.75]
    assert second["response_ids"] is None
    assert second["reward_score"] == 1.0


def test_trl_gets_messages_with_arguments_as_objects(bench: Bench) -> None:
    bench.write(row())
    (written,) = bench.lines("trl")
    assert [message["role"] for message in written["prompt"]] == ["system", "user"]
    asked, seen, said = written["completion"]
    assert asked["tool_calls"][0]["function"] == {"name": "weather", "arguments": {"city": "Oslo"}}
    assert (asked["content"], asked["reasoning_content"]) == ("", "ask it")
    assert (seen["role"], seen["tool_call_id"], seen["content"]) == ("tool", "call_1", "cold — 5°")
    assert said == {"role": "assistant", "content": "It is cold."}
    assert json.loads(written["tools"])[0]["function"]["name"] == "weather"
    assert written["reward"] == 1.0


def test_trl_gets_token_ids_where_they_are_asked_for(bench: Bench) -> None:
    bench.write(row(), row(1, items=[SAID]))
    (written,) = bench.lines("trl", token_ids=True)
    assert written["input_ids"] == [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]
    assert written["labels"] == [-100, -100, -100, 4, 5, -100, -100, 8, 9, 10]
    assert "prompt" not in written  # TRL would tokenize it anew


def test_atif_documents_are_what_the_package_reads(bench: Bench) -> None:
    bench.write(row(), row(1, items=[CALL, SEEN, SAID], reward=None), row(2))
    bench.export("atif", "documents")
    assert sorted(path.name for path in (bench.folder / "documents").iterdir()) == ["0-0.json", "1-0.json", "2-0.json"]
    read = Trajectory.model_validate_json((bench.folder / "documents/0-0.json").read_bytes())
    assert read.schema_version == "ATIF-v1.7"
    assert [(step.source, step.message) for step in read.steps] == [
        ("system", "use the tool"),
        ("user", "Oslo?"),
        ("agent", ""),
        ("agent", "It is cold."),
    ]
    asked, said = read.steps[2:]
    assert asked.reasoning_content == "ask it"
    assert asked.tool_calls is not None
    assert asked.tool_calls[0].arguments == {"city": "Oslo"}
    assert asked.observation is not None
    assert [(result.source_call_id, result.content) for result in asked.observation.results] == [("call_1", "cold — 5°")]
    assert said.metrics is not None
    assert (said.metrics.prompt_token_ids, said.metrics.completion_token_ids) == ([1, 2, 3, 4, 5, 6, 7], [8, 9, 10])
    assert said.metrics.logprobs == [-0.25, -0.5, -0.75]
    assert read.final_metrics is not None
    assert (read.final_metrics.total_prompt_tokens, read.final_metrics.total_cached_tokens) == (10, 4)
    without = Trajectory.model_validate_json((bench.folder / "documents/1-0.json").read_bytes())
    assert [step.metrics for step in without.steps] == [None] * 4
    lines = bench.lines("atif")
    assert [Trajectory.model_validate(line).trajectory_id for line in lines] == ["0-0", "1-0", "2-0"]


@pytest.mark.parametrize(
    "items",
    [
        pytest.param(
            [CALL, {**CALL, "call_id": "call_2", "arguments": "no json"}, SEEN, {**SEEN, "call_id": "call_2"}, SAID], id="parallel"
        ),
        pytest.param([{**SEEN, "call_id": "elsewhere"}, SAID], id="result-of-no-call"),
        pytest.param([SAID, {"role": "user", "content": "go on"}, SAID], id="user-in-between"),
        pytest.param([{"type": "message", "role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]}], id="refusal"),
        pytest.param([SAID, THOUGHT], id="thought-at-the-end"),
    ],
)
def test_atif_takes_every_order_of_items(bench: Bench, items: list[Any]) -> None:
    bench.write(row(items=items))
    (written,) = bench.lines("atif")
    Trajectory.model_validate(written)


@pytest.mark.parametrize("name", ["../escaped", "/tmp/escaped", "a/b", "..", "x" * 300, "zeile\n", "\u00e4", ""])
def test_documents_stay_in_their_folder_whatever_rollouts_are_called(bench: Bench, name: str) -> None:
    bench.write(row(_ng_rollout_id=name), row(1, _ng_rollout_id=f"{name}?"))
    assert bench.export("atif", "documents").written == 2
    assert bench.names() == ["documents"]
    assert len(list((bench.folder / "documents").glob("*.json"))) == 2


def test_predictions_are_one_for_each_instance(bench: Bench) -> None:
    patch = {"instance_id": "a__b-1", "model_patch": "diff --git a/x b/x\n"}
    bench.write(
        row(0, **patch, _ng_rollout_index=1),
        row(0, **patch),
        row(0, **patch),
        row(1, instance_id="a__b-2", model_patch=""),
        row(2, instance_id="a__b-3"),
        row(3, instance_id="a__b-4", model_patch="\ufffd", model_patch_base64="/w=="),
        row(4, items=[SAID]),
    )
    summary = bench.export("swebench-predictions", "export.jsonl")
    assert [orjson.loads(line) for line in (bench.folder / "export.jsonl").read_bytes().splitlines()] == [
        {"instance_id": "a__b-1", "model_name_or_path": "small", "model_patch": "diff --git a/x b/x\n"},
        {"instance_id": "a__b-2", "model_name_or_path": "small", "model_patch": ""},
    ]
    assert summary.skipped == {
        "not rollout 0 of its task (--rollout-index)": [1],
        "an instance that stands there already": [3],
        "no model_patch": [5],
        "a patch that is not UTF-8": [6],
        "no instance_id": [7],
    }


@pytest.mark.parametrize("form", ["nemo-rl", "trl", "atif"])
def test_masked_rows_are_left_out_unless_asked_for(bench: Bench, form: str) -> None:
    masked = row(1, mask_sample=True, _ng_token_capture={"masked_reason": "retokenized"})
    bench.write(row(0), masked, row(2, mask_sample=True, failure_kind="verifier_error"))
    assert bench.export(form, "export.jsonl").skipped == {"masked: retokenized": [2], "masked: verifier_error": [3]}
    assert bench.export(form, "all.jsonl", include_masked=True).written == 3


def test_token_ids_that_do_not_continue_are_left_out(bench: Bench) -> None:
    broken = row(1)
    broken["response"]["output"][-1]["prompt_token_ids"][1] = 77
    uneven = row(2)
    uneven["response"]["output"][-1]["generation_log_probs"].pop()
    bench.write(row(0), broken, uneven)
    for form, name in (("nemo-rl", "a.jsonl"), ("verl", "a.parquet")):
        summary = bench.export(form, name)
        assert (summary.written, summary.skipped) == (1, {"token ids that cannot be trained on": [2, 3]})


def test_what_messages_cannot_say_is_left_out(bench: Bench) -> None:
    picture = {"role": "user", "content": [{"type": "input_image", "image_url": "data:image/png;base64,AA=="}]}
    bench.write(row(0), row(1, responses_create_params={"input": [picture]}), row(2, items=[{"type": "web_search_call"}]), row(3, items=[]))
    assert bench.export("trl", "a.jsonl").skipped == {
        "content that is not text": [2],
        "what Chat messages cannot say": [3],
        "no answer of the model": [4],
    }


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b'{"responses_create_params": {\n', ":2: not JSON"),
        (b"[]\n", ":2: the row is a list"),
        (orjson.dumps({"responses_create_params": {"input": "x"}}), ":2: no rollout: it has no response"),
        (orjson.dumps(row(items="text")), ":2: no rollout: its response.output"),  # type: ignore[arg-type]
        (orjson.dumps(row(reward="1")), ":2: no rollout: its reward is '1'"),
        (orjson.dumps(row(agent_ref="agent")), ":2: no rollout: its agent_ref is 'agent'"),
    ],
)
@pytest.mark.parametrize(("form", "name"), [("nemo-rl", "a.jsonl"), ("verl", "a.parquet"), ("atif", "a")])
def test_a_line_that_is_no_rollout_ends_it_and_nothing_is_written(bench: Bench, line: bytes, said: str, form: str, name: str) -> None:
    bench.write(row(), line)
    with pytest.raises(UserError) as raised:
        bench.export(form, name)
    assert f"{bench.input}{said}" in str(raised.value)
    assert "\n" not in str(raised.value)
    assert bench.names() == []


def test_what_was_there_stays_when_nothing_can_be_written(bench: Bench) -> None:
    bench.write(row(items=[SAID]))
    (bench.folder / "a.jsonl").write_text("before")
    with pytest.raises(UserError, match="nothing was written: skipped 1: no token ids"):
        bench.export("nemo-rl", "a.jsonl", overwrite=True)
    assert (bench.folder / "a.jsonl").read_text() == "before"


def test_an_output_is_replaced_only_when_asked_and_only_by_its_like(bench: Bench) -> None:
    bench.write(row())
    for form, name in (("trl", "a.jsonl"), ("verl", "a.parquet"), ("atif", "a")):
        bench.export(form, name)
        with pytest.raises(UserError, match="exists already"):
            bench.export(form, name)
        bench.export(form, name, overwrite=True)
    (bench.folder / "mine").mkdir()
    (bench.folder / "mine/notes.txt").write_text("mine")
    with pytest.raises(UserError, match="no earlier export"):
        bench.export("atif", "mine", overwrite=True)
    with pytest.raises(UserError, match="is the input"):
        bench.export("trl", "out.jsonl", overwrite=True)
    with pytest.raises(UserError, match="does not exist"):
        bench.export("trl", "nowhere/a.jsonl")
    with pytest.raises(UserError, match=r"verl is written as a .parquet file"):
        bench.export("verl", "b.jsonl")
    with pytest.raises(UserError, match="--token-ids is for --format trl"):
        bench.export("verl", "b.parquet", token_ids=True)
    assert bench.names() == ["a", "a.jsonl", "a.parquet", "mine"]


def test_the_command_accounts_for_every_row(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    bench.write(row(), row(1, items=[SAID]), row(2, items=[SAID]))
    out = bench.folder / "a.jsonl"
    arguments = ["dataset", "export", "--input", str(bench.input), "--output", str(out), "--format"]
    assert gym([*arguments, "nemo-rl"]) == 0
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.splitlines() == [f"wrote 1 of 3 rollouts to {out} (nemo-rl)", "skipped 2: no token ids (first at line 2)"]
    assert gym([*arguments, "nemo-rl"]) == 1
    assert "exists already" in capsys.readouterr().err
    assert gym([*arguments, "other"]) == 2


def rollout_of(line: bytes) -> Rollout:
    loaded = load_row(line)
    assert isinstance(loaded, dict)
    return Rollout(loaded, line, loaded.turns if isinstance(loaded, LiftedRow) else None)


def plainly(line: bytes) -> Any:
    try:
        return turns_of(Rollout(orjson.loads(line), line, None))
    except Unusable:
        return None


TOKENS = st.lists(st.integers(0, 150_000), min_size=1, max_size=4)


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.tuples(TOKENS, TOKENS), max_size=4),
    st.sampled_from([orjson.dumps, lambda value: json.dumps(value).encode(), lambda value: json.dumps(value, indent=1).encode()]),
    st.data(),
)
def test_token_ids_taken_from_the_text_are_those_that_parsing_gives(pairs: list[Any], dumps: Any, data: st.DataObject) -> None:
    known: list[int] = []
    items: list[dict[str, Any]] = []
    for added, generation in pairs:
        prompt = known + added
        tokens = dict(zip(TOKEN_FIELDS, (prompt, generation, [-0.5] * len(generation)), strict=True))
        items += [{**SAID, **tokens}, {**SEEN, "output": 'a "prompt_token_ids": [1]'}]
        known = prompt + generation
    change = data.draw(st.sampled_from(["none", "token", "digit", "field", "null", "elsewhere", "number", "float"]))
    carrier = data.draw(st.sampled_from(items)) if items else {}
    if change == "token" and "prompt_token_ids" in carrier:
        carrier["prompt_token_ids"] = [*carrier["prompt_token_ids"][:-1], 7]
    elif change == "digit" and "generation_token_ids" in carrier:
        carrier["generation_token_ids"] = [*carrier["generation_token_ids"][:-1], carrier["generation_token_ids"][-1] * 10]
    elif change == "field":
        carrier.pop("generation_log_probs", None)
    elif change == "null" and "generation_log_probs" in carrier:
        carrier["generation_log_probs"][0] = None
    elif change == "number":
        carrier["prompt_token_ids"] = 0
    elif change == "float":
        carrier["generation_token_ids"] = [1.5]
    given_row = row(items=items, **({"prompt_token_ids": [1, 2]} if change == "elsewhere" else {}))
    line = dumps(given_row)
    rollout = rollout_of(line)
    if rollout.lifted is None:
        assert rollout.row == given_row
    else:
        assert plainly(line) == rollout.lifted
        bare = [{name: value for name, value in item.items() if name not in TOKEN_FIELDS} for item in items]
        assert rollout.row == row(items=bare)
    if change == "none" and items and dumps is not None and b"\n" not in line:
        assert rollout.lifted is not None


def items_with(*calls: tuple[list[int], list[int]]) -> list[dict[str, Any]]:
    return [
        {**SAID, **dict(zip(TOKEN_FIELDS, (prompt, generation, [-0.5] * len(generation)), strict=True))} for prompt, generation in calls
    ]


def test_a_token_that_only_begins_like_the_one_before_is_another() -> None:
    rollout = rollout_of(orjson.dumps(row(items=items_with(([1, 2], [5]), ([1, 2, 50], [6])))))
    with pytest.raises(Unusable):
        turns_of(rollout)


def test_arrays_elsewhere_are_not_taken_for_those_of_an_item() -> None:
    odd = row(
        items=[{**SAID, **dict(zip(TOKEN_FIELDS, (0, 1, 2), strict=True))}], **dict(zip(TOKEN_FIELDS, ([1], [2], [-0.5]), strict=True))
    )
    rollout = rollout_of(orjson.dumps(odd))
    assert rollout.row == odd
    with pytest.raises(Unusable):
        turns_of(rollout)


def test_a_long_rollout_costs_little_more_than_its_line(bench: Bench) -> None:
    known: list[int] = list(range(20_000))
    items: list[dict[str, Any]] = []
    for number in range(100):
        generation = [number + 1] * 100
        items.append({**SAID, **dict(zip(TOKEN_FIELDS, (known, generation, [-0.5] * 100), strict=True))})
        known = known + generation
    bench.write(row(items=items))
    size = bench.input.stat().st_size
    assert size > 12_000_000
    tracemalloc.start()
    try:
        bench.export("verl", "a.parquet")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 4 * size  # 2.5 million ids as Python's numbers would take eight times as much
    (written,) = pq.read_table(bench.folder / "a.parquet").to_pylist()
    assert written["prompt_ids"] + written["response_ids"] == known
