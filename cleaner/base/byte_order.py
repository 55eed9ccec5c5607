"""The mark that editors put at the beginning of a text: whoever reads the bytes as they are takes it for text."""

from __future__ import annotations

import codecs

_MARKS = ((codecs.BOM_UTF8, "UTF-8"), (codecs.BOM_UTF16_LE, "UTF-16"), (codecs.BOM_UTF16_BE, "UTF-16"))


def byte_order_mark(data: bytes) -> str | None:
    """Return the encoding whose byte-order mark some data begins with, `UTF-8` or `UTF-16`; None without a mark."""
    return next((encoding for mark, encoding in _MARKS if data.startswith(mark)), None)
