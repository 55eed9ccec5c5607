"""A log among threads: what one of them leaves half done, another one finds."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.log.writing import pair, writing


def test_flush_beside_a_roll_that_is_interrupted_before_it_notes_its_fsync_reaches_the_end(tmp_path: Path) -> None:
    """The flush finds its segment closed and nothing noted: whoever waits for it is not left to the next one."""
    with writing(tmp_path / "log") as place:
        writer = place.open()
        writer.append([pair("a", "b")])
        log, segment = writer._log, writer._log.active
        note, fsync = log.note_flushed, segment.fsync_log

        def interrupted(_: int) -> None:
            raise KeyboardInterrupt

        def rolled_before() -> None:
            log.note_flushed = interrupted  # type: ignore[method-assign]
            with pytest.raises(KeyboardInterrupt):
                writer.roll()
            log.note_flushed = note  # type: ignore[method-assign]
            fsync()

        segment.fsync_log = rolled_before  # type: ignore[method-assign]
        assert writer.flush_to_disk() == writer.flushed_offset == 1
        writer.close()
