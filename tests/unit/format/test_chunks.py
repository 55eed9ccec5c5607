"""Names that all rooms share for arrays of flags."""

from __future__ import annotations

import re
from pathlib import Path

from cleaner.format import chunks

ROOMS = Path(chunks.__file__).parents[1]


def test_arrays_of_flags_have_one_name_each() -> None:
    """`Flags` are uint8 for kernels, `Mask` is numpy's bool; no other file defines either name."""
    found = [
        str(path.relative_to(ROOMS))
        for path in sorted(ROOMS.rglob("*.py"))
        if re.search(r"^(Flags|Mask)\b.*=", path.read_text(), re.MULTILINE)
    ]
    assert found == ["format/chunks.py"]
