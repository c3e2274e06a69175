"""OpenCode's own database, as a run left it: the sessions of its sub-agents, and what it had not printed yet when it was cut off.

Invariant: it was written in the sandbox and may be anything, so it is read within bounds of time and size, and what cannot be read
is left out.
"""

import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import orjson

FILES = ("data/opencode/opencode.db", "data/opencode/opencode.db-wal")
"""Where it is in the session's home; the second holds what is not in the first yet."""
_SECONDS = 10.0
_MOST_PARTS = 20_000
_STEPS = 10_000
_QUERY = """
SELECT s.id, s.parent_id, s.title, p.id, p.data, m.data
FROM part p JOIN message m ON m.id = p.message_id JOIN session s ON s.id = p.session_id
ORDER BY m.time_created, m.id, p.id LIMIT ?
"""


@dataclass
class StoredSession:
    """One session: the main one, or a sub-agent's."""

    id: str
    parent: str | None
    title: str
    parts: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    """What the agent did, each with its `id`."""
    told: set[str] = field(default_factory=set[str])
    """The ids of what it was told, by the task or by OpenCode itself."""
    compactions: int = 0
    """How often its history was compacted."""


def stored_sessions(folder: Path) -> list[StoredSession]:
    """The sessions in the database that was brought into `folder`, in the order in which they began; none if it cannot be read."""
    database = folder / Path(FILES[0]).name
    sessions: dict[str, StoredSession] = {}
    if not database.exists():
        return []
    try:
        with closing(sqlite3.connect(database)) as connection:
            connection.execute("PRAGMA trusted_schema = OFF")
            deadline = time.monotonic() + _SECONDS
            connection.set_progress_handler(lambda: time.monotonic() > deadline, _STEPS)
            for row in _rows(connection):
                session = sessions.setdefault(row[0], StoredSession(*row[:3]))
                part, message = row[3], row[4]
                if part.get("type") == "compaction":
                    session.compactions += 1
                if message.get("role") == "assistant":
                    session.parts.append(part)
                else:
                    session.told.add(part["id"])
    except sqlite3.Error:
        return list(sessions.values())  # as far as it could be read
    return list(sessions.values())


def _rows(connection: sqlite3.Connection) -> Iterator[tuple[str, str | None, str, dict[str, Any], dict[str, Any]]]:
    for key, parent, title, part_id, part, message in connection.execute(_QUERY, (_MOST_PARTS,)):
        numbered = _object(part) | {"id": str(part_id)}
        yield str(key), None if parent is None else str(parent), str(title), numbered, _object(message)


def _object(text: Any) -> dict[str, Any]:
    try:
        value: Any = orjson.loads(text)
    except (orjson.JSONDecodeError, TypeError):
        return {}
    return cast(dict[str, Any], value) if isinstance(value, dict) else {}
