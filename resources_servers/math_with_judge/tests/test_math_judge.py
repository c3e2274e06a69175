"""The judge: asked in both orders, read strictly, and no verdict where it fails."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson
import pytest
from pydantic import ValidationError

from gym.client import CallError, Peer, Reply
from gym.protocol.responses import assistant_message
from gym.tasks.prompts import PromptTemplate
from resources_servers.math_with_judge.config import Config
from resources_servers.math_with_judge.judge import NAMES, Judge, JudgeFailed, label_of

PROMPT = PromptTemplate.read(Path(__file__).parents[1] / "judge_prompt.md", NAMES)
YES, NO = "The same.\n[[A=B]]", "Not the same.\n[[A!=B]]"


class FakeJudge:
    """A transport behind which a judge gives these answers, one after the other; an exception is raised, bytes are sent as they are."""

    def __init__(self, *answers: Any) -> None:
        self.answers, self.asked = list(answers), list[dict[str, Any]]()

    async def send(self, method: str, url: str, headers: Mapping[str, str], body: bytes) -> Reply:
        self.asked.append(orjson.loads(body))
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        if isinstance(answer, int):
            return Reply(answer, b'{"error": {"message": "too many", "type": "agent_request_failed"}}')
        if answer is None:
            await asyncio.sleep(60)
        output = [assistant_message(answer)] if isinstance(answer, str) else []
        return Reply(200, answer if isinstance(answer, bytes) else orjson.dumps({"id": "r", "output": output}))

    async def aclose(self) -> None: ...


def ask(fake: FakeJudge, **params: Any) -> list[dict[str, Any]]:
    judge = Judge(Peer("judge_model", "http://judge", fake), PROMPT, params, 0.3)
    return asyncio.run(judge.evaluations("How many {first}?", "EXPECTED", "GIVEN"))


def failure(fake: FakeJudge) -> JudgeFailed:
    with pytest.raises(JudgeFailed) as caught:
        ask(fake)
    return caught.value


def test_both_orders_are_asked() -> None:
    fake = FakeJudge(YES, YES)
    made = ask(fake, temperature=0.0)
    assert [(entry["order"], entry["verdict_label"]) for entry in made] == [("expected_first", "[[A=B]]"), ("answer_first", "[[A=B]]")]
    first, second = (request["input"][0]["content"] for request in fake.asked)
    assert first.index("EXPECTED") < first.index("GIVEN")
    assert second.index("GIVEN") < second.index("EXPECTED")
    assert "How many {first}?" in first, "what is filled in is not read as a template"
    assert all(request["temperature"] == 0.0 for request in fake.asked)


def test_one_different_is_enough() -> None:
    assert [entry["verdict_label"] for entry in ask(FakeJudge(NO))] == ["[[A!=B]]"]
    assert [entry["verdict_label"] for entry in ask(FakeJudge(YES, NO))] == ["[[A=B]]", "[[A!=B]]"]


@pytest.mark.parametrize("text", ["", "yes", "[[A=B]] or [[A!=B]]", "[[A=B]]\nOr not?", "[[A = B]]", "[[a=b]]", "It is [[A=B]]"])
def test_an_answer_that_is_none(text: str) -> None:
    assert label_of(text) is None
    failed = failure(FakeJudge(text))
    assert failed.kind == "judge_unparseable"
    assert failed.evaluations[0]["verdict_label"] is None


@pytest.mark.parametrize("text", [YES, "[[A=B]]", "x\n**[[A=B]]**\n\n", "[[A!=B]] no:\n `[[A=B]]`."])
def test_an_answer_is_the_last_line(text: str) -> None:
    assert label_of(text) == "[[A=B]]"


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (429, "judge_model answered 429"),
        (500, "judge_model answered 500"),
        (b"<html>", "no Responses object"),
        (b'{"id": "r", "output": [], "status": "failed", "error": {"message": "overloaded"}}', "failed: overloaded"),
        (None, "no answer to POST /v1/responses within 0.3 s"),
        (CallError("judge_model cannot be reached", kind="transport_unreachable", delivery="possibly_delivered"), "cannot be reached"),
    ],
)
def test_a_judge_that_cannot_be_asked(answer: Any, reason: str) -> None:
    failed = failure(FakeJudge(answer))
    assert failed.kind == "judge_failed"
    assert reason in failed.reason


def test_what_was_judged_before_a_failure_is_kept() -> None:
    failed = failure(FakeJudge(YES, 503))
    assert (failed.kind, [entry["order"] for entry in failed.evaluations]) == ("judge_failed", ["expected_first"])


def test_a_refused_key_keeps_its_kind() -> None:
    refused = CallError("no", kind="judge_model:credentials_refused", delivery="delivered", status=401)
    assert failure(FakeJudge(refused)).kind == "judge_model:credentials_refused"


def test_the_configuration_names_a_judge_or_none() -> None:
    with pytest.raises(ValidationError, match="needs judge_model_server"):
        Config()
    assert Config(should_use_judge=False).judge_model_server is None
    with pytest.raises(ValidationError, match="input cannot be set here"):
        Config(should_use_judge=False, judge_responses_create_params={"input": "x"})
    # As other configurations of the ecosystem write it.
    assert Config(should_use_judge=False, judge_responses_create_params={"input": [], "top_p": 1}).judge_responses_create_params == {
        "top_p": 1
    }
