"""The names in an ELF object file: what its code needs from elsewhere, and what others may call."""

from __future__ import annotations

import struct
from typing import NamedTuple

_IDENTITY = b"\x7fELF\x02\x01"  # 64 bits, little-endian
_RELOCATABLE = 1
_SYMBOL_TABLE = 2
_SYMBOL_BYTES = 24
_LOCAL = 0


class Symbols(NamedTuple):
    """Global names of an object file."""

    needed: frozenset[str]
    defined: frozenset[str]


def read_symbols(content: bytes) -> Symbols:
    """
    Return the global names of an object file.

    Raises:
        ValueError: it is no such file: kernels of other systems have other ones.
    """
    if content[:6] != _IDENTITY or len(content) < 64 or struct.unpack_from("<H", content, 16) != (_RELOCATABLE,):
        raise ValueError("not a relocatable ELF file of 64 bits")
    try:
        return _read_symbols(content)
    except (struct.error, IndexError) as error:
        raise ValueError("a damaged ELF file") from error


def _read_symbols(content: bytes) -> Symbols:
    (table_position,) = struct.unpack_from("<Q", content, 40)
    entry_bytes, count = struct.unpack_from("<HH", content, 58)
    # of each section: type, position, size, linked section
    sections = [
        struct.unpack_from("<4xI16xQQI", content, table_position + number * entry_bytes) for number in range(count)
    ]
    needed, defined = set(), set()
    for kind, position, size, linked in sections:
        if kind != _SYMBOL_TABLE:
            continue
        names = content[sections[linked][1] :]
        for at in range(position, position + size, _SYMBOL_BYTES):
            name_position, information, section = struct.unpack_from("<IBxH", content, at)
            if name_position == 0 or information >> 4 == _LOCAL:
                continue
            name = names[name_position : names.index(b"\0", name_position)].decode()
            (defined if section else needed).add(name)
    return Symbols(frozenset(needed), frozenset(defined))
