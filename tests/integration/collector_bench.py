"""Collections that something is done to: `gym eval run` on the single-tool example, with a model that can be killed; and their account.

A proxy can stand at each hop. What must hold after every fault is said once, in `check`: every expected rollout is accounted for and
is in the files as often as the account says, rewards are those that are known beforehand, and nothing is left. Neither
pytest nor its fixtures are needed, so that scripts can do the same.
"""

import contextlib
import fcntl
import secrets
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import orjson

from gym.protocol.rollouts import Outcome
from gym.rollouts.files import OutputFiles
from tests.integration.conftest import REPOSITORY, GymRuns, Started, wait_for
from tests.integration.lossy_proxy import LossyProxy, proxies_apart
from tests.integration.model_stand_in import row, truth

SERVERS = ("resources", "agent", "model", "environment")
HOPS = (*SERVERS, "endpoint")
"""Who is called: by the environment server and the agent, the environment server, the agent, the collector, the model server."""
ROWS = 24
ENDS_WITHIN = 60.0
KILLED = 128 + 9

_CONFIG = """
auth: {{token_file: {token_file}}}
isolation: {isolation}
observability_enabled: true
config_paths:
- responses_api_agents/simple_agent/configs/simple_agent.yaml
- environment_servers/single_agent_turn/configs/single_agent_turn.yaml
resources_server:
  resources_servers:
    example_single_tool_call: {{}}
agent_server:
  _inherit_from: simple_agent
  responses_api_agents:
    simple_agent:
      model_server: {{type: responses_api_models, name: {model}}}
model_server:
  responses_api_models:
    openai_model: {{base_url: "{endpoint}/v1", model: stand-in, timeout_seconds: {call_seconds}, max_retries: 2}}
environment_server:
  _inherit_from: single_agent_turn
  environment_servers:
    single_agent_turn: &episode
      resources_server: {{type: resources_servers, name: {resources}}}
      agent_server: {{type: responses_api_agents, name: {agent}}}
      resources_tool_transports: [direct_http]
      default_episode_timeout_seconds: {episode_seconds}
      cleanup_timeout_seconds: 1
"""
_PROXIED = {
    "resources": "resources_servers: {{example_single_tool_call: {{{there}}}}}",
    "agent": "responses_api_agents: {{simple_agent: {{{there}, model_server: {{type: responses_api_models, name: {model}}}}}}}",
    "model": "responses_api_models: {{openai_model: {{{there}, base_url: '{endpoint}/v1', model: stand-in}}}}",
    "environment": "environment_servers: {{single_agent_turn: {{<<: *episode, {there}}}}}",
}
"""A server as those who call it see it: at the proxy's address."""


class StandIn:
    """The model's endpoint, at one address for as long as it is wanted, dead or alive."""

    def __init__(self, seconds: float) -> None:
        self._seconds, self._port = seconds, 0
        self.start()

    def start(self) -> None:
        """Start it; again after a kill."""
        command = [sys.executable, "-m", "tests.integration.model_stand_in", "--port", str(self._port), "--seconds", str(self._seconds)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, cwd=REPOSITORY)
        assert self.process.stdout is not None
        self._port = int(self.process.stdout.readline())

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self._port}"

    def kill(self) -> None:
        """Kill it."""
        self.process.kill()
        self.process.wait()


