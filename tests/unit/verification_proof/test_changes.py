"""What `verify` and `check` find of all single changes of a cleaned log dir is what the document says they find."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cleaner.app.check_log_dir import CheckOptions
from cleaner.app.options import CallContext
from cleaner.app.reports import Refusal
from cleaner.app.verify_log_dirs import VerifyOptions, verify_log_dirs
from cleaner.settings.sources import Sources
from tests.proof_changes import NAME, NOW_MS, SETTINGS, Change, changes, cleaned_log_dirs
from tests.scratch import scratch_directory
from tests.unit.verification_check.checking import check

pytestmark = [pytest.mark.kernels, pytest.mark.long]

DOCUMENT = Path(__file__).resolve().parents[3] / "docs" / "verify.md"
ALWAYS, PARTLY, NEVER = "always", "partly", "no"
Finder = Callable[[Path, Path], bool]


def documented(column: int) -> dict[str, str]:
    """Return what the document's table says of each change: its second column is `verify`, the third `check`."""
    section = DOCUMENT.read_text().split("## What is found")[1].split("\n## ")[0]
    rows = [line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("| ")]
    return {what: row[column] for row in rows[2:] for what in row[0].split("; ")}


def verify_finds(before: Path, after: Path) -> bool:
    sources = Sources.of_call("topic", SETTINGS | {"cleaner.kafka.version": "4.3"}, None, None)
    options = VerifyOptions(now_ms=NOW_MS)
    (report,) = verify_log_dirs(before, after, sources, CallContext.of(), options, [NAME])
    return isinstance(report, Refusal) or not report.is_proven


def check_finds(_before: Path, after: Path) -> bool:
    return bool(check(after, options=CheckOptions(clean_section=True)).findings)


@contextmanager
def changed(log_dir: Path, change: Change) -> Iterator[None]:
    """Make a change and take it back."""
    path = log_dir / change.file
    old = path.read_bytes()
    if change.data is None:
        path.unlink()
    else:
        path.write_bytes(change.data)
    try:
        yield
    finally:
        path.write_bytes(old)


@pytest.mark.parametrize(("finds", "column"), [(verify_finds, 1), (check_finds, 2)], ids=["verify", "check"])
def test_every_single_change_is_found_as_the_document_says(finds: Finder, column: int) -> None:
    """Each field of each batch, entry, line and file: always, partly or not; no change is missing in the table."""
    found: Counter[str] = Counter()
    missed: Counter[str] = Counter()
    with scratch_directory() as work:
        before, after = cleaned_log_dirs(work)
        assert not finds(before, after)
        for change in changes(after):
            with changed(after, change):
                (found if finds(before, after) else missed)[change.what] += 1
    verdicts = {
        what: PARTLY if found[what] and missed[what] else ALWAYS if found[what] else NEVER for what in found | missed
    }
    assert verdicts == documented(column)
    assert found.total() + missed.total() > 1000


def test_table_gives_a_reason_wherever_something_is_not_found() -> None:
    """What no command finds is named together with why."""
    section = DOCUMENT.read_text().split("## What is found")[1].split("\n## ")[0]
    rows = [line.strip("| ").split(" | ") for line in section.splitlines() if re.match(r"\| (?!one|---)", line)]
    assert len(rows) > 10
    without = [row[0] for row in rows if row[1:3] != [ALWAYS, ALWAYS] and len(row) < 4]
    assert without == []
