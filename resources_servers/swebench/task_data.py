"""The row schema of SWE-bench Verified."""

from pydantic import BaseModel, ConfigDict


class TaskData(BaseModel):
    """A row as it is published; see the README for what each field does.

    `image`, `eval_script`, `eval_type` and `log_parser` come with rows of newer data sets, and then take the package's place.
    """

    model_config = ConfigDict(extra="allow")

    instance_id: str
    repo: str
    version: str
    base_commit: str
    patch: str
    test_patch: str
    problem_statement: str
    FAIL_TO_PASS: str | list[str]
    PASS_TO_PASS: str | list[str]
    image: str | None = None
    eval_script: str | None = None
    eval_type: str | None = None
    log_parser: str | None = None
