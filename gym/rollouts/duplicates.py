"""Finding names that are used twice among millions, in a few bytes each.

Keeps a 64-bit hash, an owner and a line number per name, in buckets, and looks for clashes at
the end, one bucket at a time. A clash of hashes alone is possible (about 3 in 10^8 for a million
names), so the caller confirms a clash by the names themselves.
"""

from array import array
from dataclasses import dataclass

_BUCKETS = 256


@dataclass(frozen=True, slots=True)
class Clash:
    """Two owners of what seems to be the same name, and where (lines count from 1)."""

    digest: int
    first_line: int
    second_line: int


class DuplicateFinder:
    """Collects names and says which have more than one owner."""

    def __init__(self) -> None:
        self._digests = [array("q") for _ in range(_BUCKETS)]
        self._owners = [array("q") for _ in range(_BUCKETS)]
        self._lines = [array("Q") for _ in range(_BUCKETS)]

    def add(self, name: str, owner: int, line: int) -> None:
        """Note that `owner` uses `name`; the same owner may use it again."""
        digest = hash(name)
        bucket = digest % _BUCKETS
        self._digests[bucket].append(digest)
        self._owners[bucket].append(owner)
        self._lines[bucket].append(line)

    def clashes(self) -> list[Clash]:
        """Names with more than one owner, by hash; one clash for each name."""
        found: list[Clash] = []
        for digests, owners, lines in zip(self._digests, self._owners, self._lines, strict=True):
            seen: dict[int, tuple[int, int]] = {}
            told: set[int] = set()
            for digest, owner, line in zip(digests, owners, lines, strict=True):
                first_owner, first_line = seen.setdefault(digest, (owner, line))
                if first_owner != owner and digest not in told:
                    told.add(digest)
                    found.append(Clash(digest, first_line, line))
        return sorted(found, key=lambda clash: clash.second_line)
