"""The page that `gym eval report` writes, in a real headless browser, opened from disk with no network."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from shutil import which
from typing import Any

import orjson
import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from conftest import unavailable

pytestmark = pytest.mark.slow

GYM = str(Path(sys.executable).with_name("gym"))
ATTACK = "</script><script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\"><b>bold</b>"


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    found = next(filter(None, map(which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if found is None:
        unavailable("there is no Chromium (scripts/browser.sh installs one)")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def page(chromium: Browser) -> Iterator[Page]:
    """A page with no network, which fails the test for an error in its script or anything that it asks for."""
    context = chromium.new_context(offline=True)
    opened = context.new_page()
    wrong: list[str] = []
    opened.on("pageerror", lambda error: wrong.append(str(error)))
    opened.on("request", lambda request: None if request.url.startswith("file:") else wrong.append(request.url))
    yield opened
    context.close()
    assert wrong == []


def rollout(number: int, reward: float | None = 1.0, **more: Any) -> dict[str, Any]:
    said = [
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Let me look."}]},
        {"type": "function_call", "name": "read", "call_id": "c", "arguments": '{"path": "notes.txt"}'},
        {"type": "function_call_output", "call_id": "c", "output": f"note number {number}"},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": f"Answer {number}."}]},
    ]
    return {
        "responses_create_params": {"input": f"Question {number}?"},
        "response": {"status": "completed", "output": said, "usage": {"total_tokens": 12}},
        "reward": reward,
        "test_time_s": 1.5,
        "test_output": "2 passed",
        "_ng_rollout_id": f"{number}-0",
        "_ng_task_index": number,
        "_ng_rollout_index": 0,
        "_ng_attempt_index": 0,
        "_ng_task_id": {"taskset": "s", "task_id": f"task-{number}"},
        "ng_model_call_capture": {"metrics": {"num_calls": 2}, "calls": [{"call_index": 0, "status_code": 200, "latency_total_ms": 7.0}]},
        **more,
    }


def failed(number: int, attempt: int, message: str) -> dict[str, Any]:
    whole = rollout(number, _ng_attempt_index=attempt)
    identity = {name: value for name, value in whole.items() if name.startswith("_ng_")}
    told = {"class": "environment_server_failed", "kind": "agent_run_error", "stage": "agent", "terminal": False, "message": message}
    return {**identity, **{f"_ng_failure_{name}": value for name, value in told.items()}, "_ng_failure_partial_response": whole["response"]}


def write(folder: Path, rows: list[dict[str, Any]], failures: list[dict[str, Any]] | None = None) -> Path:
    output = folder / "out.jsonl"
    output.write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in rows))
    if failures:
        (folder / "out_failures.jsonl").write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in failures))
    return output


def report(output: Path, *arguments: str) -> Path:
    done = subprocess.run([GYM, "eval", "report", str(output), *arguments], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    return output.with_name("out_report.html")


def opened(page: Page, path: Path, fragment: str = "") -> None:
    page.goto(path.as_uri() + fragment)
    page.wait_for_selector("body[data-ready=yes]", timeout=20_000)


def test_outcomes_filters_and_a_transcript(tmp_path: Path, page: Page) -> None:
    rows = [rollout(0), rollout(1, 0.0), rollout(2, None, mask_sample=True, failure_reason="the verifier gave no verdict")]
    opened(page, report(write(tmp_path, rows, [failed(1, 0, "the first try"), failed(3, 0, "it broke")])))
    outcomes = {row.split("\t")[0].split()[0]: row for row in page.locator(".row").all_inner_texts()}
    assert [("measured" in outcomes[f"{number}-0"]) for number in range(2)] == [True, True]
    assert "masked" in outcomes["2-0"]
    assert "agent_run_error: it broke" in outcomes["3-0"]
    page.select_option("#outcome", "failed")
    assert page.locator(".row").count() == 1
    page.select_option("#outcome", "")
    page.fill("#search", "task-1")
    page.locator(".row").click()
    shown = page.locator("#details").inner_text()
    for text in ("Question 1?", "Let me look.", "path: notes.txt", "note number 1", "Answer 1.", "2 passed", "the first try", "reward 0"):
        assert text in shown, text
    assert page.url.endswith("#1-0")


def test_a_failed_rollout_has_its_transcript_and_no_reward_and_is_found_by_its_link(tmp_path: Path, page: Page) -> None:
    opened(page, report(write(tmp_path, [rollout(0)], [failed(3, 0, "it broke"), failed(3, 1, "again")])), "#3-0")
    shown = page.locator("#details").inner_text()
    assert "note number 3" in shown
    assert "it broke" in shown
    assert "reward" not in shown.split("Failed attempts")[0]


def test_nothing_in_a_rollout_runs(tmp_path: Path, page: Page) -> None:
    said = [{"type": ATTACK, "role": ATTACK, "content": ATTACK}, {"type": "function_call", "name": ATTACK, "arguments": ATTACK}]
    named = {"_ng_rollout_id": ATTACK, "_ng_task_id": {"taskset": ATTACK, "task_id": ATTACK}, "subset": ATTACK, ATTACK: ATTACK}
    row = rollout(0, response={"output": said, "status": ATTACK}, responses_create_params={"input": ATTACK}, **named)
    broken = {**failed(1, 0, ATTACK), "_ng_failure_kind": ATTACK}
    path = report(write(tmp_path, [row], [broken]))
    opened(page, path)
    page.locator(".row").first.click()
    page.wait_for_selector("#details h2")
    assert page.locator("#details img, #details script, main script, main img, .item b b").count() == 0
    assert ATTACK in page.locator("#details").inner_text()
    page.evaluate("""() => {
        const script = document.createElement("script");
        script.textContent = "document.title = 'owned'";
        document.body.append(script);
    }""")  # were markup let in by some mistake, the page's policy would still hold
    assert page.title() == "Gym: out.jsonl"


def test_five_thousand_rollouts_do_not_freeze_it(tmp_path: Path, page: Page) -> None:
    path = report(write(tmp_path, [rollout(number, number % 2) for number in range(5000)]))
    opened(page, path)
    assert page.locator(".row").count() < 200, "only the rows in view are made"
    page.evaluate("""() => {
        window.longest = 0;
        let last = performance.now();
        const beat = () => {
            const now = performance.now();
            window.longest = Math.max(window.longest, now - last);
            last = now;
            setTimeout(beat, 5);
        };
        beat();
    }""")
    page.fill("#search", "task-4999")
    page.locator(".row", has_text="task-4999").click()
    page.wait_for_selector("#details >> text=Answer 4999.")
    page.fill("#search", "")
    page.locator(".head button", has_text="reward").click()
    for place in range(0, 140_000, 14_000):
        page.locator(".list").evaluate(f"list => {{ list.scrollTop = {place}; }}")
        page.wait_for_function("() => document.querySelectorAll('.row').length > 0")
    assert page.evaluate("window.longest") < 1000, "milliseconds in which the page answered nothing"


def test_beyond_the_asked_number_there_are_lines_and_no_transcripts(tmp_path: Path, page: Page) -> None:
    opened(page, report(write(tmp_path, [rollout(0), rollout(1)]), "--transcripts", "1"), "#1-0")
    shown = page.locator("#details").inner_text()
    assert "the transcripts of the first 1 rollouts" in shown
    assert "Answer 1." not in shown


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("-o", "out.jsonl"), "none of the run's own"),
        (("-o", "gone/page.html"), "a folder that is there"),
        ((), "out.jsonl:1: no scored rollout"),
    ],
)
def test_what_is_no_run_leaves_no_page(tmp_path: Path, arguments: tuple[str, ...], said: str) -> None:
    output = write(tmp_path, [rollout(0)] if arguments else [{"x": 1}])
    before = output.read_bytes()
    command = [GYM, "eval", "report", "out.jsonl", *arguments]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, len(done.stderr.splitlines())) == (1, 1)
    assert said in done.stderr
    assert output.read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["out.jsonl"]


def test_a_page_of_big_transcripts_stays_small(tmp_path: Path) -> None:
    long = rollout(0, model_patch="x" * 1_000_000, tests={str(number): "PASSED" for number in range(100_000)})
    long["response"]["output"] *= 1000
    assert report(write(tmp_path, [long])).stat().st_size < 100_000
