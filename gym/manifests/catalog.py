"""What environments there are: one entry for each manifest, and for each config that declares data sets without one.

Invariant: an entry is made of what its manifest says where that can be read, else of what its config
says. Nothing is hidden because it is wrong: its status says so, and `gym env validate --all` why.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from gym.config.errors import UserError, did_you_mean
from gym.config.plan import Plan
from gym.config.schema import ResourcesServerConfig
from gym.config.validate import validate
from gym.config.yamlfile import read_yaml
from gym.manifests.composition import composition_of, examine_offline
from gym.manifests.places import Overlay, overlays
from gym.manifests.schema import Manifest

STABLE, EXPERIMENTAL, NO_MANIFEST, INVALID = "stable", "experimental", "no-manifest", "invalid-manifest"


@dataclass(frozen=True)
class Entry:
    """One environment. `fields` are those of a manifest; without one, what the config says of them."""

    overlay: Overlay
    status: str
    fields: Mapping[str, Any]

    @property
    def name(self) -> str:
        """What it is called on the command line."""
        return self.overlay.name

    @property
    def state(self) -> str:
        """Whether to use it, for people."""
        return "deprecated" if self.fields.get("lifecycle") == "deprecated" else self.status

    @property
    def agents(self) -> str:
        """The agents' implementations, for people."""
        return as_text(self.fields.get("agent_server"))

    @property
    def datasets(self) -> str:
        """The data sets' names, for people."""
        return ", ".join(dataset["name"] for dataset in self._datasets)

    @property
    def commands(self) -> list[str]:
        """How to prepare its data and run it with a model that is named on the way; none for a server alone."""
        if self.fields.get("agent_server") is None:
            return []
        scripts = dict.fromkeys(dataset["prepare_script"] for dataset in self._datasets if dataset["prepare_script"])
        model = "" if self.fields.get("model_server") is None else " --model-type openai_model"
        run = f"gym eval run --config {self.overlay.relative}{model} --output results/{Path(self.name).name}.jsonl"
        return [*(f"python {script}" for script in scripts), run]

    @property
    def _datasets(self) -> list[dict[str, Any]]:
        return cast("list[dict[str, Any]]", self.fields.get("datasets") or [])

    def as_dict(self) -> dict[str, Any]:
        """Plain data; `manifest` is null where there is none."""
        manifest = str(self.overlay.manifest) if self.overlay.manifest.is_file() else None
        return {**self.fields, "name": self.name, "status": self.status, "config": str(self.overlay.path), "manifest": manifest}


def catalog(roots: Sequence[Path]) -> list[Entry]:
    """Every environment below the roots, by name. Of two with one name, the one of the earlier root."""
    found: dict[str, Entry] = {}
    for overlay in overlays(roots):
        entry = _entry(overlay) if overlay.name not in found else None
        if entry is not None:
            found[entry.name] = entry
    return list(found.values())


def find_entry(name: str, roots: Sequence[Path]) -> Entry:
    """The environment of that name, or whose config has that path. Raises UserError."""
    every = overlays(roots)
    for overlay in every:
        if name in (overlay.name, str(overlay.relative), str(overlay.path)) and (entry := _entry(overlay)) is not None:
            return entry
    hint = did_you_mean(name, [overlay.name for overlay in every], otherwise="see gym env list")
    raise UserError(f"there is no environment {name!r} — {hint}")


def as_text(value: Any) -> str:
    """One name, several, or none."""
    return value or "" if not isinstance(value, list) else ", ".join(map(str, value))  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]


def _entry(overlay: Overlay) -> Entry | None:
    status = NO_MANIFEST
    if overlay.manifest.is_file():
        manifest = _read(overlay.manifest)
        if manifest is not None:
            return Entry(overlay, EXPERIMENTAL if manifest.experimental else STABLE, manifest.model_dump(exclude={"config_path"}))
        status = INVALID
    plan = examine_offline(overlay).plan
    if plan is None or not plan.datasets:
        return None if status == NO_MANIFEST else Entry(overlay, status, {})
    return Entry(overlay, status, _fields(plan))


def _read(path: Path) -> Manifest | None:
    block, problems = read_yaml(path, path.name)
    return None if block is None or problems else validate(Manifest, (), block, ())[0]


def _fields(plan: Plan) -> dict[str, Any]:
    found = composition_of(plan)
    servers = [instance for instance in plan.instances.values() if isinstance(instance.config, ResourcesServerConfig)]
    is_benchmark = any(dataset.type == "benchmark" for dataset in found.datasets)
    return {
        "kind": "benchmark" if is_benchmark else "environment",
        "domain": found.domain,
        "description": next((server.config.description for server in servers if server.config.description), None),
        "resources_server": found.resources_server,
        "agent_server": found.agent_server,
        "model_server": found.model_server,
        "sandbox": found.sandbox,
        "datasets": [dataset.model_dump() for dataset in found.datasets],
    }
