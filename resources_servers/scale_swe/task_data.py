"""The row schema of Scale-SWE."""

from pydantic import BaseModel, ConfigDict


class TaskData(BaseModel):
    """A row as it is published; see the README for what each field does."""

    model_config = ConfigDict(extra="allow")

    instance_id: str
    workdir: str
    patch: str
    problem_statement: str
    FAIL_TO_PASS: str | list[str]
    PASS_TO_PASS: str | list[str]
    image_url: str | None = None
    pre_commands: str | None = None
    f2p_patch: str | None = None
    f2p_script: str | None = None
