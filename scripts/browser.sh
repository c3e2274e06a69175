#!/usr/bin/env bash
# Makes sure that Chromium is there, for the tests of the report's page.
set -euo pipefail
. "$(dirname "$0")/debian_package.sh"

debian_package chromium Chromium chromium chromium-browser google-chrome
