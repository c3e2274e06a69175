"""The servers of some recipes, rollouts on them, and what their logs say of the calls."""

import json
import os
import re
import signal
import subprocess
import sys
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, NoReturn

from watching import containers

ROOT = Path(__file__).resolve().parents[2]
GYM = str(Path(sys.executable).with_name("gym"))
ORDER = ["/seed_session", "/v1/agent_sessions", "/v1/responses", "/v1/agent_sessions/close", "/verify", "/close_session"]
LINE = re.compile(r"^(\S+) INFO gym.access (\S+) POST (?:/ng-rollout/[^/]+)?(\S+) (\d+) ([\d.]+)ms(?: episode=(\S+))?", re.MULTILINE)


def fail(reason: str) -> NoReturn:
    """The page is not written."""
    sys.exit(f"evidence: {reason}")


def expect(what: str, found: object, wanted: object) -> None:
    """End with what was found, where it is not what the page says."""
    if found != wanted:
        fail(f"{what}: expected {wanted!r}, found {found!r}")


class Servers:
    """`gym env start` of some recipes, in a folder of its own."""

    def __init__(self, folder: Path, recipes: list[str], model: list[str], script: list[dict[str, Any]]) -> None:
        self.folder, self.logs = folder, folder / "logs"
        config: dict[str, Any] = {"config_paths": [*recipes, *model]}
        if not model:
            config["config_paths"].append("responses_api_models/scripted_model/configs/scripted_model.yaml")
            config["policy_model"] = {"responses_api_models": {"scripted_model": {"rules": script}}}
        (folder / "run.yaml").write_text(json.dumps(config))
        self.env = {**os.environ, "GYM_STATE_DIR": str(folder / "state"), "NEMO_GYM_MAX_ROLLOUT_ATTEMPTS": "1"}
        command = [GYM, "env", "start", "--json", "--config", str(folder / "run.yaml"), "--log-dir", str(self.logs), "isolation=process"]
        self.process = subprocess.Popen(command, cwd=ROOT, env=self.env, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        ready = self.process.stdout.readline()
        if not ready:
            fail("the servers did not start")
        self.run_id = json.loads(ready)["run_id"]

    def collect(self, tasks: list[dict[str, Any]], **options: Any) -> "subprocess.Popen[bytes]":
        """Begin `gym eval run` over these tasks."""
        (self.folder / "rows.jsonl").write_text("".join(json.dumps(task) + "\n" for task in tasks))
        paths = ["--input", str(self.folder / "rows.jsonl"), "--output", str(self.folder / "out.jsonl")]
        return subprocess.Popen([GYM, "eval", "run", "--no-serve", *paths, "--concurrency", "2"], cwd=ROOT, env=self.env, **options)

    def stop(self) -> None:
        """Stop the servers; by then, and after, no container may be left."""
        expect("containers before the servers stopped", containers(self.run_id), [])
        self.process.send_signal(signal.SIGINT)
        self.process.wait(120)
        expect("containers after the servers stopped", containers(self.run_id), [])

    def rows(self, name: str = "out") -> list[dict[str, Any]]:
        path = self.folder / f"{name}.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def calls(self, episode: str) -> list[tuple[str, str]]:
        """Route and status of the contract's calls for one episode, in the order in which they began."""
        found: list[tuple[datetime, str, str]] = []
        for log in self.logs.glob("*.log"):
            for ended, _, route, status, took, whose in LINE.findall(log.read_text()):
                if whose == episode and route in ORDER:
                    found.append((datetime.fromisoformat(ended) - timedelta(milliseconds=float(took)), route, status))
        return [(route, status) for _, route, status in sorted(found)]

    def model_calls(self) -> int:
        """How many calls the model server has answered."""
        log = self.logs / "policy_model.log"
        return len(re.findall(r" POST /ng-rollout/\S+/chat/completions ", log.read_text())) if log.exists() else 0
