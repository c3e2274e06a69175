"""An agent for tests: makes calls from within the borrowed sandbox, as a harness would, and tells what came of each."""

import json
from typing import Any
from urllib.parse import urlsplit

from responses_api_agents.inside_agent.config import Config

from gym.protocol.access import DirectHTTPToolAccess
from gym.protocol.responses import Response, ResponseCreateParams, assistant_message
from gym.sandbox.handles import BorrowedSandbox
from gym.sandbox.registry import provider_from_block
from gym.servers import AgentServer, AgentSession

CONTROL = [("POST", p) for p in ("/v1/responses", "/run", "/seed_session", "/verify", "/close_session", "/drain", "/v1/agent_sessions")]
CONTROL += [("GET", p) for p in ("/v1/models", "/status", "/readyz", "/server_instances")]

PROBE = """
import json, socket, sys, urllib.request
calls, forbidden = json.load(sys.stdin)
said = {}
for name, method, url, headers in calls:
    body = json.dumps({"input": "q", "metadata": {"script": '[{"say": "hi"}]'}}).encode() if method == "POST" else None
    request = urllib.request.Request(url, body, {"content-type": "application/json", **headers}, method=method)
    try:
        with urllib.request.urlopen(request, timeout=10) as reply:
            said[name] = [reply.status, reply.read().decode()]
    except urllib.error.HTTPError as error:
        said[name] = [error.code, error.read().decode()]
    except OSError as error:
        said[name] = [0, str(error)]
for address in forbidden:
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), 2).close()
        said[address] = [1, "connected"]
    except OSError as error:
        said[address] = [0, type(error).__name__]
print(json.dumps(said))
"""


class InsideAgent(AgentServer[BorrowedSandbox]):
    """Its answer is a JSON object: what was called -> status and body."""

    config: Config

    async def open_session(self, session: AgentSession[BorrowedSandbox]) -> None:
        """Borrow the sandbox."""
        assert session.sandbox_access is not None
        block = session.sandbox_access.connection.provider_config_ref
        provider = provider_from_block(block, self.context.sandbox_providers[block])
        session.on_release("the provider", provider.aclose)
        session.state = await BorrowedSandbox.connect(session.sandbox_access, {block: provider})

    async def respond(self, session: AgentSession[BorrowedSandbox], params: ResponseCreateParams, prefix: str) -> Response:
        """Call what may be called, and what may not, with every token there is."""
        assert session.episode_id is not None
        assert self.config.model_server is not None
        (grant,) = [access for access in session.tool_accesses if isinstance(access, DirectHTTPToolAccess)]
        model = await self.url_inside(session, session.state, self.config.model_server)
        tools = await self.url_inside(session, session.state, grant.base_url)
        mine = {"authorization": f"Bearer {self.context.credentials.rollout_token(session.episode_id.capture_key)}"}
        control = self.context.credentials.headers()
        cookie = {"cookie": "; ".join(f"{name}={value}" for name, value in grant.cookies.items())}
        calls: list[Any] = [
            ("model", "POST", f"{model}{prefix}/v1/responses", mine),
            ("model of another rollout", "POST", f"{model}/ng-rollout/another/v1/responses", mine),
            ("model with the run's token", "POST", f"{model}{prefix}/v1/responses", control),
            ("model without a token", "POST", f"{model}{prefix}/v1/responses", {}),
            ("tool", "POST", f"{tools}/touch", cookie),
            ("tool without a cookie", "POST", f"{tools}/touch", control),
            ("health", "GET", f"{model}/healthz", {}),
        ]
        for url in (model, tools):
            calls += [(f"control {method} {url}{path}", method, f"{url}{path}", control | cookie) for method, path in CONTROL]
        gateway = urlsplit(model).hostname
        own = [urlsplit(self.context.info(name).url).netloc for name in (self.config.model_server.name, self.context.instance)]
        ports = [netloc.rpartition(":")[2] for netloc in own if ":" in netloc]  # none where an instance has no control socket
        forbidden = [*(f"gateway:{port}" for port in ports), *self.config.forbidden]
        forbidden = [address.replace("gateway", str(gateway)) for address in forbidden]
        asked = json.dumps([calls, forbidden]).encode()
        result = await session.state.exec('python3 -c "$PROBE"', env={"PROBE": PROBE}, stdin=asked, timeout_s=60)
        text = result.stdout if result.ok else json.dumps({"failed": [result.return_code, result.stderr[-500:]]})
        return Response(id=f"resp_{session.id}", status="completed", output=[assistant_message(text)])
