"""The cache."""

import time
from collections import OrderedDict
from collections.abc import MutableMapping


class TTLCache(MutableMapping):
    """At most `size` entries, each for `ttl` seconds after it was set; the one that was set first goes first."""

    def __init__(self, size, ttl, clock=time.monotonic):
        if size < 1:
            raise ValueError("size must be at least 1")
        self.size, self.ttl, self._clock = size, ttl, clock
        self._entries = OrderedDict()

    def __getitem__(self, key):
        value, ends = self._entries[key]
        if ends <= self._clock():
            raise KeyError(key)
        return value

    def __setitem__(self, key, value):
        self._entries.pop(key, None)
        self._entries[key] = (value, self._clock() + self.ttl)
        if len(self._entries) > self.size:
            self._entries.popitem(last=False)

    def __delitem__(self, key):
        del self._entries[key]

    def __iter__(self):
        return iter(list(self._entries))

    def __len__(self):
        return len(self._entries)

    def __repr__(self):
        return f"TTLCache(size={self.size}, ttl={self.ttl})"
