"""The row schema of SWE-Gym."""

from pydantic import BaseModel, ConfigDict


class TaskData(BaseModel):
    """A row as it is published; see the README for what each field does.

    `image_name`, `test_cmd` and `install` are not published; where a row has them, they take the table's place.
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
    image_name: str | None = None
    test_cmd: str | None = None
    install: str | None = None
