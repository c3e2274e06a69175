"""The row schema of SWE-bench Pro."""

from pydantic import BaseModel, ConfigDict


class TaskData(BaseModel):
    """A row with the scripts that the data set's evaluator keeps beside it; see the README for what each field does.

    `image` and `workdir` are not published; where a row has them, they take the place of the published ones.
    """

    model_config = ConfigDict(extra="allow")

    instance_id: str
    base_commit: str
    patch: str
    test_patch: str
    problem_statement: str
    fail_to_pass: str | list[str]
    pass_to_pass: str | list[str]
    selected_test_files_to_run: str | list[str]
    run_script: str
    parser_script: str
    before_repo_set_cmd: str | None = None
    base_dockerfile: str | None = None
    instance_dockerfile: str | None = None
    dockerhub_tag: str | None = None
    image_digest: str | None = None
    image: str | None = None
    workdir: str | None = None
