"""Event streams: any way to cut them gives the same events."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gym.models.sse import KEEP_ALIVE, SSEEvent, SSEParser, encode

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
LINES = TEXT.map(lambda text: text.replace("\r", "").replace("\n", "").strip())
EVENTS = st.builds(
    SSEEvent, st.none() | LINES.filter(bool), TEXT.map(lambda text: text.replace("\r\n", "\n").replace("\r", "\n").removeprefix("\ufeff"))
)


def parse(*chunks: bytes) -> list[SSEEvent]:
    parser = SSEParser()
    return [event for chunk in chunks for event in parser.feed(chunk)]


@given(st.lists(EVENTS, max_size=5), st.sampled_from([b"\n", b"\r\n", b"\r"]), st.data())
def test_what_is_encoded_is_parsed_wherever_it_is_cut(events: list[SSEEvent], line_end: bytes, data: st.DataObject) -> None:
    stream = b"".join(encode(event) + KEEP_ALIVE for event in events).replace(b"\n", line_end)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    chunks = [stream[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    assert parse(*chunks) == events


def test_every_byte_alone() -> None:
    stream = "event: a\r\ndata: é€😀\r\rdata: 1\ndata: 2\n\n: comment\n\ndata: last\r\n\r\n".encode()
    assert parse(*(stream[index : index + 1] for index in range(len(stream)))) == [
        SSEEvent("a", "é€😀"),
        SSEEvent(None, "1\n2"),
        SSEEvent(None, "last"),
    ]


@pytest.mark.parametrize(
    ("stream", "events"),
    [
        (b"data: x", []),
        (b"data: x\n", []),
        (b"data:x\n\n", [SSEEvent(None, "x")]),
        (b"data:  x\n\n", [SSEEvent(None, " x")]),
        (b"data\n\n", [SSEEvent(None, "")]),
        (b"event: a\n\ndata: x\n\n", [SSEEvent(None, "x")]),
        (b"id: 3\nretry: 10\nodd: y\ndata: x\n\n", [SSEEvent(None, "x")]),
        (b"\xef\xbb\xbfdata: x\n\n", [SSEEvent(None, "x")]),
        (b"data: \xff\n\n", [SSEEvent(None, "\ufffd")]),
        (b"\n\n\n", []),
    ],
)
def test_the_standards_corners(stream: bytes, events: list[SSEEvent]) -> None:
    assert parse(stream) == events
