"""Making a file of rows: the same from every form of source, whole or not there, gone on with after a cut."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import datasets
import pytest

from gym.config.errors import UserError
from gym.tasks.prepare import PrepareJob, Recipe, prepare_main
from gym.tasks.prompts import PromptTemplate
from gym.tasks.published import HubDataset, published_rows

REPOSITORY = Path(__file__).resolve().parents[3]
VERIFIED = REPOSITORY / "benchmarks/swebench/verified/prepare.py"


def row(number: int, **changes: Any) -> dict[str, Any]:
    texts = {"repo": "a/b", "version": "1", "base_commit": "c", "patch": "p", "test_patch": "t"}
    lists = {"FAIL_TO_PASS": '["x"]', "PASS_TO_PASS": "[]"}
    return {"instance_id": f"a__b-{number}", **texts, **lists, "problem_statement": f"it {{breaks}} {number}", **changes}


def recipe(folder: Path, **changes: Any) -> Recipe:
    template = folder / "prompt.md"
    template.write_text("In {workdir}: {problem_statement} {{so}}\n")
    fields: dict[str, Any] = {
        "title": "t",
        "hub": HubDataset(str(folder), "train"),
        "output": folder / "out.jsonl",
        "template": template,
        "server": Path("resources_servers/swebench"),
        "fixed": {"split": "test"},
        "prompt_fields": {"workdir": lambda row: "/testbed"},
    }
    return Recipe(**(fields | changes))


def source_of(folder: Path, count: int = 5) -> Path:
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps(row(number)) + "\n" for number in range(count)))
    return path


def made(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_jsonl_parquet_and_hub_give_the_same_bytes(tmp_path: Path) -> None:
    source = source_of(tmp_path)
    data = datasets.Dataset.from_list([row(number) for number in range(5)])
    parquet, hub = tmp_path / "rows.parquet", tmp_path / "hub"
    data.to_parquet(parquet)
    hub.mkdir()
    data.to_parquet(hub / "train.parquet")
    outputs: set[bytes] = set()
    for number, place in enumerate((source, parquet, HubDataset(str(hub), "train"), source)):
        output = tmp_path / f"{number}.jsonl"
        assert PrepareJob(recipe(tmp_path), place, output, tmp_path / "prompt.md").run() == 5
        outputs.add(output.read_bytes())
    assert len(outputs) == 1
    first = made(tmp_path / "0.jsonl")[0]
    assert first["responses_create_params"] == {"input": [{"role": "user", "content": "In /testbed: it {breaks} 0 {so}"}]}
    assert first["split"] == "test"
    assert not [name for name in names(tmp_path) if "partial" in name]
    for place in (source, parquet, HubDataset(str(hub), "train")):
        assert [found["instance_id"] for found in published_rows(place, 3)] == ["a__b-3", "a__b-4"]


def test_a_cut_run_goes_on_where_it_stopped(tmp_path: Path) -> None:
    source = source_of(tmp_path)
    read: list[str] = []

    def convert(row: dict[str, Any]) -> dict[str, Any]:
        read.append(row["instance_id"])
        if len(read) == 4:
            raise ValueError("cut")
        return row

    job = PrepareJob(recipe(tmp_path, convert=convert), source, tmp_path / "out.jsonl", tmp_path / "prompt.md")
    with pytest.raises(UserError, match=r"rows\.jsonl: row 4 \(a__b-3\): cut"):
        job.run()
    assert not (tmp_path / "out.jsonl").exists()
    with (tmp_path / "out.jsonl.partial").open("ab") as partial:
        partial.write(b'{"half a')
    assert job.run() == 5
    assert read == ["a__b-0", "a__b-1", "a__b-2", "a__b-3", "a__b-3", "a__b-4"]
    whole = (tmp_path / "out.jsonl").read_bytes()
    PrepareJob(recipe(tmp_path), source, tmp_path / "again.jsonl", tmp_path / "prompt.md").run()
    assert (tmp_path / "again.jsonl").read_bytes() == whole


def test_another_source_begins_anew(tmp_path: Path) -> None:
    source = source_of(tmp_path)
    bad = row(9)
    del bad["patch"]
    with source.open("a") as more:
        more.write(json.dumps(bad) + "\n")
    job = PrepareJob(recipe(tmp_path), source, tmp_path / "out.jsonl", tmp_path / "prompt.md")
    with pytest.raises(UserError, match=r"row 6 .a__b-9.: the task data does not fit the server's schema: patch"):
        job.run()
    assert made(tmp_path / "out.jsonl.partial") != []
    source.write_text(json.dumps(row(7)) + "\n")
    assert job.run() == 1
    assert made(tmp_path / "out.jsonl")[0]["instance_id"] == "a__b-7"


def test_a_killed_run_leaves_no_output_and_is_gone_on_with(tmp_path: Path) -> None:
    source, output = tmp_path / "pipe.jsonl", tmp_path / "out.jsonl"
    os.mkfifo(source)
    command = [sys.executable, str(VERIFIED), "--source", str(source), "--output", str(output)]
    process = subprocess.Popen(command, cwd=REPOSITORY, stderr=subprocess.PIPE)
    with source.open("w") as pipe:
        pipe.write("".join(json.dumps(row(number)) + "\n" for number in range(450)))
        pipe.flush()
        partial = tmp_path / "out.jsonl.partial.json"
        deadline = time.monotonic() + 30
        while not (partial.exists() and json.loads(partial.read_text())["seen"] >= 400):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        process.send_signal(signal.SIGKILL)
        process.wait()
    if process.stderr is not None:
        process.stderr.close()
    assert not output.exists()
    assert len(made(tmp_path / "out.jsonl.partial")) >= 400


def test_chosen_ids_and_a_limit(tmp_path: Path) -> None:
    source = source_of(tmp_path)
    for ids, limit, expected in ((frozenset({"a__b-1", "a__b-4"}), None, ["a__b-1", "a__b-4"]), (None, 2, ["a__b-0", "a__b-1"])):
        PrepareJob(recipe(tmp_path), source, tmp_path / "out.jsonl", tmp_path / "prompt.md", ids, limit).run()
        assert [found["instance_id"] for found in made(tmp_path / "out.jsonl")] == expected
    with pytest.raises(UserError, match="gives no row with one of the --ids"):
        PrepareJob(recipe(tmp_path), source, tmp_path / "none.jsonl", tmp_path / "prompt.md", frozenset({"x"})).run()
    assert not (tmp_path / "none.jsonl").exists()


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--source", "none.jsonl"], "input file none.jsonl does not exist"),
        (["--source", "none.parquet"], "none.parquet cannot be read as Parquet: Failed to open"),
        (["--source", "README.md"], "README.md:1: not JSON"),
        (["--source", "bad.parquet"], "bad.parquet cannot be read as Parquet"),
        (["--prompt", "wrong.md"], "wrong.md uses {workdirr}, which no row has — did you mean 'workdir'?"),
        (["--prompt", "none.md"], "none.md is not there"),
        (["--ids", "none.txt"], "none.txt: No such file"),
        ([], "cannot be read from the hub"),
    ],
)
def test_mistakes_get_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any, arguments: list[str], reason: str) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "README.md").write_text("words\n")
    (tmp_path / "wrong.md").write_text("{workdirr}")
    (tmp_path / "bad.parquet").write_bytes(b"PAR1 and nothing")
    made_recipe = recipe(tmp_path, hub=HubDataset(str(tmp_path / "nowhere"), "train"))
    with pytest.raises(SystemExit) as ended:
        prepare_main(made_recipe, arguments)
    assert ended.value.code == 1
    said = capsys.readouterr().err.strip().splitlines()
    assert reason in said[-1]
    assert said[-1].startswith("error: ")
    assert not (tmp_path / "out.jsonl").exists()


def test_a_template_fills_in_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "t.md"
    path.write_text("{{a}} {a} {b}\n")
    template = PromptTemplate.read(path, ("a", "b"))
    assert template.fill({"a": "{b}", "b": "{{x}}"}) == "{a} {b} {{x}}"


def test_pro_takes_scripts_from_a_checkout_of_the_evaluator(tmp_path: Path) -> None:
    script = REPOSITORY / "benchmarks/swebench/pro/prepare.py"
    done = subprocess.run(
        [sys.executable, str(script), "--evaluator", str(tmp_path)], capture_output=True, text=True, check=False, cwd=REPOSITORY
    )
    assert (done.returncode, "there is no folder run_scripts" in done.stderr) == (1, True)
