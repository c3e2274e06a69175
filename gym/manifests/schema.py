"""What a manifest may say: the models, and their JSON Schema.

Owns names and types. Whether what is said agrees with the config is the business of `check`.
"""

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, field_validator

from gym.config.schema import Section

Text = Annotated[str, Field(min_length=1)]
Domain = Literal[
    "math",
    "coding",
    "agent",
    "knowledge",
    "instruction_following",
    "long_context",
    "safety",
    "games",
    "translation",
    "e2e",
    "rlhf",
    "other",
]
Names = Text | Annotated[list[Text], Field(min_length=2)]
"""One name, or a list where environments of one config differ."""

MIRRORED = ("resources_server", "agent_server", "model_server", "sandbox", "datasets")
"""The fields that repeat what the config says, in their order in a manifest; `--sync` rewrites these and no other."""

SCHEMA_ID = "environment-manifest.schema.json"


class Part(Section):
    """A mapping of a manifest; the text under a field is its description in the JSON Schema."""

    model_config = ConfigDict(use_attribute_docstrings=True, str_strip_whitespace=True)


class Reward(Part):
    """What a reward can be, and which is better."""

    range: tuple[float, float]
    """The least and the greatest reward."""
    higher_is_better: bool

    @field_validator("range")
    @classmethod
    def _range_rises(cls, value: tuple[float, float]) -> tuple[float, float]:
        if value[0] >= value[1]:
            least, greatest = sorted(value)
            message = f"the first number must be less than the second ({value[0]:g}, {value[1]:g})"
            raise ValueError(f"{message} — write the least first: [{least:g}, {greatest:g}]")
        return value


class ManifestDataset(Part):
    """A data set, as the config declares it."""

    name: Text
    type: Literal["train", "validation", "example", "benchmark"]
    taskset: Text | None = None
    jsonl_fpath: Text
    prepare_script: Text | None = None
    num_repeats: int = Field(default=1, ge=1)
    license: Text | None = None


class AdoptedFrom(Part):
    """Where an environment was taken over from."""

    source: Text
    """A repository or a package."""
    ref: Text
    """The revision of it."""
    reconciled: Annotated[str, Field(pattern=r"^\d{4}-\d{2}-\d{2}$")]
    """When the two were last compared: year-month-day."""


class Manifest(Part):
    """An environment, or a benchmark, for those who choose one."""

    name: Text
    """The path of the config without `benchmarks/`, `resources_servers/`, `configs/` and ending."""
    version: Text
    """Raise it when scores are no longer comparable."""
    experimental: bool = True
    """Whether it still lacks a result that others can compare with."""
    kind: Literal["environment", "benchmark"]
    integration_profile: Literal["custom-gym-verifier", "custom-gym-agent-loop", "external-agent-loop", "external-rollout-driver"]
    """Who acts: Gym's plain tool loop, a harness with a loop of its own, an agent outside, or a driver of whole rollouts outside."""
    domain: Domain
    description: Text
    modality: Text
    """What the model sees, e.g. text."""
    licensing: Text = "unknown"
    """Of the environment's code: an SPDX expression, or internal, proprietary or unknown."""
    authors: list[Text] = Field(min_length=1)
    reward: Reward
    determinism: Literal["seeded", "stochastic", "unknown"] = "unknown"
    """Whether the environment itself, the model apart, does the same again."""
    config_path: Text
    """The config, relative to this file."""
    resources_server: Names | None = None
    """Implementation of the resources server."""
    agent_server: Names | None = None
    """Implementation of the agent."""
    model_server: Names | None = None
    """The instance that is the policy model."""
    sandbox: Names | None = None
    """Provider of the sandboxes that the config uses."""
    datasets: list[ManifestDataset] = Field(default_factory=list[ManifestDataset])
    canonical_split: Text | None = None
    """The split that scores are told of; a benchmark has one."""
    prompt_source: Literal["template", "prepared", "agent"] = "template"
    """Who words the task: a prompt template, the prepared rows, or the agent."""
    standard_prompt_config: Text | None = None
    """The template that scores of a benchmark are told with, where prompt_source is template."""
    session_model: Literal["episode", "step"] | None = None
    """How long a session of the resources server lasts."""
    state: Literal["none", "per_session"] | None = None
    grading_mode: Text | None = None
    """How the verdict is reached, e.g. tests or judge."""
    adopted_from: AdoptedFrom | None = None
    lifecycle: Literal["active", "deprecated"] = "active"

    @field_validator("authors")
    @classmethod
    def _authors_differ(cls, value: list[str]) -> list[str]:
        if len(set(value)) < len(value):
            raise ValueError("an author is named twice — name each once")
        return value


def json_schema() -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of a manifest, with what a benchmark must have besides."""
    schema = Manifest.model_json_schema()
    benchmark = {"kind": {"const": "benchmark"}}
    conditions = [
        {"if": {"properties": benchmark, "required": ["kind"]}, "then": {"required": ["canonical_split"]}},
        {
            "if": {"properties": {**benchmark, "prompt_source": {"const": "template"}}, "required": ["kind"]},
            "then": {"required": ["standard_prompt_config"]},
        },
        {
            "if": {"properties": {"prompt_source": {"not": {"const": "template"}}}, "required": ["prompt_source"]},
            "then": {"properties": {"standard_prompt_config": {"type": "null"}}},
        },
    ]
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": SCHEMA_ID, **schema, "allOf": conditions}
