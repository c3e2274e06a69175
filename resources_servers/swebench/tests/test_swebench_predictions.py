"""Exported predictions, read by the `swebench` package's own reader."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson

from gym.rollouts.export import ExportOptions, Format, export


def test_the_package_reads_exported_predictions(ask: Callable[..., Any], tmp_path: Path) -> None:
    said = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "done"}]}
    patch = "diff --git a/ä.py b/ä.py\n+\tx\u2028\n"
    row = {
        "responses_create_params": {"input": "fix it"},
        "response": {"model": "small", "output": [said]},
        "reward": 0.0,
        "instance_id": "a__b-1",
        "model_patch": patch,
    }
    rows, out = tmp_path / "out.jsonl", tmp_path / "predictions.jsonl"
    rows.write_bytes(orjson.dumps(row) + b"\n" + orjson.dumps({**row, "instance_id": "a__b-2", "model_patch": ""}))
    export(ExportOptions(rows, out, Format.SWEBENCH_PREDICTIONS))
    assert ask("predictions", path=str(out)) == [
        {"instance_id": "a__b-1", "model_name_or_path": "small", "model_patch": patch},
        {"instance_id": "a__b-2", "model_name_or_path": "small", "model_patch": ""},
    ]
