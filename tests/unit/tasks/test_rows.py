"""Reading rows: every line comes out once, as a row or as a problem."""

import hashlib
from pathlib import Path

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gym.tasks.rows import Row, RowProblem, TaskFileError, read_rows


def _read(path: Path, content: bytes, **options: object) -> list[Row | RowProblem]:
    path.write_bytes(content)
    return list(read_rows(path, **options))  # type: ignore[arg-type]


def test_bom_crlf_and_blank_lines(tmp_path: Path) -> None:
    rows = _read(tmp_path / "a.jsonl", b'\xef\xbb\xbf{"a":1}\r\n\r\n  \n{"a":2}\n\t{"a":3}')
    assert [(row.line, row.value["a"]) for row in rows if isinstance(row, Row)] == [(1, 1), (4, 2), (5, 3)]


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (b"not json\n", "not JSON"),
        (b"[1]\n", "a list, not an object"),
        (b"null\n", "null, not an object"),
        (b"3\n", "a number, not an object"),
        (b'"x"\n', "a string, not an object"),
        (b'{"a": NaN}\n', "not JSON"),
        (b'{"a": "\xff"}\n', "not valid UTF-8"),
        (b'{"a": "\\ud800"}\n', "not JSON"),
        (b'{"a": 1', "cut off"),
        (b"\x00\x00\n", "not JSON"),
        (b"[" * 5000 + b"\n", "not JSON"),
    ],
)
def test_a_bad_line_is_a_problem_and_the_stream_goes_on(tmp_path: Path, line: bytes, says: str) -> None:
    ends = line.endswith(b"\n")
    rows = _read(tmp_path / "a.jsonl", b'{"a":0}\n' + line + (b'{"a":2}\n' if ends else b""))
    problem = rows[1]
    assert isinstance(problem, RowProblem)
    assert says in problem.message
    assert str(problem).startswith(f"{tmp_path}/a.jsonl:2: ")
    assert len(rows) == (3 if ends else 2)


def test_the_digest_covers_what_the_limit_leaves_out(tmp_path: Path) -> None:
    content = b"".join(b'{"a":%d}\n' % n for n in range(1000))
    digest = hashlib.sha256()
    rows = _read(tmp_path / "a.jsonl", content, limit=3, digest=digest)
    assert len(rows) == 3
    assert digest.hexdigest() == hashlib.sha256(content).hexdigest()


@pytest.mark.parametrize(("head", "what"), [(b"\x1f\x8b\x08\x00", "gzip"), (b"PAR1", "Parquet"), (b"\xff\xfe{\x00", "UTF-16")])
def test_another_format_is_named(tmp_path: Path, head: bytes, what: str) -> None:
    with pytest.raises(TaskFileError, match=what):
        _read(tmp_path / "a.jsonl", head)


def test_an_absent_file_and_a_folder(tmp_path: Path) -> None:
    with pytest.raises(TaskFileError, match="does not exist"):
        list(read_rows(tmp_path / "absent.jsonl"))
    with pytest.raises(TaskFileError, match="folder"):
        list(read_rows(tmp_path))


_OBJECTS = st.dictionaries(st.text(max_size=5), st.integers(-5, 5) | st.text(max_size=5), max_size=3)


@given(st.lists(st.one_of(_OBJECTS, st.sampled_from([b"", b"  ", b"{", b"[]", b"\xff"])), max_size=12))
def test_count_in_is_count_out(tmp_path_factory: pytest.TempPathFactory, lines: list[object]) -> None:
    path = tmp_path_factory.mktemp("rows") / "a.jsonl"
    raw = [line if isinstance(line, bytes) else orjson.dumps(line) for line in lines]
    found = _read(path, b"\n".join(raw))
    assert len(found) == sum(bool(line.strip()) for line in raw)
    assert [row.value for row in found if isinstance(row, Row)] == [line for line in lines if isinstance(line, dict)]
