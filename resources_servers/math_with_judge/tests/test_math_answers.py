"""What counts as the final answer, and how it is written for the library."""

import pytest

from resources_servers.math_with_judge.answers import final_text, last_boxed, last_line, same_text, tidy


def message(text: str) -> dict[str, object]:
    return {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}


@pytest.mark.parametrize(
    ("text", "boxed"),
    [
        (r"so \boxed{42}.", "42"),
        (r"\boxed{1} or rather \boxed{ 2 }", "2"),
        (r"\boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        (r"\boxed{\{1, 2\}}", r"\{1, 2\}"),
        (r"\boxed{3} and \boxed{}", "3"),
        (r"\boxed{3} and \boxed{4", "3"),
        (r"\fbox{5}", "5"),
        (r"\boxed  {6}", "6"),
        (r"\boxed{\text{7 km}}", r"\text{7 km}"),
        (r"\boxed{}", None),
        ("42", None),
        ("", None),
    ],
)
def test_the_last_box_that_holds_anything(text: str, boxed: str | None) -> None:
    assert last_boxed(text) == boxed


def test_the_text_that_is_looked_at() -> None:
    call = {"type": "function_call", "name": "f", "arguments": "{}", "call_id": "c"}
    assert final_text([message("first"), call, message("last")]) == "last"
    assert final_text([message("said"), {"type": "reasoning", "summary": []}, message("")]) == "said"
    assert final_text([call]) == ""
    assert final_text([]) == ""


def test_thoughts_are_no_answer() -> None:
    assert final_text([message(r"<think>\boxed{1}?</think> \boxed{2}")]) == r" \boxed{2}"
    assert final_text([message(r"\boxed{1}?</think> No.")]) == " No."
    assert final_text([message(r"<think>\boxed{1} and so on")]) == ""


def test_the_last_line() -> None:
    assert last_line("a\nThe answer is 3.\n\n") == "The answer is 3."
    assert last_line(" \n") is None


@pytest.mark.parametrize(
    ("answer", "tidied"),
    [
        ("1,234", "1234"),
        ("1 234 567", "1234567"),
        (r"1\,234", "1234"),
        ("1{,}234", "1234"),
        (r"\$1,234.50", r"\$1234.50"),
        ("12,34", "12,34"),
        ("(1, 234)", "(1, 234)"),
        ("1,2,3", "1,2,3"),
        ("0.123 456", "0.123 456"),
        ("10%", "10"),
        (r"10\%", "10"),
        ("18 dollars", "18"),
        ("18 km/h", "18"),
        (r"\text{18 apples}", "18"),
        (r"\text{east}", "east"),
        ("18 miles per hour", "18"),
        ("18 million", "18 million"),
        ("2 pi", "2 pi"),
        ("2x", "2x"),
        ("$3x + 2$", "3x + 2"),
        (r"$\boxed{5}$", "5"),
        ("east", "east"),
        ("", ""),
    ],
)
def test_an_answer_is_tidied(answer: str, tidied: str) -> None:
    assert tidy(answer) == tidied


def test_spaces_do_not_make_another_text() -> None:
    assert same_text("(3, 2)", "(3,2)")
    assert not same_text("32", "23")
