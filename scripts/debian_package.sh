# Sourced by the scripts that make sure of one program: installs Debian's package if none of its names is on PATH.
#
#   debian_package PACKAGE TITLE NAME...   safe to repeat; says nothing if there was nothing to do

fail() {
  echo "${0##*/}: $*" >&2
  exit 1
}

debian_package() {
  local package=$1 title=$2 name
  shift 2
  for name in "$@"; do
    if command -v "$name" >/dev/null; then return; fi
  done
  [ "$(id -u)" = 0 ] || fail "$title is missing, and installing it needs root"
  command -v apt-get >/dev/null || fail "$title is missing, and there is no apt-get to install it with: install $package by hand"
  export DEBIAN_FRONTEND=noninteractive
  echo "${0##*/}: installing $package" >&2
  apt-get -qq update >&2 || fail "apt-get update failed"
  apt-get -qq install -y --no-install-recommends "$package" >/dev/null || fail "apt-get could not install $package"
}
