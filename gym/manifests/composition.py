"""What a config says of the fields that its manifest mirrors.

Owns how a config is composed for that: offline, without `env.yaml`, with stand-ins for what each
user gives by themselves (the policy model and where it is), so that the answer is the same for all.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, cast

from gym.config import Examined, examine
from gym.config.plan import Instance, Plan, Route
from gym.config.roots import search_roots
from gym.manifests.places import Overlay
from gym.manifests.schema import ManifestDataset
from gym.sandbox.lint import check_sandboxes

_GIVEN = {"policy_base_url": "http://127.0.0.1:1/v1", "policy_api_key": "x", "policy_model_name": "policy"}
_STAND_IN = "scripted_model"
_METADATA = "default_metadata"
_NOT_PREPARED = {"data-not-prepared"}
_LEFT_TO_USERS = {"missing-value", "missing-environment"}


@dataclass(frozen=True)
class Composition:
    """The mirrored fields; None where the config has nothing of the kind, a list where it has several."""

    resources_server: str | list[str] | None
    agent_server: str | list[str] | None
    model_server: str | list[str] | None
    sandbox: str | list[str] | None
    datasets: list[ManifestDataset]
    domain: str | None
    """Not mirrored, only compared."""


def examine_offline(overlay: Overlay) -> Examined:
    """The config with stand-ins. Data that are not prepared are no problem here, nor what a server leaves to those who inherit."""
    roots = list(dict.fromkeys([overlay.root, *search_roots()]))
    alone = examine([overlay.path], roots=roots, env={}, with_env_file=False)
    given = [f"{key}={value}" for key, value in _GIVEN.items() if alone.resolved.get(key) is None]
    model_type = None if "policy_model" in alone.resolved else _STAND_IN
    found = examine([overlay.path], given, model_type=model_type, roots=roots, env={}, with_env_file=False)
    allowed = _NOT_PREPARED if overlay.is_recipe else _NOT_PREPARED | _LEFT_TO_USERS
    problems = [problem for problem in found.problems if problem.rule not in allowed]
    return replace(found, problems=[*problems, *check_sandboxes(found)])


def composition_of(plan: Plan) -> Composition:
    """The environments that data sets go to; all of them where there are no data sets, and the servers alone where there is neither."""
    declaring = list(dict.fromkeys(binding.instance for binding in plan.datasets))
    routes = [route for route in plan.environments.values() if not declaring or {route.resources, route.agent} & set(declaring)]
    resources = _instances(plan, (route.resources for route in routes)) or _of_kind(plan, "resources_servers", declaring)
    agents = _instances(plan, (route.agent for route in routes)) or _of_kind(plan, "responses_api_agents", declaring)
    return Composition(
        resources_server=_one(instance.implementation for instance in resources),
        agent_server=_one(instance.implementation for instance in agents),
        model_server=_one(name for name in _models(plan, routes, agents)),
        sandbox=_one(_providers(plan, [*resources, *agents])),
        datasets=[_dataset(entry) for name in declaring for entry in cast("list[Any]", plan.instances[name].raw["datasets"])],
        domain=next((domain for instance in resources if (domain := getattr(instance.config, "domain", None))), None),
    )


def _instances(plan: Plan, names: Iterable[str | None]) -> list[Instance]:
    return [plan.instances[name] for name in dict.fromkeys(names) if name is not None and name in plan.instances]


def _of_kind(plan: Plan, kind: str, declaring: list[str]) -> list[Instance]:
    found = [instance for instance in plan.instances.values() if instance.kind == kind]
    return [instance for instance in found if instance.name in declaring] or found


def _models(plan: Plan, routes: list[Route], agents: list[Instance]) -> list[str]:
    bound = [route.model for route in routes if route.model is not None]
    own = [agent.references["model_server"].name for agent in agents if "model_server" in agent.references]
    return bound or own


def _providers(plan: Plan, instances: list[Instance]) -> Iterable[str]:
    for instance in instances:
        block = plan.sandbox_providers.get(str(instance.raw.get("sandbox_provider")), {})
        yield from (key for key in block if key != _METADATA)


def _dataset(entry: Any) -> ManifestDataset:
    """As the config writes it, paths included."""
    written = cast("dict[str, Any]", entry)
    return ManifestDataset.model_validate({name: written[name] for name in ManifestDataset.model_fields if written.get(name) is not None})


def _one(names: Iterable[str]) -> str | list[str] | None:
    distinct = list(dict.fromkeys(names))
    return distinct or None if len(distinct) != 1 else distinct[0]
