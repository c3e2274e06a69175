"""Which line of the materialized file a rollout id stands on, for millions of them.

Invariant: about 16 bytes for each id, no object for any: an open-addressed table of line numbers
beside the hash of each line's id. Two ids with one hash (3 in 10^8 for a million) are refused when the
table is made; hashes differ from process to process, so that the next try has others.
"""

from array import array

from gym.config.errors import UserError

_MIXER = 0x9E3779B97F4A7C15
_WORD = (1 << 64) - 1


class LineTable:
    """Rollout ids in the order of their lines."""

    def __init__(self, lines: int) -> None:
        """Room for `lines` ids."""
        self._hashes = array("q")
        self._bits = max(4, (2 * lines).bit_length())
        self._slots = array("L", bytes(array("L").itemsize << self._bits))

    def __len__(self) -> int:
        return len(self._hashes)

    def add(self, rollout_id: str) -> None:
        """The id of the next line. Raises UserError if it cannot be told from an earlier one."""
        digest = hash(rollout_id)
        slot, line = self._find(digest)
        if line is not None:
            raise UserError(f"two rollouts have the same id, or look as if: {rollout_id!r}; try again")
        self._hashes.append(digest)
        self._slots[slot] = len(self._hashes)

    def line(self, rollout_id: str) -> int | None:
        """The line of an id, from 0; None if it has none."""
        return self._find(hash(rollout_id))[1]

    def _find(self, digest: int) -> tuple[int, int | None]:
        slots, hashes, last = self._slots, self._hashes, (1 << self._bits) - 1
        slot = (digest * _MIXER & _WORD) >> (64 - self._bits)
        while taken := slots[slot]:
            if hashes[taken - 1] == digest:
                return slot, taken - 1
            slot = (slot + 1) & last
        return slot, None
