"""
Kafka's text form of a UUID: 16 bytes as URL-safe base64 without padding, 22 characters.

Source: rules R-110, R-124; `Uuid.java`.
"""

from __future__ import annotations

import base64
import re
from uuid import UUID

_TEXT = re.compile(r"[A-Za-z0-9_-]{22}(==)?\Z")


def parse_uuid(text: str) -> UUID:
    """
    Parse the 22 characters; padding is accepted too, as in Kafka.

    Raises:
        ValueError: anything else.
    """
    if not _TEXT.match(text):
        raise ValueError(f"{text[:30]!r} is not a UUID of 22 base64 characters")
    return UUID(bytes=base64.urlsafe_b64decode(text[:22] + "=="))


def format_uuid(uuid: UUID) -> str:
    """Return the 22 characters."""
    return base64.urlsafe_b64encode(uuid.bytes).decode("ascii").rstrip("=")
