#!/usr/bin/env bash
# Builds the image that test tasks start from: a small Debian with git, Python and what tests need,
# made by debootstrap from the mirror that apt uses here. No image registry is asked.
#
#   build_base_image.sh [TAG] [SUITE]     default: gym-base:bookworm bookworm
#
# An image of that tag is left as it is. Takes about 90 s and 300 MB; needs root and Debian's tools.
set -euo pipefail

tag=${1:-gym-base:bookworm}
suite=${2:-bookworm}

fail() {
  echo "build_base_image.sh: $*" >&2
  exit 1
}

docker version >/dev/null 2>&1 || fail "no Docker engine answers: run scripts/docker_engine.sh first"
if docker image inspect "$tag" >/dev/null 2>&1; then exit 0; fi
[ "$(id -u)" = 0 ] || fail "image $tag is missing, and building it needs root"
if ! command -v debootstrap >/dev/null; then
  command -v apt-get >/dev/null || fail "debootstrap is missing, and there is no apt-get to install it with"
  apt-get -qq update >&2
  DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends debootstrap >/dev/null || fail "apt-get could not install debootstrap"
fi

mirror=$(apt-get indextargets --format '$(REPO_URI)' 2>/dev/null | sort -u | grep -E '/debian/?$' | head -n 1 || true)
mirror=${GYM_DEBIAN_MIRROR:-${mirror:-http://deb.debian.org/debian}}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

echo "build_base_image.sh: building $tag ($suite from $mirror)" >&2
debootstrap --variant=minbase --include=ca-certificates,git,patch,procps,python3,python3-pip,python3-venv \
  "$suite" "$work/root" "$mirror" >"$work/log" 2>&1 || {
  tail -n 20 "$work/log" >&2
  fail "debootstrap of $suite from $mirror failed"
}
rm -rf "$work"/root/var/cache/apt/archives/*.deb "$work"/root/var/lib/apt/lists/*
tar --directory "$work/root" --numeric-owner --create . | docker import --change 'CMD ["/bin/bash"]' - "$tag" >/dev/null
