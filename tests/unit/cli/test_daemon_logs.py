"""The daemon's logs: one line an event, and nothing in it but text."""

from __future__ import annotations

import io
import json
import os

import pytest

from cleaner.cli.daemon_logs import BackgroundStream, configure_logs
from tests.support.no_threads import start_no_more_threads

HOSTILE = "a\nlevel=error event=forged\x1b[31m\r\u2028x"


class NoTerminal(io.StringIO):
    """A stream that is none."""


@pytest.mark.parametrize("form", ["console", "json"])
def test_event_with_hostile_values_is_one_line_of_printable_text(form: str) -> None:
    """Topic names and errors come from files that others write."""
    stream = NoTerminal()
    log = configure_logs(form, "info", stream)
    log.info(HOSTILE, partition=HOSTILE, reasons=[HOSTILE], by={HOSTILE: HOSTILE})
    text = stream.getvalue()
    assert text.endswith("\n")
    assert text[:-1].isprintable()


def test_json_event_has_time_level_and_values() -> None:
    """A line a program can read."""
    stream = NoTerminal()
    configure_logs("json", "info", stream).warning("cleaned", bytes_read=5, removed={"superseded": 2})
    event = json.loads(stream.getvalue())
    assert event.pop("timestamp").endswith("Z")
    assert event == {"event": "cleaned", "level": "warning", "bytes_read": 5, "removed": {"superseded": 2}}


@pytest.mark.parametrize(("level", "lines"), [("debug", 4), ("info", 3), ("warning", 2), ("error", 1)])
def test_events_below_the_level_are_left_out(level: str, lines: int) -> None:
    """`cleaner.log.level` names the lowest level that is written."""
    stream = NoTerminal()
    log = configure_logs("json", level, stream)
    log.debug("d")
    log.info("i")
    log.warning("w")
    log.error("e")
    assert len(stream.getvalue().splitlines()) == lines


def test_traceback_is_a_value_of_its_event() -> None:
    """An internal error is one line too, with everything that is needed to fix it."""
    stream = NoTerminal()
    try:
        raise ZeroDivisionError(HOSTILE)
    except ZeroDivisionError as error:
        configure_logs("json", "info", stream).error("a mistake", exc_info=error)
    (line,) = stream.getvalue().splitlines()
    event = json.loads(line)
    assert "ZeroDivisionError" in event["traceback"]
    assert "test_daemon_logs.py" in event["traceback"]
    assert event["traceback"].isprintable()


def test_line_for_which_no_thread_could_be_started_is_written_with_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    reader, writer = os.pipe()
    try:
        stream = BackgroundStream(writer, str)
        with monkeypatch.context() as patch:
            start_no_more_threads(patch)
            stream.write("first\n")
        stream.write("second\n")
        assert stream.drain(20)
        assert os.read(reader, 100) == b"first\nsecond\n"
    finally:
        os.close(reader)
        os.close(writer)
