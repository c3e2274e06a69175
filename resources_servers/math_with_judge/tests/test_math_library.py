"""Answers compared in the server's own environment, where math-verify is."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import psutil
import pytest

from gym.config import load
from gym.config.errors import UserError
from gym.runtime.environments import environment_python
from resources_servers.math_with_judge.answers import tidy
from resources_servers.math_with_judge.library import Library, LibraryFailed

REPOSITORY = Path(__file__).resolve().parents[3]
NEVER_ENDS = r"\sum_{n=1}^{99999999} \frac{1}{n^{n^{n}}}"
"""Nothing that the library can compute in time."""


@pytest.fixture(scope="module")
def python() -> str:
    plan = load([REPOSITORY / "resources_servers/math_with_judge/configs/math_with_judge.yaml"], []).plan
    try:
        return environment_python(plan.instances["math_with_judge_resources_server"], plan.settings, lambda line: None)
    except UserError as error:
        pytest.skip(f"the server's own environment cannot be built here: {error}")


def with_library(python: str, work: Callable[[Library], Awaitable[None]], *, workers: int = 1, seconds: int = 10) -> None:
    async def run() -> None:
        library = Library(workers, seconds, python)
        try:
            await work(library)
        finally:
            await library.stop()

    asyncio.run(run())


EQUAL = [
    ("18", "18.00"),
    ("18", r"\$18"),
    ("18", "18 dollars"),
    ("18", r"18 \text{ dollars}"),
    ("18", "18 km/h"),
    ("18", r"18\,\text{cm}^2"),
    ("18", r"18^{\circ}"),
    ("18", r"\text{18 apples}"),
    ("1234", "1,234"),
    ("1234", "1 234"),
    ("1,234", r"1{,}234"),
    ("1,234,567", "1234567"),
    ("1/2", "0.5"),
    ("1/2", r"\frac{1}{2}"),
    ("1/2", r"\frac12"),
    ("1/2", r"\dfrac{2}{4}"),
    (r"\frac{1}{2}", "1/2"),
    ("10%", r"10\%"),
    ("25", r"25\%"),
    ("3", "x = 3"),
    ("x=3", "3"),
    (r"2\sqrt{3}", r"\sqrt{12}"),
    ("3x+2", "2 + 3x"),
    ("$(x+1)^2$", "x^2+2x+1"),
    (r"\{1, 2\}", r"\{2, 1\}"),
    ("(1, 2)", "(1,2.0)"),
    ("-4", "-4.0"),
    (r"\pi", r"\pi"),
    ("2^{10}", "1024"),
]
DIFFERENT = [
    ("18", "19"),
    ("18", "-18"),
    ("18", "1.8"),
    ("18", "18 million"),
    ("18", "17, 18"),
    ("18", r"17 \text{ or } 18"),
    ("1/3", "0.33"),
    ("1234", "1,235"),
    ("(1, 2)", "(2, 1)"),
    ("3x+2", "3x-2"),
    ("5", "five"),
    ("5", r"\text{none}"),
    ("5", "x"),
    ("5", "-"),
    ("east", "west"),
]


def test_equal_answers(python: str) -> None:
    async def work(library: Library) -> None:
        for expected, answer in EQUAL:
            assert await library.equal(tidy(expected), tidy(answer), boxed=True) is True, (expected, answer)

    with_library(python, work)


def test_different_answers(python: str) -> None:
    async def work(library: Library) -> None:
        for expected, answer in DIFFERENT:
            assert await library.equal(tidy(expected), tidy(answer), boxed=True) is False, (expected, answer)

    with_library(python, work)


def test_an_answer_in_a_sentence(python: str) -> None:
    async def work(library: Library) -> None:
        assert await library.equal("18", "The answer is 18.", boxed=False) is True
        assert await library.equal("18", "The answer is $18$ dollars.", boxed=False) is True
        assert await library.equal("18", "I do not know.", boxed=False) is False

    with_library(python, work)


def test_an_expected_answer_that_is_no_mathematics(python: str) -> None:
    async def work(library: Library) -> None:
        assert await library.equal("?", "18", boxed=True) is None

    with_library(python, work)


def test_what_takes_too_long_is_ended_and_the_next_is_answered(python: str) -> None:
    async def work(library: Library) -> None:
        await library.start()
        began = time.monotonic()
        with pytest.raises(LibraryFailed, match="took more than 1 s"):
            await library.equal("1", NEVER_ENDS, boxed=True)
        assert time.monotonic() - began < 5
        assert await library.equal("1", "1.0", boxed=True) is True

    with_library(python, work, seconds=1)


def test_several_at_once_share_the_processes(python: str) -> None:
    async def work(library: Library) -> None:
        results = await asyncio.gather(*(library.equal(str(n), f"{n}.0", boxed=True) for n in range(20)))
        assert results == [True] * 20
        assert len(library._all) == 2

    with_library(python, work, workers=2)


def test_a_call_that_is_cancelled_leaves_no_answer_for_the_next(python: str) -> None:
    async def work(library: Library) -> None:
        await library.start()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await library.equal("1", NEVER_ENDS, boxed=True)
        assert await library.equal("2", "3", boxed=True) is False
        processes = [psutil.Process(worker.pid) for worker in library._all]
        await library.stop()
        assert not any(process.is_running() for process in processes)

    with_library(python, work)


def test_a_python_without_the_library_is_said_at_the_start(tmp_path: Path) -> None:
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\nexit 3\n")
    broken.chmod(0o755)

    async def work(library: Library) -> None:
        with pytest.raises(LibraryFailed, match="did not start"):
            await library.start()

    with_library(str(broken), work)
