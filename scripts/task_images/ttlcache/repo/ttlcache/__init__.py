"""A mapping with a limited size, whose entries end after a time."""

from ttlcache.cache import TTLCache

__all__ = ["TTLCache"]
