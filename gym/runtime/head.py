"""The head server: where other commands, and trainers, ask what is running.

Its routes need the run's token. The configuration that it shows has its secrets masked.
"""

import hashlib
from typing import Any

import orjson
import yaml

from gym.config.digests import key_digests
from gym.config.plan import Plan
from gym.protocol import routes
from gym.runtime.prepare import Running
from gym.runtime.status import status_of
from gym.servers.http import Access, Answer, Call, Endpoint, Handler
from gym.servers.routing import Router


def server_blocks_digest(plan: Plan) -> dict[str, str]:
    """A digest of each instance's block: what a collector's own configuration is compared with."""
    return {
        name: hashlib.sha256(orjson.dumps([i.kind, i.implementation, i.raw], option=orjson.OPT_SORT_KEYS, default=str)).hexdigest()[:16]
        for name, i in plan.instances.items()
    }


def head_app(running: Running) -> Router:
    """The head server's application for a run that is up."""

    async def server_instances(call: Call) -> Any:
        return {
            "run_id": running.run_id,
            "instances": [
                {
                    "name": info.name,
                    "kind": info.kind,
                    "implementation": info.implementation,
                    "url": info.url,
                    "headers": dict(info.headers),
                    "token_capture": info.token_capture,
                    "remote": info.remote,
                    "published": dict(info.published),
                }
                for info in running.peers.values()
            ],
            "routes": {name: vars(route) for name, route in running.plan.routes.items()},
            "environments": {name: vars(route) for name, route in running.plan.environments.items()},
            "episode_timeouts": running.plan.episode_timeouts,
            "datasets": [{"instance": b.instance, **b.dataset.model_dump(mode="json")} for b in running.plan.datasets],
            "blocks": server_blocks_digest(running.plan),
            "config_keys": key_digests(running.plan),
        }

    async def global_config(call: Call) -> Answer:
        from gym.config.masking import masked

        text = yaml.safe_dump(masked(running.plan.resolved), sort_keys=False)
        return Answer(text)

    async def status(call: Call) -> Any:
        return {"run_id": running.run_id, "instances": await status_of(running), "unreachable": running.published.unreachable}

    async def healthz(call: Call) -> Any:
        return {"status": "ok"}

    async def readyz(call: Call) -> Any:
        return {"status": "ok", "run_id": running.run_id}

    def route(path: str, handler: Handler, access: Access = Access.CONTROL) -> Endpoint:
        return Endpoint(path, handler, running.credentials, access, "GET", logged=False)

    return Router(
        [
            route("/", healthz, Access.OPEN),
            route(routes.HEALTH, healthz, Access.OPEN),
            route(routes.READY, readyz, Access.OPEN),
            route(routes.SERVER_INSTANCES, server_instances),
            route(routes.GLOBAL_CONFIG, global_config),
            route(routes.STATUS, status),
        ]
    )
