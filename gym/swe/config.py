"""The configuration of SWE task servers. Times in seconds."""

from typing import Literal

from pydantic import Field, field_validator

from gym.config.schema import ResourcesServerConfig
from gym.sandbox.spec import SandboxSpec
from gym.swe.rows import image_from_template


class SweConfig(ResourcesServerConfig):
    """What every SWE data set may set."""

    sandbox_provider: str = "sandbox"
    """The name of the top-level provider block that sandboxes are made with."""
    sandbox_config: SandboxSpec = Field(default_factory=SandboxSpec)
    """What each sandbox is like; the image and the work tree come from the row."""
    derive_cpu_env: bool = True
    """Tell libraries and build tools in a sandbox how many CPUs `sandbox_config.resources` allows; they would count the host's."""
    evaluation_timeout: float = Field(default=1_800, gt=0)
    """The longest that one run of the tests may take."""
    verification_total_timeout: float | None = Field(default=None, gt=0)
    """The longest that all tries at a verdict may take together; None: as long as they need."""
    setup_timeout: float = Field(default=600, gt=0)
    """The longest that one step of preparing a sandbox, or of capturing the patch, may take."""
    inconclusive_verification_retries: int = Field(default=1, ge=0)
    """Further tries, each in a fresh sandbox, after one that gave no verdict."""
    patch_capture_mode: Literal["worktree", "committed"] = "worktree"
    """What is judged: the work tree, or the most advanced commit of HEAD and the local branches."""
    include_model_patch_in_response: bool = True
    """Put the patch that was judged into the row (`model_patch`)."""
    apply_anti_cheating: bool = True
    """Scrub the history past the base commit before the agent starts, and plant a test that must fail among the graded ones."""
    is_verifying_golden_patch: bool = False
    """Judge every row's gold patch, whatever the agent did; no task sandbox is made."""
    grade_empty_patch: bool = False
    """Run the tests although nothing was changed: how a check learns whether a task's tests fail without a solution."""
    image_template: str | None = None
    """The image's name in place of the row's and the data set's own, e.g. `mirror/{instance_id_s}:latest`; see docs/swe.md."""

    @field_validator("image_template")
    @classmethod
    def _template_can_be_filled_in(cls, template: str | None) -> str | None:
        if template is not None:
            image_from_template(template, "an__instance-1")
        return template


_CPU_COUNTS = (
    *("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS", "RAYON_NUM_THREADS", "GOMAXPROCS"),
    *("CARGO_BUILD_JOBS", "CMAKE_BUILD_PARALLEL_LEVEL", "UV_CONCURRENT_BUILDS"),
)


def cpu_environment(cpu: float | None) -> dict[str, str]:
    """Variables that keep libraries and build tools to so many CPUs (at least one); none without a limit."""
    return {} if cpu is None else dict.fromkeys(_CPU_COUNTS, str(max(1, int(cpu))))
