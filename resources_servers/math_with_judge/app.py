"""Mathematical questions with one right answer: a library compares, and where it finds no equality a judge may."""

from pathlib import Path
from typing import Any

from gym.config.errors import UserError
from gym.protocol.resources import BaseVerifyRequest
from gym.servers import Masked, ResourcesServer, ResourcesSession, Scored, ServerContext, Verdict, parse
from gym.tasks.prompts import PromptTemplate
from resources_servers.math_with_judge.answers import final_text, last_boxed, last_line, same_text, tidy
from resources_servers.math_with_judge.config import Config
from resources_servers.math_with_judge.judge import EQUAL, NAMES, Judge, JudgeFailed
from resources_servers.math_with_judge.library import Library, LibraryFailed
from resources_servers.math_with_judge.task_data import TaskData

_PROMPT = Path(__file__).with_name("judge_prompt.md")


class MathServer(ResourcesServer[None]):
    """Reward 1 if the final answer equals the expected one, else 0. It keeps no state, so verdicts can be made again."""

    config: Config
    reverify_mode = "stateless"

    def __init__(self, config: Config, context: ServerContext) -> None:
        super().__init__(config, context)
        self._library = Library(config.library_workers, config.library_timeout_seconds)
        self._judge: Judge | None = None
        if config.should_use_judge and config.judge_model_server is not None:
            prompt = PromptTemplate.read(_PROMPT, NAMES)
            peer = context.peer(config.judge_model_server)
            self._judge = Judge(peer, prompt, config.judge_responses_create_params, config.judge_timeout_seconds)

    async def start(self) -> None:
        """Load the library, so that the first verdict does not wait for it."""
        try:
            await self._library.start()
        except LibraryFailed as error:
            raise UserError(str(error)) from error

    async def stop(self) -> None:
        """End the library's processes."""
        await super().stop()
        await self._library.stop()

    async def verify(self, session: ResourcesSession[None] | None, request: BaseVerifyRequest) -> Verdict:
        """Find the final answer and compare it: as text, by the library, by the judge."""
        task = parse(TaskData, request.task_data(), "the row")
        text = final_text(request.response.output)
        boxed = last_boxed(text)
        answer = boxed if boxed is not None or self.config.require_boxed else last_line(text)
        fields: dict[str, Any] = {"extracted_answer": answer or "", "library_reward": None, "judge_evaluations": []}
        if not answer:
            return Scored(0.0, fields | {"verdict_source": "no_answer"})
        expected, given = tidy(task.expected_answer), tidy(answer)
        if same_text(expected, given):
            return Scored(1.0, fields | {"verdict_source": "text"})
        try:
            equal = await self._library.equal(expected, given, boxed=boxed is not None)
        except LibraryFailed as error:
            unknown = str(error)
        else:
            unknown = f"the library cannot read the expected answer {task.expected_answer[:200]!r}" if equal is None else ""
            fields["library_reward"] = None if equal is None else float(equal)
            if equal or (equal is False and self._judge is None):
                return Scored(float(equal), fields | {"verdict_source": "library"})
        if self._judge is None:
            return Masked("verifier_error", f"{unknown}, and no judge is used", fields)
        return await self._judged(self._judge, task, answer, fields)

    async def _judged(self, judge: Judge, task: TaskData, answer: str, fields: dict[str, Any]) -> Verdict:
        try:
            made = await judge.evaluations(task.question, task.expected_answer, answer)
        except JudgeFailed as error:
            return Masked(error.kind, error.reason, fields | {"judge_evaluations": error.evaluations})
        reward = float(made[-1]["verdict_label"] == EQUAL)
        return Scored(reward, fields | {"judge_evaluations": made, "verdict_source": "judge"})
