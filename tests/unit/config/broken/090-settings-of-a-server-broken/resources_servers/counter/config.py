"""Settings."""

import nonexistent_dependency

VERSION = nonexistent_dependency.VERSION
