import pytest
from spans import SpanError, describe, total


@pytest.mark.parametrize(("seconds", "text"), [(0, "0 s"), (59, "59 s"), (3661, "1 h 1 min 1 s"), (-90, "-1 min 30 s"), (172800, "2 d")])
def test_both_ways(seconds, text):
    assert describe(seconds) == text
    assert total(text) == seconds


@pytest.mark.parametrize("text", ["", "5", "x s", "1 year", "-"])
def test_no_span(text):
    with pytest.raises(SpanError):
        total(text)
