"""What a program file says it needs of glibc.

Invariant: a file that is no ELF file of 64 bits, or a broken one, needs nothing. Versions that are needed weakly do not count.
"""

import mmap
import struct
from collections.abc import Iterator
from pathlib import Path

Version = tuple[int, int]
"""Of glibc, e.g. `(2, 36)`."""

_MAGIC = b"\x7fELF\x02\x01"
_NEEDS = 0x6FFFFFFE
"""The type of the section with needed versions (SHT_GNU_verneed)."""
_WEAK = 2
_NAME = b"GLIBC_"


def needed_glibc(path: Path) -> Version:
    """The newest version of glibc that the file's symbols come from; (0, 0) for none."""
    with path.open("rb") as file:
        if file.read(len(_MAGIC)) != _MAGIC:
            return (0, 0)
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            try:
                return max(_versions(data), default=(0, 0))
            except (struct.error, ArithmeticError, LookupError, ValueError):
                return (0, 0)


def _versions(data: mmap.mmap) -> Iterator[Version]:
    (table,) = struct.unpack_from("<Q", data, 40)
    size, count = struct.unpack_from("<HH", data, 58)
    sections = [struct.unpack_from("<IIQQQQII", data, table + index * size) for index in range(count)]
    for _, kind, _, _, needs, _, link, files in sections:
        if kind != _NEEDS:
            continue
        names = sections[link][4]
        for _ in range(files):
            _, versions, _, entry, following = struct.unpack_from("<HHIII", data, needs)
            entry += needs
            for _ in range(versions):
                _, flags, _, name, step = struct.unpack_from("<IHHII", data, entry)
                start = names + name
                text = data[start : data.find(b"\0", start)]
                parts = text.removeprefix(_NAME).split(b".")
                if text.startswith(_NAME) and not flags & _WEAK and len(parts) > 1 and parts[0].isdigit() and parts[1].isdigit():
                    yield int(parts[0]), int(parts[1])
                entry += step
            needs += following
