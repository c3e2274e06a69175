import pytest
from tables import convert, ranks, units


def test_lengths():
    assert convert(1, "mile", "inch") == pytest.approx(63360)


def test_no_mixing():
    with pytest.raises(ValueError, match="ounce is a unit of kilogram"):
        convert(1, "ounce", "mile")


def test_unknown():
    with pytest.raises(KeyError):
        convert(1, "ell", "mile")


def test_ranks():
    assert ranks()[:5] == [256, 3338, 255, 640, 2573]


def test_the_line_ends_are_no_part_of_a_factor():
    assert units()["metre"] == ("metre", 1.0)