class Bench:
    """Servers, the model, and the proxies at `hops`, for collections with these servers: already up (`up`), or started with each."""

    def __init__(self, folder: Path, stand_in: StandIn, *, episode_seconds: float, call_seconds: float, isolation: str = "process") -> None:
        self.runs, self.stand_in, self.isolation = GymRuns(folder), stand_in, isolation
        self.proxies: dict[str, LossyProxy] = {}
        self.up: Started | None = None
        self.disks = contextlib.ExitStack()
        """File systems that were laid over folders of the bench."""
        self.full: list[Path] = []
        """Files that take all room of one."""
        self.rows = self.runs.rows(*(row(place) for place in range(ROWS)))
        self._limits = {"episode_seconds": episode_seconds, "call_seconds": call_seconds}

    def configure(self) -> None:
        """Write the configuration, once the proxies are there."""
        token = secrets.token_hex()
        self.runs.env["GYM_TEST_TOKEN"] = token
        names = {hop: hop if hop in self.proxies else f"{hop}_server" for hop in SERVERS}
        self.environment = names["environment"]
        endpoint = self.proxies["endpoint"].url if "endpoint" in self.proxies else self.stand_in.url
        filled = {**names, "endpoint": endpoint, **self._limits}
        text = _CONFIG.format(token_file=self.runs.write("token", token), isolation=self.isolation, **filled)
        for hop in SERVERS:
            if hop in self.proxies:
                there = f"url: '{self.proxies[hop].url}', headers: {{authorization: 'Bearer ${{oc.env:GYM_TEST_TOKEN}}'}}"
                text += f"{hop}: {{{_PROXIED[hop].format(there=there, **filled)}}}\n"
        self.runs.config.write_text(text)

    def address(self, hop: str) -> str:
        """Where the server behind a proxy listens. Raises ConnectionError, as a caller is to be given it, while there is none."""
        if hop == "endpoint":
            return self.stand_in.url
        found = sorted(self.runs.state.glob(f"runs/*/{hop}_server.json"), key=lambda path: path.stat().st_mtime)
        if not found:
            raise ConnectionRefusedError(f"there is no {hop} server yet")
        return str(orjson.loads(found[-1].read_bytes())["url"])

    def serve(self) -> None:
        """Start the servers; collections from now on use them."""
        self.up = self.runs.start()
        self.up.ready()

    def collection(self, name: str) -> "Collection":
        """A new output."""
        folder = self.runs.folder / name
        folder.mkdir()
        return Collection(self, OutputFiles(folder / "out.jsonl"))

    def mend(self) -> None:
        """Everything is well from now on."""
        for proxy in self.proxies.values():
            for rule in proxy.rules:
                rule.go.set()
            proxy.rules.clear()
        for path in self.full:
            path.unlink()
        self.full.clear()
        if self.stand_in.process.poll() is not None:
            self.stand_in.start()


@contextlib.contextmanager
def bench_in(
    folder: Path, hops: Iterable[str] = (), *, isolation: str = "process", episode_seconds: float = 60, call_seconds: float = 60
) -> Iterator[Bench]:
    """A bench with a model that takes a moment for each answer; whatever of it runs at the end is killed."""
    stand_in = StandIn(0.03)
    bench = Bench(folder, stand_in, episode_seconds=episode_seconds, call_seconds=call_seconds, isolation=isolation)
    try:
        with proxies_apart({hop: partial(bench.address, hop) for hop in hops}) as bench.proxies:
            bench.configure()
            yield bench
    finally:
        stand_in.kill()
        bench.runs.end()
        bench.disks.close()


class Broken(AssertionError):
    """What must hold after every fault does not."""


