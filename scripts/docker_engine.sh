#!/usr/bin/env bash
# Makes sure that a Docker engine answers on this machine: installs Debian's docker.io if there is
# no engine, and starts it if none runs. Safe to repeat; says nothing if there was nothing to do.
#
#   DOCKERD_LOG   where a dockerd started here writes (default /var/log/gym-dockerd.log)
set -euo pipefail

fail() {
  echo "docker_engine.sh: $*" >&2
  exit 1
}

answers() { timeout 20 docker version --format '{{.Server.Version}}' >/dev/null 2>&1; }

if command -v docker >/dev/null && answers; then exit 0; fi
[ -z "${DOCKER_HOST:-}" ] || fail "DOCKER_HOST is $DOCKER_HOST, and no engine answers there: start that one, or unset DOCKER_HOST"
[ "$(id -u)" = 0 ] || fail "no Docker engine answers, and installing or starting one needs root"

if ! command -v dockerd >/dev/null || ! command -v docker >/dev/null; then
  command -v apt-get >/dev/null || fail "no Docker engine is installed, and only Debian's can be installed from here: install one by hand"
  export DEBIAN_FRONTEND=noninteractive
  echo "docker_engine.sh: installing docker.io" >&2
  apt-get -qq update >&2 || fail "apt-get update failed"
  # The client is a package of its own on newer releases.
  packages=(docker.io iptables ca-certificates)
  if apt-cache show docker-cli >/dev/null 2>&1; then packages+=(docker-cli); fi
  apt-get -qq install -y --no-install-recommends "${packages[@]}" >/dev/null || fail "apt-get could not install ${packages[*]}"
fi
if answers; then exit 0; fi # the package started it

if [ -d /run/systemd/system ]; then
  systemctl start docker >&2 || true
else
  log=${DOCKERD_LOG:-/var/log/gym-dockerd.log}
  echo "docker_engine.sh: starting dockerd, log in $log" >&2
  setsid nohup dockerd >>"$log" 2>&1 </dev/null &
fi
for _ in $(seq 60); do
  if answers; then exit 0; fi
  sleep 1
done
[ -z "${log:-}" ] || tail -n 20 "$log" >&2
fail "a Docker engine was started and did not answer within 60 s"
