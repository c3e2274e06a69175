"""docs/reference/ is what the code says, and says something of every key and option."""

import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
SCRIPT = REPOSITORY / "scripts" / "update_reference.py"


def test_the_reference_is_up_to_date() -> None:
    done = subprocess.run([sys.executable, str(SCRIPT), "--check"], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("page", ["commands.md", "configuration-keys.md"])
def test_nothing_is_left_without_a_meaning(page: str) -> None:
    rows = [line for line in (REPOSITORY / "docs/reference" / page).read_text().splitlines() if line.startswith("| `")]
    assert len(rows) > 50
    assert [row for row in rows if not row.rpartition("|")[0].rpartition(" | ")[2].strip()] == []
