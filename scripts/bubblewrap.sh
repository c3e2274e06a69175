#!/usr/bin/env bash
# Makes sure that bubblewrap is there, for the `local` sandbox provider: installs Debian's package if
# it is missing. Safe to repeat; says nothing if there was nothing to do.
set -euo pipefail

fail() {
  echo "bubblewrap.sh: $*" >&2
  exit 1
}

if command -v bwrap >/dev/null; then exit 0; fi
[ "$(id -u)" = 0 ] || fail "bwrap is missing, and installing it needs root"
command -v apt-get >/dev/null || fail "bwrap is missing, and there is no apt-get to install it with: install bubblewrap by hand"
export DEBIAN_FRONTEND=noninteractive
echo "bubblewrap.sh: installing bubblewrap" >&2
apt-get -qq update >&2 || fail "apt-get update failed"
apt-get -qq install -y --no-install-recommends bubblewrap >/dev/null || fail "apt-get could not install bubblewrap"
