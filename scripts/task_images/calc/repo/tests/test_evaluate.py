import pytest
from calc import CalcError, evaluate


@pytest.mark.parametrize(("text", "value"), [("1", 1), ("1+2", 3), ("2*3+4", 10), ("2*(3+4)", 14), ("-3+5", 2), ("1.5*2", 3)])
def test_value(text, value):
    assert evaluate(text) == value


def test_spaces():
    assert evaluate(" 2 * ( 3 + 4 ) ") == 14


@pytest.mark.parametrize("text", ["1+", "(1", "1)2", "a"])
def test_error(text):
    with pytest.raises(CalcError):
        evaluate(text)


def test_division_by_zero():
    with pytest.raises(CalcError, match="division by zero"):
        evaluate("1/0")
