"""The collector's memory: some bytes for each rollout, killed half-way and resumed."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

_REPOSITORY = Path(__file__).parents[3]
_BYTES_PER_ROLLOUT = 150
"""About 60 are measured; a dictionary of ids alone would take more than this."""


def _measured(rollouts: int) -> dict[str, Any]:
    command = [sys.executable, str(_REPOSITORY / "benchmarks/perf/resume.py"), str(rollouts)]
    ran = subprocess.run(command, stdout=subprocess.PIPE, timeout=240, cwd=_REPOSITORY, check=True)
    return json.loads(ran.stdout)


@pytest.mark.slow
def test_fifty_thousand_rollouts_cost_some_bytes_each_also_when_resumed() -> None:
    few, many = _measured(5_000), _measured(50_000)
    assert many["resumed"]["measured"] == 50_000
    for which in ("killed", "resumed"):
        grown = (many[which]["peak_mb"] - few[which]["peak_mb"]) * 1e6
        assert grown < 45_000 * _BYTES_PER_ROLLOUT, (which, few, many)
