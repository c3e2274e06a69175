# Sourced by the other scripts: makes `.venv` what uv.lock says, and puts it first on PATH.
#
#   sync_environment        call it in the repository's root
#
# Takes uv from $UV, PATH or .venv; where there is none, from the package registry into build/uv.
# An interpreter is looked for on this machine and never downloaded.
#
#   PYTHON   the interpreter to use (default: the newest 3.11 to 3.13 on PATH)

die() {
  echo "${0##*/}: $*" >&2
  exit 1
}

is_python() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; }

find_python() {
  local name
  for name in ${PYTHON:-python3.13 python3.12 python3.11 python3 python}; do
    if command -v "$name" >/dev/null && is_python "$name"; then
      "$name" -c 'import sys; print(sys.executable)'
      return
    fi
  done
  [ -z "${PYTHON:-}" ] || die "PYTHON=$PYTHON is not a Python of version 3.11 or newer"
  die "no Python of version 3.11 or newer is on PATH: install one, or set PYTHON to it"
}

find_uv() {
  local candidate
  for candidate in "${UV:-}" "$(command -v uv || true)" .venv/bin/uv build/uv/bin/uv; do
    if [ -n "$candidate" ] && "$candidate" --version >/dev/null 2>&1; then
      echo "$candidate"
      return
    fi
  done
  rm -rf build/uv
  # Debian's Python comes without ensurepip; its pip can install into a folder all the same.
  if "$1" -m venv build/uv >/dev/null 2>&1 && build/uv/bin/python -m pip install -q uv >&2; then
    echo build/uv/bin/uv
  elif rm -rf build/uv && "$1" -m pip install -q --target build/uv uv >&2; then
    echo build/uv/bin/uv
  else
    die "uv is missing and could not be installed with $1: install it (pip install uv) or set UV to it"
  fi
}

sync_environment() {
  local python uv
  # What is there already and good enough stays: another interpreter would rebuild everything.
  if [ -z "${PYTHON:-}" ] && [ -x .venv/bin/python ] && is_python .venv/bin/python; then
    python=$PWD/.venv/bin/python
  else
    python=$(find_python)
  fi
  uv=$(find_uv "$python")
  UV_PYTHON_DOWNLOADS=never "$uv" sync --quiet --locked --python "$python" || die "the environment could not be made from uv.lock"
  export PATH="$PWD/.venv/bin:$PATH" VIRTUAL_ENV="$PWD/.venv"
  # Container images often set it; every process that the tests start would compile everything anew.
  unset PYTHONDONTWRITEBYTECODE
}
