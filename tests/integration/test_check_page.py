"""docs/check.md: its table is the code's."""

from __future__ import annotations

import re
from pathlib import Path

from cleaner.verification.check.findings import FindingKind

DOCUMENT = Path(__file__).parents[2] / "docs" / "check.md"


def test_page_lists_every_kind_of_finding() -> None:
    """And no other."""
    table = DOCUMENT.read_text().partition("| kind | what |")[2]
    cells = [row.split("|")[1] for row in table.splitlines() if row.count("|") > 2]
    assert {name for cell in cells for name in re.findall(r"`([a-z-]+)`", cell)} == {kind.value for kind in FindingKind}
