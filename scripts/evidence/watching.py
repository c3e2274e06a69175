"""The sandboxes that Docker makes and removes while something runs."""

import json
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass
class Box:
    """One container's life, in seconds since the run began."""

    run_id: str
    episode: str
    role: str
    began: float
    ended: float = 0.0


@contextmanager
def watched() -> Iterator[list[Box]]:
    """Every sandbox that is made while the context lasts; filled in at its end."""
    boxes: list[Box] = []
    began = time.time()
    asked = [
        "docker",
        "events",
        "--format",
        "{{json .}}",
        "--filter",
        "label=nemo-gym.sandbox=1",
        "--filter",
        "event=create",
        "--filter",
        "event=destroy",
    ]
    with tempfile.TemporaryFile("w+") as heard:
        listener = subprocess.Popen(asked, stdout=heard)
        try:
            yield boxes
            time.sleep(1)  # so that the last event is in
        finally:
            listener.kill()
            listener.wait()
        heard.seek(0)
        made: dict[str, Box] = {}
        for event in map(json.loads, heard):
            at, labels = event["timeNano"] / 1e9 - began, event["Actor"]["Attributes"]
            if event["Action"] == "create":
                made[event["Actor"]["ID"]] = Box(*(labels.get(f"nemo-gym.{name}", "") for name in ("run-id", "episode-id", "role")), at)
            elif event["Actor"]["ID"] in made:
                made[event["Actor"]["ID"]].ended = at
        boxes += made.values()


def containers(run_id: str) -> list[str]:
    command = ["docker", "ps", "-aq", "--filter", f"label=nemo-gym.run-id={run_id}"]
    return subprocess.run(command, text=True, capture_output=True, check=True).stdout.split()
