import pytest
from ttlcache import TTLCache


class Clock:
    now = 0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def cache(clock):
    return TTLCache(2, 10, clock)


def test_like_a_mapping(cache):
    cache["a"] = 1
    assert cache["a"] == 1
    assert dict(cache) == {"a": 1}
    del cache["a"]
    assert cache.get("a") is None


def test_an_entry_ends(cache, clock):
    cache["a"] = 1
    clock.now = 10
    with pytest.raises(KeyError):
        cache["a"]


def test_the_first_goes_first(cache):
    cache.update(a=1, b=2, c=3)
    assert sorted(cache) == ["b", "c"]


def test_size():
    with pytest.raises(ValueError, match="size"):
        TTLCache(0, 1)
