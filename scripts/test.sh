#!/usr/bin/env bash
# Checks everything: lint, types, layers, and all tests. Arguments go to pytest.
#
#   scripts/test.sh [PYTEST ARGUMENT...]
#
# Tests that need a Docker engine or bubblewrap are skipped with a reason where there is none; with GYM_TEST_STRICT=1 they fail.
# Tests with a real vLLM engine (tests/engine) come last, and only where no arguments are given; without one they are skipped.
#
#   GYM_TEST_WORKERS   how many test processes run at once (default 2)
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/environment.sh
sync_environment

# Every check runs, so that one round shows all that is wrong; pytest's summary comes last.
failed=()
check() {
  echo "== $*"
  "$@" || failed+=("$*")
}
check ruff check
check pyright
check lint-imports
check deptry gym
check vulture
[ ${#failed[@]} = 0 ] || echo "== FAILED, the tests run all the same: ${failed[*]}"

# A test that fails beside others and passes alone met a busy machine; it is named, and worth steadying.
tests() {
  local code=0
  pytest "${workers[@]}" "$@" || code=$?
  if [ "$code" = 1 ]; then
    echo "== the failed tests once more, alone"
    code=0
    pytest --last-failed --last-failed-no-failures none "$@" || code=$?
  fi
  [ "$code" = 0 ] || status=$code
}

status=0
workers=(-n "${GYM_TEST_WORKERS:-2}")
echo "== pytest"
if [ $# != 0 ]; then
  tests "$@"
else
  tests --ignore tests/engine
  echo "== pytest with a real vLLM engine, which wants the machine for itself"
  workers=()
  tests tests/engine
fi
[ ${#failed[@]} = 0 ] || exit 1
exit "$status"
