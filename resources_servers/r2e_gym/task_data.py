"""The row schema of R2E-Gym."""

from pydantic import BaseModel, ConfigDict


class TaskData(BaseModel):
    """A row; see the README for what each field does. `instance_id` and `patch` are not published: preparing the data set makes them."""

    model_config = ConfigDict(extra="allow")

    instance_id: str
    docker_image: str
    problem_statement: str
    expected_output_json: str | dict[str, str]
    repo_name: str | None = None
    commit_hash: str | None = None
    patch: str | None = None
