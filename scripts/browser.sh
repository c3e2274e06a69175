#!/usr/bin/env bash
# Makes sure that Chromium is there, for the tests of the report's page: installs Debian's package if
# it is missing. Safe to repeat; says nothing if there was nothing to do.
set -euo pipefail

fail() {
  echo "browser.sh: $*" >&2
  exit 1
}

for name in chromium chromium-browser google-chrome; do
  if command -v "$name" >/dev/null; then exit 0; fi
done
[ "$(id -u)" = 0 ] || fail "Chromium is missing, and installing it needs root"
command -v apt-get >/dev/null || fail "Chromium is missing, and there is no apt-get to install it with: install chromium by hand"
export DEBIAN_FRONTEND=noninteractive
echo "browser.sh: installing chromium" >&2
apt-get -qq update >&2 || fail "apt-get update failed"
apt-get -qq install -y --no-install-recommends chromium >/dev/null || fail "apt-get could not install chromium"
