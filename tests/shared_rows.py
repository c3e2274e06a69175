"""Real rows of public data sets. They are extra material beside the repository: a test that needs them is skipped without."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

SHARED = Path(os.environ.get("GYM_SHARED") or Path(__file__).resolve().parents[2] / "shared")


def shared_rows(name: str) -> list[dict[str, Any]]:
    """The rows of a file, in its order."""
    path = SHARED / "data" / "swe_rows" / name
    if not path.is_file():
        pytest.skip(f"real rows are extra material, looked for in {path} (GYM_SHARED)")
    return [json.loads(line) for line in path.read_text().splitlines()]
