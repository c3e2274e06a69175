"""Which line of the materialized file a rollout id stands on, for millions of them.

Invariant: at most 24 bytes for each id, no object for any: an open-addressed table of line numbers
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
        bits = max(4, (2 * lines).bit_length())
        self._shift, self._last = 64 - bits, (1 << bits) - 1
        self._slots = array("I", bytes(array("I").itemsize << bits))

    def __len__(self) -> int:
        return len(self._hashes)

    def add(self, rollout_id: str) -> None:
        """The id of the next line. Raises UserError if it cannot be told from an earlier one."""
        digest = hash(rollout_id)
        slots, hashes, last = self._slots, self._hashes, self._last
        slot = (digest * _MIXER & _WORD) >> self._shift
        while (taken := slots[slot]) and hashes[taken - 1] != digest:
            slot = (slot + 1) & last
        if taken:
            raise UserError(f"two rollouts have the same id, or look as if: {rollout_id!r}; try again")
        hashes.append(digest)
        slots[slot] = len(hashes)

    def line(self, rollout_id: str) -> int | None:
        """The line of an id, from 0; None if it has none."""
        # The same search as in `add`, and not a call of one: this is a resume's hot path.
        digest = hash(rollout_id)
        slots, hashes, last = self._slots, self._hashes, self._last
        slot = (digest * _MIXER & _WORD) >> self._shift
        while (taken := slots[slot]) and hashes[taken - 1] != digest:
            slot = (slot + 1) & last
        return taken - 1 if taken else None
