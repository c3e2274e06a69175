"""Saving the records of model calls beside the output: `<stem>_model_calls/<capture key>.jsonl`, one file for each attempt.

Where a model server has kept an episode's record for us, the report in the row says so. Invariant: a record that cannot be
saved is a gap in the row, and costs neither the row nor the run; it is retired at the model server only once it is saved.
"""

import asyncio
import logging
from pathlib import Path
from typing import Any, Protocol, cast

from gym.client import CallError
from gym.models.capture.folder import file_name
from gym.models.capture.report import UNREADABLE, gap
from gym.protocol.rollouts import MODEL_CALLS
from gym.rollouts.files import write_atomically
from gym.rollouts.outcomes import Ended

_log = logging.getLogger(__name__)


class Records(Protocol):
    """Where records are kept until they are saved; see `gym.rollouts.dispatch.Dispatcher`."""

    async def model_calls(self, server: str, capture_key: str) -> bytes: ...

    async def retire_model_calls(self, server: str, capture_key: str) -> None: ...


class ModelCallFiles:
    """The records of one collection."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def save(self, records: Records, ended: Ended) -> None:
        """Save the record of an attempt, if there is one."""
        told = ended.row if ended.row is not None else ended.failure.details if ended.failure is not None else {}
        given = told.get(MODEL_CALLS)
        report = cast("dict[str, Any]", given) if isinstance(given, dict) else {}
        if not report.pop("kept", False):
            return
        key, server = str(report["rollout_id"]), str(report["model_server"])
        try:
            lines = await records.model_calls(server, key)
            await asyncio.to_thread(self._write, key, lines)
        except (CallError, OSError) as error:
            reason = f"the record could not be saved: {error}"
            _log.warning("model calls of %s: %s", key, reason)
            cast("list[Any]", report["gaps"]).append(gap(UNREADABLE, reason))
            return
        try:
            await records.retire_model_calls(server, key)
        except CallError as error:
            _log.warning("the record of %s stays at %s as long as its run: %s", key, server, error)

    def _write(self, key: str, lines: bytes) -> None:
        self._folder.mkdir(exist_ok=True)
        write_atomically(self._folder / file_name(key), [lines])
