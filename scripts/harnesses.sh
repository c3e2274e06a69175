#!/usr/bin/env bash
# Makes sure that the programs of command-line agents are in the cache, for sandboxes of tests: takes them
# from npm, and from a Python 3.12 with packages from the registry. Safe to repeat; says nothing if there
# was nothing to do. Run it in the environment that scripts/environment.sh makes.
set -euo pipefail
cd "$(dirname "$0")/.."

fail() {
  echo "harnesses.sh: $*" >&2
  exit 1
}

install() {
  [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null || return 0  # what is missing is said below
  echo "harnesses.sh: installing $1" >&2
  export DEBIAN_FRONTEND=noninteractive
  apt-get -qq update >&2 && apt-get -qq install -y --no-install-recommends "$1" >/dev/null || true
}

python -c 'from gym.harness.interpreter import find_interpreter; find_interpreter("3.12", print)' >/dev/null 2>&1 || install python3.12
command -v npm >/dev/null || install npm
python - <<'EOF' || fail "a program could not be made"
import os
import sys
from pathlib import Path

from gym.config.errors import UserError
from gym.harness.bundle import ensure
from responses_api_agents.hermes_agent.adapter import BUNDLE as HERMES
from responses_api_agents.nooa_agent.adapter import BUNDLE as NOOA
from responses_api_agents.opencode_agent.adapter import BUNDLE as OPENCODE

cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gym"
try:
    for bundle in (OPENCODE, HERMES, NOOA):
        ensure(bundle, cache, lambda text: print(f"harnesses.sh: {text}", file=sys.stderr))
except UserError as error:
    sys.exit(f"harnesses.sh: {error}")
EOF
