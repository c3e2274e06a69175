"""Checks the rollout of `run_stateful_e2e.sh`; exits with 1 and says what is not as it must be."""

import json
import sys
from pathlib import Path
from typing import Any

_CALLS = [("increment_counter", {"count": 1}), ("increment_counter", {"count": 2}), ("get_counter_value", {})]


def findings(row: dict[str, Any]) -> list[str]:
    """What is wrong with the row."""
    observed = row.get("ng_agent_observations") or {}
    called = [(call.get("name"), call.get("arguments")) for call in observed.get("resource_calls") or []]
    usage = row["response"].get("usage") or {}
    turns = (row.get("ng_trajectory") or {}).get("turns") or []
    checks = {
        f"the reward is {row.get('reward')}": row.get("reward") == 1.0,
        f"the model's usage is {usage}": usage.get("input_tokens", 0) > 0 and usage.get("output_tokens", 0) > 0,
        f"the task's tools were called as {called}": called == _CALLS,
        "the last call did not tell 6": bool(called) and json.loads(observed["resource_calls"][-1]["output"]) == {"count": 6},
        "the trajectory has no model call": any(turn.get("model_calls") for turn in turns),
        "no Python was executed": bool(observed.get("python_executions")),
    }
    return [said for said, holds in checks.items() if not holds]


def main() -> int:
    """Check the one row of the file."""
    lines = Path(sys.argv[1]).read_text().splitlines()
    wrong = findings(json.loads(lines[0])) if len(lines) == 1 else [f"there are {len(lines)} rollouts, not one"]
    for said in wrong:
        sys.stderr.write(f"check_stateful.py: {said}\n")
    if not wrong:
        sys.stdout.write("the counter stands at 6: reward 1.0, three calls of the task's tools, usage and trajectory are there\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