class Collection:
    """One output, and the runs that are made at it one after the other."""

    def __init__(self, bench: Bench, files: OutputFiles) -> None:
        self.bench, self.files = bench, files
        self.started: Started

    def begin(self, *arguments: str) -> None:
        """Begin the collection, or go on with it."""
        given = ("--no-serve",) if self.bench.up else ("--config", self.bench.runs.config)
        given = (*given, "--input", self.bench.rows, "--env", self.bench.environment, "--output", self.files.output, "--resume")
        self.started = self.bench.runs.begin("eval", "run", *given, "--concurrency", "6", "--json", *arguments)

    @property
    def written(self) -> int:
        """How many whole rows there are."""
        return self.files.output.read_bytes().count(b"\n") if self.files.output.exists() else 0

    def end(self) -> tuple[int, str]:
        """Wait for the end of the run, and check all that must hold: its exit code, and its account in words."""
        code = self.started.ended(ENDS_WITHIN)
        killed = code == KILLED
        if self.bench.up is None:
            alone = killed and self.bench.isolation == "colocated"  # nobody is left to remove the run's folder, until the next run
            wait_for(lambda: not self.bench.runs.processes(), "no process is left", 15)
            _must(alone or not self.bench.runs.run_folders(), f"folders are left: {self.bench.runs.run_folders()}")
        return code, self.check(code)

    def check(self, code: int) -> str:
        """The account in words. Raises Broken unless it adds up, agrees with the files, and nothing was left."""
        for sign in ("Traceback", "never retrieved"):
            _must(sign not in self.started.errors, f"{sign}: {self.started.errors}")
        rows, failures = lines_of(self.files.output), lines_of(self.files.failures)
        written = Counter(line["_ng_rollout_id"] for line in rows)
        _must(max(written.values(), default=1) == 1, f"rows are there twice: {[name for name, times in written.items() if times > 1]}")
        wrong = [line["_ng_rollout_id"] for line in rows if line["reward"] != truth(int(line["_ng_task_id"]["task_id"].partition("-")[2]))]
        _must(not wrong, f"rewards that are not what was done: {wrong}")
        _must(not [line for line in failures if "reward" in line], "a failure has a reward")
        _must(not self.locked(), "the output is still locked")
        if code == KILLED:
            return "no account"
        left = [str(path) for path in self.files.output.parent.rglob("*") if path.name.endswith(".tmp")]
        _must(not left, f"temporary files are left: {left}")
        _must(not self.files.attempts.exists() or code == 1, f"{self.files.attempts} is left")
        account = self.account()
        if account is None:
            return "not begun"
        numbers = {outcome: account[outcome] for outcome in Outcome}
        _must(sum(numbers.values()) == account["expected"] == ROWS, f"the account does not add up: {account}")
        _must(len(rows) == numbers["measured"] + numbers["masked"] + numbers["unscored"], f"{len(rows)} rows, but {account}")
        failed = {line["_ng_rollout_id"] for line in failures} - written.keys()
        _must(numbers["failed"] <= len(failed), f"{account}, but failed are only {failed}")
        _must(len(failed) <= numbers["failed"] + numbers["owed"], f"{account}, but failed are {failed}")
        _must((code == 0) == (numbers["measured"] == ROWS), f"exit {code}, but {account}")
        return words(numbers)

    def account(self) -> dict[str, Any] | None:
        """What the run said of itself at its end; None if it had not begun. What is on file, if it could be written, is the same."""
        done = [record for line in self.started.output.splitlines() if (record := orjson.loads(line))["event"] == "done"]
        if not done:
            return None
        account = dict(done[0]["coverage"])
        if done[0]["problem"] is None:
            on_file = orjson.loads(self.files.coverage.read_bytes())
            _must(on_file == on_file | account, f"said: {account}, on file: {on_file}")
        return account

    def failed(self) -> list[str]:
        """How attempts failed, and where."""
        return sorted(
            {f"{line['_ng_failure_kind']} ({line['_ng_failure_stage'] or 'on the way'})" for line in lines_of(self.files.failures)}
        )

    def locked(self) -> bool:
        """Whether a collector still holds the output."""
        if not self.files.lock.exists():
            return False
        with self.files.lock.open() as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
        return False


def _must(holds: bool, otherwise: str) -> None:
    if not holds:
        raise Broken(otherwise)


def words(numbers: dict[str, int]) -> str:
    """An account without what differs from run to run."""
    there = [outcome for outcome, number in numbers.items() if number]
    return f"all {there[0]}" if len(there) == 1 else ", ".join(f"some {outcome}" for outcome in there)


def lines_of(path: Path) -> list[dict[str, Any]]:
    """The lines of a file; the last one may be torn, as it is cut when the run is gone on with."""
    return [orjson.loads(line) for line in path.read_bytes().split(b"\n")[:-1]] if path.exists() else []
