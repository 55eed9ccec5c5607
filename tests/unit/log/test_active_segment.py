"""The active segment, and an exception in the middle of an fsync."""

from __future__ import annotations

from pathlib import Path

import pytest

from cleaner.errors import FailedFsyncError
from tests.crash.interrupts import Interrupt, Interrupter
from tests.unit.log.writing import pair, writing


@pytest.mark.parametrize("step", ["flush", "roll"])
def test_fsync_interrupted_anywhere_is_done_again_or_has_failed(step: str, tmp_path: Path) -> None:
    """At every point where an exception may be raised: the next flush works, or closes the log; none is refused."""
    point = 0
    while True:
        point += 1
        with writing(tmp_path / str(point)) as place:
            writer = place.open()
            writer.append([pair("a", "b")])
            segment = writer._log.active
            call = segment.fsync_log if step == "flush" else segment.fsync_all
            try:
                with Interrupter(point):
                    call()
            except Interrupt:
                try:
                    assert writer.flush_to_disk() == 1
                    writer.roll()
                except FailedFsyncError:
                    assert step == "roll"  # the exception replaced an error of the system
                assert segment.is_retired
                assert all(file._handle.closed for file in segment._files)
            else:
                assert point > 5
                return
            finally:
                writer.abandon()
