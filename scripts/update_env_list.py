#!/usr/bin/env python3
"""Writes the README's table of environments from their manifests.

scripts/update_env_list.py [--check]      --check writes nothing, and fails if the table is not what the manifests say
"""

import sys
from pathlib import Path

from gym.config.roots import INSTALL_ROOT
from gym.manifests.catalog import catalog

README = Path(__file__).resolve().parents[1] / "README.md"
START, END = "<!-- environments: written by scripts/update_env_list.py -->\n", "<!-- end of environments -->\n"


def table() -> str:
    """One line for each environment."""
    lines = ["| environment | kind | status | agent | data sets | what it is |", "|---|---|---|---|---|---|"]
    for entry in catalog([INSTALL_ROOT]):
        link = f"[{entry.name}]({entry.overlay.relative})"
        cells = [link, entry.fields["kind"], entry.state, entry.agents, entry.datasets, entry.fields["description"]]
        lines.append("| " + " | ".join(str(cell).replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def main() -> int:
    """Write the table, or say that it differs."""
    text = README.read_text()
    before, _, rest = text.partition(START)
    after = rest.partition(END)[2]
    wanted = f"{before}{START}{table()}{END}{after}"
    if wanted == text:
        return 0
    if "--check" in sys.argv[1:]:
        print("the table of README.md is not what the manifests say: run scripts/update_env_list.py", file=sys.stderr)
        return 1
    README.write_text(wanted)
    return 0


if __name__ == "__main__":
    sys.exit(main())
