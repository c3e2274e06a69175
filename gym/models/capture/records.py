"""The lines of a rollout's capture file, written and read.

One JSON object a line. `{"begin": i, ...}` is written before call `i` is made, `{"end": i, ...}` before
the last byte of its reply is released, so a call that was begun and never ended shows. Lines of calls
that run side by side interleave. What an earlier call holds is not written again: `"as": {field: [k, n]}`
says that a field begins with the first `n` items of the same field of call `k`'s request (a field that is no list is
call `k`'s); `"as": [k, n]` of tokens, that the prompt begins with the first `n` of call `k`'s prompt and generation.

Left out: where the file is, and what its calls amount to.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, cast

import orjson

from gym.models.calls import CallNotes, Dialect, ModelCall, TokenIds
from gym.models.capture.folding import BLOCK, Beginnings, blocks_of, chain_of, parts_of

_FACTS = tuple(
    f.name
    for f in fields(ModelCall)
    if f.name not in ("call_id", "index", "dialect", "streamed", "request", "response", "started_at", "notes")
)
"""What the end line says of a call beside its reply and the handler's notes."""

Chain = list[bytes]


class Writer:
    """Makes the lines of one rollout's file, and knows what the file holds by now.

    `begin` and `end` give a line, and the chains that it makes known; `wrote_begin` and `wrote_end` say that it was written.
    """

    def __init__(self) -> None:
        self._requests, self._tokens = Beginnings(), Beginnings()
        self._names = set[str]()
        """Fields of requests; a reply repeats some of them."""

    def begin(self, call: ModelCall, token_capture: bool) -> tuple[bytes, list[Chain]]:
        """The line of a call that begins."""
        self._names.update(call.request)
        request, said, chains = self._fold(call.request)
        line: dict[str, Any] = {"begin": call.index, "id": call.call_id, "dialect": call.dialect, "at": call.started_at, "request": request}
        if call.streamed:
            line["streamed"] = True
        if token_capture:
            line["token_capture"] = True
        if said:
            line["as"] = said
        return orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE), chains

    def wrote_begin(self, call: ModelCall, chains: list[Chain]) -> None:
        """The line stands in the file, so later ones may refer to it."""
        for chain in chains:
            self._requests.add(chain, call.index)

    def end(self, call: ModelCall) -> tuple[bytes, Chain]:
        """The line of a call that has ended."""
        line: dict[str, Any] = {"end": call.index}
        for name in _FACTS:
            value = getattr(call, name)
            if value is not None:
                line[name] = value
        if call.response is not None:
            line["response"], said, _ = self._fold(call.response)
            if said:
                line["as"] = said
        notes, tokens = call.notes, call.notes.tokens
        if notes.upstream_attempts:
            line["notes"] = {
                "upstream_status": notes.upstream_status,
                "upstream_attempts": notes.upstream_attempts,
                "upstream": notes.upstream,
            }
        chain: Chain = []
        if tokens is not None:
            chain = chain_of("tokens", blocks_of((*tokens.prompt, *tokens.generation)))
            line["tokens"] = self._fold_tokens(tokens, chain)
        return orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE), chain

    def wrote_end(self, call: ModelCall, chain: Chain) -> None:
        """The line stands in the file."""
        self._tokens.add(chain, call.index)

    def learn(self, call: ModelCall) -> None:
        """A call stands in the file already, by another writer's hand."""
        self.wrote_begin(call, self.begin(call, False)[1])
        self.wrote_end(call, self.end(call)[1])

    def _fold(self, body: dict[str, Any]) -> tuple[dict[str, Any], dict[str, list[int]], list[Chain]]:
        """A body without what is known, where that is to be found, and the chains of its fields."""
        folded, said, chains = dict[str, Any](), dict[str, list[int]](), list[Chain]()
        for name, value in body.items():
            parts = parts_of(value) if name in self._names else None
            if parts is None:
                folded[name] = value
                continue
            chain = chain_of(name, parts)
            chains.append(chain)
            known, call = self._requests.longest(chain)
            if known:
                said[name] = [call, known]
            if isinstance(value, list):
                folded[name] = [orjson.Fragment(part) for part in parts[known:]]
            elif not known:
                folded[name] = orjson.Fragment(parts[0])
        return folded, said, chains

    def _fold_tokens(self, tokens: TokenIds, chain: Chain) -> dict[str, Any]:
        known, call = self._tokens.longest(chain[: len(tokens.prompt) // BLOCK])
        start = known * BLOCK
        said: dict[str, Any] = {"as": [call, start]} if known else {}
        return {**said, "prompt": tokens.prompt[start:], "generation": tokens.generation, "log_probs": tokens.log_probs}


@dataclass
class Capture:
    """A rollout's file as it was read."""

    calls: list[ModelCall] = field(default_factory=list[ModelCall])
    unreadable: int = 0
    """Lines that are no records, or that belong to one that cannot be read."""
    token_capture: bool = False
    """Whether any call was made for its token ids."""
    session: str | None = None
    """Who opened the rollout."""
    closed: bool = False
    refused: str | None = None
    """The budget that a call was refused for."""

    @property
    def unfinished(self) -> list[ModelCall]:
        """Calls that were begun and of which nothing more is known."""
        return [call for call in self.calls if call.status is None]


def read_calls(source: Path | Iterable[bytes]) -> list[ModelCall]:
    """The calls of a capture file (or of its lines), whole, in the order in which they began. Raises OSError."""
    return read_capture(source).calls


def read_capture(source: Path | Iterable[bytes]) -> Capture:
    """A capture file, or its lines, with history put back in place. Raises OSError; what cannot be read is counted."""
    capture, calls = Capture(), dict[int, ModelCall]()
    for line in source.read_bytes().splitlines() if isinstance(source, Path) else source:
        if not line.strip():
            continue
        try:
            _read_line(orjson.loads(line), calls, capture)
        except (ValueError, KeyError, TypeError, AttributeError, IndexError):
            capture.unreadable += 1
    capture.calls = [calls[index] for index in sorted(calls)]
    return capture


def _read_line(record: dict[str, Any], calls: dict[int, ModelCall], capture: Capture) -> None:
    if "begin" in record:
        index = int(record["begin"])
        dialect: Dialect = record["dialect"]
        request = _unfolded(record["request"], record.get("as"), calls)
        streamed = record.get("streamed", False)
        calls[index] = ModelCall(str(record["id"]), index, dialect, streamed, request, started_at=float(record["at"]))
        capture.token_capture |= bool(record.get("token_capture"))
    elif "end" in record:
        call = calls[record["end"]]
        response = record.get("response")
        call.response = None if response is None else _unfolded(response, record.get("as"), calls)
        call.notes = CallNotes(**record.get("notes", {}), tokens=_tokens(record.get("tokens"), calls))
        for name in _FACTS:
            if name in record:
                setattr(call, name, record[name])
    elif "open" in record:
        capture.session = str(record["open"])
    elif "closed" in record:
        capture.closed = True
    else:
        capture.refused = str(record["refused"])


def _unfolded(body: dict[str, Any], said: dict[str, list[int]] | None, calls: dict[int, ModelCall]) -> dict[str, Any]:
    for name, (call, known) in (said or {}).items():
        earlier = calls[call].request[name]
        body[name] = [*cast("list[Any]", earlier[:known]), *body[name]] if isinstance(earlier, list) else earlier
    return body


def _tokens(told: dict[str, Any] | None, calls: dict[int, ModelCall]) -> TokenIds | None:
    if told is None:
        return None
    prompt: list[int] = told["prompt"]
    if "as" in told:
        call, known = told["as"]
        earlier = calls[call].notes.tokens
        if earlier is None:
            raise ValueError(f"call {call} has no tokens")
        first = earlier.prompt[:known]
        prompt = [*first, *earlier.generation[: known - len(first)], *prompt]
    return TokenIds(prompt, told["generation"], told["log_probs"])
