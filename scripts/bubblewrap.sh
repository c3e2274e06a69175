#!/usr/bin/env bash
# Makes sure that bubblewrap is there, for the `local` sandbox provider.
set -euo pipefail
. "$(dirname "$0")/debian_package.sh"

debian_package bubblewrap bwrap bwrap
