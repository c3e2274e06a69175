"""Makes the rows of R2E-Gym: commits of Python repositories, with the outcome of every test after the commit.

The published rows have no id and no patch: both are made here, the patch from the contents of the
commit's files that are no tests.
"""

import difflib
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gym.tasks.prepare import Recipe, prepare_main
from gym.tasks.published import HubDataset

_ABSENT = ("", "/dev/null")
_SIDE_TABLES = ("parsed_commit_content", "execution_result_content", "prompt", "relevant_files")
"""Large columns that nothing reads once the patch is made; some of them give the solution away."""


def convert(row: dict[str, Any]) -> dict[str, Any]:
    """A row with an id and a gold patch."""
    commit, repo = row.get("commit_hash"), row.get("repo_name")
    if not isinstance(commit, str) or not isinstance(repo, str):
        raise ValueError("commit_hash and repo_name must be text")
    patch = row.get("patch")
    if patch is None:
        patch = "".join(_section(file) for file in _files(row))
    kept = {name: value for name, value in row.items() if name not in _SIDE_TABLES}
    return {"instance_id": f"{repo}__{commit}", **kept, "patch": patch, "language": "python"}


def _files(row: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The commit's text files that are no tests."""
    try:
        files = json.loads(row["parsed_commit_content"])["file_diffs"]
        for file in files:
            if not file.get("is_binary_file") and not _is_test(file["header"]["file"]["path"]):
                yield file
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"parsed_commit_content is not a commit: {type(error).__name__}: {error}") from error


def _is_test(path: str) -> bool:
    """As R2E-Gym tells tests from the rest."""
    *folders, name = path.split("/")
    return name.startswith("test_") or name.endswith("_test.py") or bool({"tests", "Tests", "test", "Test"} & set(folders))


def _section(file: dict[str, Any]) -> str:
    """One file's part of the patch, as git writes it."""
    path, old, new = file["header"]["file"]["path"], file["old_file_content"], file["new_file_content"]
    created, removed = old in _ABSENT, new in _ABSENT
    before, after = "" if created else old, "" if removed else new
    lines = list(
        difflib.unified_diff(
            _lines(before),
            _lines(after),
            "/dev/null" if created else f"a/{path}",
            "/dev/null" if removed else f"b/{path}",
        )
    )
    if not lines:
        return ""
    mode = "new file mode 100644\n" if created else "deleted file mode 100644\n" if removed else ""
    whole = (line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)
    return f"diff --git a/{path} b/{path}\n{mode}{''.join(whole)}"


def _lines(text: str) -> list[str]:
    """Lines as git sees them: a form feed or a carriage return ends none."""
    return io.StringIO(text, newline="\n").readlines()


RECIPE = Recipe(
    title="Make the rows of R2E-Gym (subset).",
    hub=HubDataset("R2E-Gym/R2E-Gym-Subset", "train"),
    output=Path("resources_servers/r2e_gym/data/r2e_gym_train.jsonl"),
    template=Path("benchmarks/swebench/prompt.md"),
    server=Path("resources_servers/r2e_gym"),
    convert=convert,
    fixed={"dataset_name": "R2E-Gym/R2E-Gym-Subset", "split": "train"},
    prompt_fields={"workdir": lambda row: "/testbed"},
)

if __name__ == "__main__":
    prepare_main(RECIPE)
