"""What NOOA needs in a sandbox, and how its worker is started there.

The job comes on standard input and its access in one variable, which the worker takes out before anything of the agent runs.
HOME is left as the image has it, since the project's own caches may lie there.
"""

from pathlib import Path

from gym.harness.adapter import STDOUT, Ending, Launch, MCPServer, ModelAccess, Place, Transcript
from gym.harness.bundle import Bundle
from gym.harness.evidence import json_lines
from gym.harness.python_tree import PythonTree
from gym.harness.sources import Sources
from gym.protocol.errors import ContractError
from gym.protocol.responses import ResponseCreateParams
from responses_api_agents.nooa_agent.config import Config
from responses_api_agents.nooa_agent.jobs import TITLE
from responses_api_agents.nooa_agent.records import transcript_of

HOME = "/opt/nemo-gym-nooa"
"""Where the runtime is in a sandbox, mounted or copied."""
SESSIONS = "/tmp/nemo-gym-nooa"
ACCESS = "GYM_NOOA_ACCESS"

_HERE = Path(__file__).parent
_OURS = (
    "invocation.py",
    "bench_agent_adapter.py",
    "resource_agent.py",
    *sorted(f"runner/{path.name}" for path in _HERE.glob("runner/*.py")),
)
_KINDS = ("agent_run_error", "agent_request_failed", "transport_unreachable", "transport_peer_drop", "session_lost", "protocol_violation")
_SHELL = ("bash", "tar", "gzip", "sha256sum", "flock", "tee", "mv")
BUNDLE = Bundle(
    TITLE,
    (
        Sources(_HERE, _OURS, "site-packages/responses_api_agents/nooa_agent"),
        PythonTree(_HERE / "bundle.txt"),
    ),
    glibc=(2, 35),
    home=HOME,
    tools=_SHELL,
)


class Nooa:
    """NOOA in a sandbox."""

    title = TITLE
    bundle = BUNDLE
    kept = ()

    def __init__(self, config: Config) -> None:
        self._config = config

    def launch(self, params: ResponseCreateParams, model: ModelAccess, place: Place, servers: tuple[MCPServer, ...] = ()) -> Launch:
        """Not used: the server knows the grants, and calls `worker`."""
        raise ContractError(501, "NOOA is launched with its access")

    def worker(self, place: Place, access: str) -> Launch:
        """The worker, by the runtime's own Python."""
        module = "responses_api_agents.nooa_agent.runner.worker"
        return Launch((f"{place.binaries}/bin/python3", "-I", "-m", module), {ACCESS: access}, place.binaries)

    def read(self, evidence: Path, ending: Ending | None) -> Transcript:
        """What the worker said. A failure is of one of the kinds that stop no more than the episode, since the sandbox wrote it."""
        transcript = transcript_of(json_lines(evidence / STDOUT), ending)
        transcript.kind = transcript.kind if transcript.kind in _KINDS else "agent_request_failed"
        return transcript

    def tool_name(self, server: str, tool: str) -> str:
        """It has no tools over MCP."""
        return f"{server}_{tool}"
