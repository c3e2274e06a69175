"""Settings."""

import nonexistent_dependency
