"""
Errors of compressed streams and legacy record sets.

    ValueError
    |- DecompressionError             not a whole stream of that codec
    |  |- DecompressedTooLargeError   more than the caller allows
    |- LegacyFormatError              a magic 0 or 1 entry whose bytes are not what they claim
    |- InnerEntryTooLargeError        an entry in a wrapper of magic 0 or 1 above the caller's limit; no damage

They carry only a reason: the caller, which knows file and position, turns them into a `CorruptBatchError`.
"""

from __future__ import annotations


class DecompressionError(ValueError):
    """A compressed stream that is damaged, cut short, or not of the codec its batch names."""


class DecompressedTooLargeError(DecompressionError):
    """
    A stream that unpacks to more than is allowed: a bomb, or a limit set too low.

    Args:
        limit_bytes: the exceeded limit.
    """

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        super().__init__(f"the batch unpacks to more than {limit_bytes} bytes")


class LegacyFormatError(ValueError):
    """A magic 0 or 1 entry whose bytes are not what they claim."""


class InnerEntryTooLargeError(ValueError):
    """
    An entry in a wrapper (a compressed entry of magic 0 or 1) is larger than the caller's limit for one record.

    Args:
        position: of the entry, in the unpacked value.
        size: its size field, bytes.
    """

    def __init__(self, position: int, size: int) -> None:
        self.position = position
        self.size = size
        super().__init__(f"an entry of {size} bytes")
