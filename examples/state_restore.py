"""
State that outlives a crash: a service keeps its state in memory, and writes each change of it to a compacted log.

When it comes back it takes the last value of every key from the log, at one point of it, and goes on from there. The
log grows with the number of keys, not with the time it runs, as the cleaner works beside it in the same process.

    python -m examples.state_restore [DIRECTORY]
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from types import TracebackType

from cleaner import LogManager, Record

SETTINGS = {"cleanup.policy": "compact"}


class Visits:
    """
    Counts visits to pages.

    Args:
        directory: where its log is, or will be.
    """

    def __init__(self, directory: Path) -> None:
        self._manager = LogManager(directory, create=True)
        if "visits" not in self._manager.topics():
            self._manager.create_topic("visits", 1, SETTINGS)
        self._log = self._manager.log("visits")
        with self._log.latest() as latest:
            self._counts = {key.decode(): int(value) for key, value in latest.to_dict().items()}
            self.restored_to = latest.next_offset

    def visit(self, page: str) -> None:
        """Count one; it may be lost in a crash until `save`."""
        self._counts[page] = self._counts.get(page, 0) + 1
        self._log.append([Record(page.encode(), b"%d" % self._counts[page])])

    def forget(self, page: str) -> None:
        """Drop a page: the tombstone is what tells the log."""
        del self._counts[page]
        self._log.append([Record(page.encode(), None)])

    def save(self) -> None:
        """Wait until all that was counted is on disk."""
        self._log.flush()

    @property
    def counts(self) -> dict[str, int]:
        """Visits by page."""
        return dict(self._counts)

    def crash(self) -> None:
        """Let go of everything as a killed process does."""
        self._manager.abandon()

    def __enter__(self) -> Visits:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._manager.close()


def main(directory: Path) -> dict[str, int]:
    """Count, crash, come back; returns what was restored."""
    visits = Visits(directory)
    for number in range(1000):
        visits.visit(f"/page/{number % 7}")
    visits.forget("/page/6")
    visits.save()
    before = visits.counts
    visits.crash()

    with Visits(directory) as restored:
        print(f"restored up to offset {restored.restored_to}: {restored.counts}")
        if restored.counts != before:
            raise SystemExit("something is missing")
        restored.visit("/page/0")
    return before


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as temporary:
            main(Path(temporary) / "logs")
