"""
A process that reads the topics of a log dir, and notes what it was shown.

    python -m tests.soak.reader LOG_DIR NOTES SECONDS TOPIC...

A thread a topic follows the committed records from the start; the main thread reads one topic after another from its
start, every SECONDS, as a reader that has just come. A failing call is noted, and tried again with a new reader. It
never ends by itself.
"""

from __future__ import annotations

import itertools
import sys
import threading
import time
from pathlib import Path

from cleaner import open_reader
from cleaner.errors import CleanerError
from cleaner.log.record import Record
from tests.simulation.found import number_of
from tests.soak.notes import Notes, digest_of

_AGAIN_SECONDS = 0.5
_POLL_SECONDS = 1.0


def _seen(records: list[Record]) -> list[list[object]]:
    return [
        [record.offset, (record.key or b"").decode(), digest_of(record.value), number_of(record.headers)]
        for record in records
    ]


def follow(log_dir: Path, topic: str, notes: Notes) -> None:
    """Follow a topic for ever; after an error from where the log could be read last."""
    partition, offset = f"{topic}-0", None
    while True:
        try:
            with open_reader(log_dir, topic) as reader:
                start = reader.log_start_offset
                offset = start if offset is None else max(offset, start)
                with reader.follow(offset, isolation="read_committed") as follower:
                    while True:
                        records = list(follower.poll(_POLL_SECONDS))
                        if records:
                            notes.write("shown", p=partition, by="follower", seen=_seen(records))
                        offset = follower.next_offset
        except (CleanerError, OSError) as error:
            notes.write("error", p=partition, what=type(error).__name__, text=f"follow from {offset}: {error}")
            time.sleep(_AGAIN_SECONDS)


def read_once(log_dir: Path, topic: str, notes: Notes) -> None:
    """Read all that is committed."""
    partition = f"{topic}-0"
    with open_reader(log_dir, topic) as reader:
        notes.write("begins", p=partition)
        records = list(reader.read(reader.log_start_offset, isolation="read_committed"))
        notes.write("shown", p=partition, by="reader", seen=_seen(records))


def main() -> None:
    """Read for ever."""
    log_dir, notes, seconds, topics = Path(sys.argv[1]), Notes(Path(sys.argv[2])), float(sys.argv[3]), sys.argv[4:]
    for topic in topics:
        threading.Thread(target=follow, args=(log_dir, topic, notes), daemon=True).start()
    for topic in itertools.cycle(topics):
        time.sleep(seconds)
        try:
            read_once(log_dir, topic, notes)
        except (CleanerError, OSError) as error:
            notes.write("error", p=f"{topic}-0", what=type(error).__name__, text=f"read: {error}")


if __name__ == "__main__":
    main()
