#!/usr/bin/env bash
# Builds an image that has a static busybox and nothing else, no C library either: what programs that need one are tried against.
#
#   build_busybox_image.sh [TAG]     default: gym-test/busybox:latest
#
# An image of that tag is left as it is. Needs Debian's tools.
set -euo pipefail

tag=${1:-gym-test/busybox:latest}

fail() {
  echo "build_busybox_image.sh: $*" >&2
  exit 1
}

docker version >/dev/null 2>&1 || fail "no Docker engine answers: run scripts/docker_engine.sh first"
if docker image inspect "$tag" >/dev/null 2>&1; then exit 0; fi
command -v apt-get >/dev/null || fail "image $tag is missing, and there is no apt-get to fetch busybox with"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
chmod 755 "$work"

(cd "$work" && apt-get -qq download busybox-static >&2) || fail "apt-get could not download busybox-static (apt-get update first?)"
dpkg --extract "$work"/busybox-static_*.deb "$work/deb"
busybox=$(find "$work/deb" -path "*bin/busybox" -type f)
mkdir -p "$work"/root/{bin,tmp,etc,proc,root}
cp "$busybox" "$work/root/bin/busybox"
chmod 1777 "$work/root/tmp"
for name in $("$busybox" --list); do [ "$name" = busybox ] || ln -s busybox "$work/root/bin/$name"; done
echo 'root:x:0:0:root:/root:/bin/sh' >"$work/root/etc/passwd"
tar --directory "$work/root" --owner 0 --group 0 --create . | docker import --change 'ENV PATH=/bin' --change 'CMD ["/bin/sh"]' - "$tag" >/dev/null
