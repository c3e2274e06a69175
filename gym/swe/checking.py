"""The configuration with which tasks are checked: the recipe's own server, twice, with two agents that need no model.

The *oracle* applies the gold patch on the path of any harness, and must resolve every task; the
*no-op* agent does nothing, its empty patch is graded all the same, and it must resolve none.
"""

import json
from collections.abc import Mapping
from typing import Any, cast

from gym.config.errors import UserError, did_you_mean, listed
from gym.config.plan import Instance, Plan
from gym.swe.config import SweConfig

ORACLE, NOOP = "check_oracle", "check_noop"
"""The two environment servers of a check."""

_AGENTS = {ORACLE: "oracle_agent", NOOP: "noop_agent"}
_CLEANUP_SECONDS = 180.0
_LONGEST_EPISODE_SECONDS = 21_600.0
_OF_A_RECIPE = (
    "config_paths",
    "policy_base_url",
    "policy_api_key",
    "policy_model_name",
    "environment_server_routes",
    "environment_server_name",
    "agent_name",
)
_OF_ONE_USE = ("allowed_agents", "expose_gold_to", "datasets", "is_verifying_golden_patch", "grade_empty_patch", "host", "port")
"""Keys of a server that say who uses it and for what, and nothing about its tasks."""


def checkable(plan: Plan, name: str | None) -> Instance:
    """The SWE server of a recipe whose tasks are to be checked: the one called `name`, else the only one. Raises UserError."""
    servers = {key: instance for key, instance in plan.instances.items() if isinstance(instance.config, SweConfig)}
    if name is not None:
        if name not in servers:
            raise UserError(f"--resources-server {name}: the configuration has no such server of SWE tasks — {did_you_mean(name, servers)}")
        return servers[name]
    if not servers:
        raise UserError(
            "the configuration has no server of SWE tasks, and only their tasks can be checked: give a config of one with --config"
        )
    different = {json.dumps([instance.implementation, _tasks_of(instance)], sort_keys=True): key for key, instance in servers.items()}
    if len(different) > 1:
        raise UserError(f"there is more than one server of SWE tasks ({listed(sorted(servers))}): choose with --resources-server")
    return servers[next(iter(different.values()))]


def check_config(plan: Plan, server: Instance) -> dict[str, Any]:
    """A whole configuration: provider blocks and settings of the recipe, `server` twice, and what runs episodes on them."""
    others = {key: value for key, value in plan.resolved.items() if key not in plan.instances and key not in _OF_A_RECIPE}
    config = cast("SweConfig", server.config)
    ttl = config.sandbox_config.ttl_s
    episode = _LONGEST_EPISODE_SECONDS if ttl is None else min(_LONGEST_EPISODE_SECONDS, max(1.0, ttl - 3 * _CLEANUP_SECONDS - 1))
    made: dict[str, Any] = {
        **others,
        "config_paths": [
            "responses_api_agents/oracle_agent/configs/oracle_agent.yaml",
            "responses_api_agents/noop_agent/configs/noop_agent.yaml",
            "environment_servers/single_agent_turn/configs/single_agent_turn.yaml",
        ],
    }
    for environment, agent in _AGENTS.items():
        use = {"expose_gold_to": [agent]} if environment == ORACLE else {"grade_empty_patch": True}
        block = {**_tasks_of(server), "allowed_agents": [agent], **use}
        made[f"{environment}_tasks"] = {server.kind: {server.implementation: block}}
        made[f"{environment}_agent"] = {"_inherit_from": agent}
        body: dict[str, Any] = {
            "resources_server": {"type": server.kind, "name": f"{environment}_tasks"},
            "agent_server": {"type": "responses_api_agents", "name": f"{environment}_agent"},
            "resources_tool_transports": ["direct_http"],
            "default_episode_timeout_seconds": episode,
            "cleanup_timeout_seconds": _CLEANUP_SECONDS,
        }
        made[environment] = {"_inherit_from": "single_agent_turn", "environment_servers": {"single_agent_turn": body}}
    return made


def _tasks_of(server: Instance) -> Mapping[str, Any]:
    """What the server's block says of its tasks."""
    return {key: value for key, value in server.raw.items() if key not in _OF_ONE_USE}
