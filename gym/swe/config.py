"""The configuration of SWE task servers. Times in seconds."""

from typing import Literal

from pydantic import Field, field_validator

from gym.config.schema import ResourcesServerConfig
from gym.sandbox.spec import SandboxSpec
from gym.swe.profile import image_from_template


class SweConfig(ResourcesServerConfig):
    """What every SWE data set may set."""

    sandbox_provider: str = "sandbox"
    """The name of the top-level provider block that sandboxes are made with."""
    sandbox_config: SandboxSpec = Field(default_factory=SandboxSpec)
    """What each sandbox is like; the image and the work tree come from the row."""
    evaluation_timeout: float = Field(default=1_800, gt=0)
    """The longest that one run of the tests may take."""
    setup_timeout: float = Field(default=600, gt=0)
    """The longest that one step of preparing a sandbox, or of capturing the patch, may take."""
    inconclusive_verification_retries: int = Field(default=1, ge=0)
    """Further tries, each in a fresh sandbox, after one that gave no verdict."""
    patch_capture_mode: Literal["worktree"] = "worktree"
    include_model_patch_in_response: bool = True
    apply_anti_cheating: bool = True
    """Scrub the history past the base commit before the agent starts."""
    image_template: str | None = None
    """The image's name in place of the row's and the data set's own, e.g. `mirror/{instance_id_s}:latest`; see docs/swe.md."""

    @field_validator("image_template")
    @classmethod
    def _template_can_be_filled_in(cls, template: str | None) -> str | None:
        if template is not None:
            image_from_template(template, "an__instance-1")
        return template
