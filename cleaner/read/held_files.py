"""All segments of a log at one moment, held open, so that segments a cleaner removes later can still be read."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from cleaner.errors import LogClosedError
from cleaner.read.log_end import end_without_room
from cleaner.read.open_segment import OpenSegment, SegmentFiles
from cleaner.read.partition_files import PartitionFiles, PartitionListing


class HeldFiles:
    """
    Segments that are held open: a cursor reads them even if they are renamed or removed. Close it.

    Args:
        segments: open, ascending.
        listing: where they were found.
        batch_limit_bytes: what a batch may unpack to.
    """

    def __init__(
        self, directory: Path, listing: PartitionListing, segments: list[OpenSegment], batch_limit_bytes: int
    ) -> None:
        self.directory = directory
        self.batch_limit_bytes = batch_limit_bytes
        self._listing = listing
        self._is_closed = False
        self._closed = [_size_and_time(segment) for segment in segments[:-1]]
        self._least_size = end_without_room(segments[-1]) if segments else 0
        self._segments = {segment.base_offset: segment for segment in segments}

    @staticmethod
    def hold(files: PartitionFiles, listing: PartitionListing) -> HeldFiles:
        """
        Open all segments of a listing.

        Raises:
            FileNotFoundError: one has gone.
            LogDirOfflineError: the disk failed, or there are more segments than files may be open.
        """
        with ExitStack() as attempt:
            segments = [attempt.enter_context(files.open(listing, place)) for place in listing.places]
            held = HeldFiles(files.directory, listing, segments, files.batch_limit_bytes)
            attempt.pop_all()
        return held

    def listing(self) -> PartitionListing:
        """Return the segments as they were listed."""
        return self._listing

    def is_current(self, _: PartitionListing) -> bool:
        """Return True: held files never change."""
        self._require_open()
        return True

    def open(self, _listing: PartitionListing, place: SegmentFiles) -> OpenSegment:
        """Return a segment that shares the open file."""
        self._require_open()
        return self._segments[place.base_offset].borrowed()

    def is_uncut(self) -> bool:
        """Tell whether no segment was cut: all but the last are closed, and the last one's batches only get more."""
        now = [_size_and_time(segment) for segment in self._segments.values()]
        return now[:-1] == self._closed and all(size >= self._least_size for size, _ in now[-1:])

    def end_of_epoch(self, _: int) -> None:
        """Return None: segments that were cut since are still open here."""

    @property
    def size(self) -> int:
        """Bytes of all of them."""
        return sum(self.sizes().values())

    def sizes(self) -> dict[int, int]:
        """Return the bytes of each, by its base offset."""
        self._require_open()
        return {base: segment.file.size() for base, segment in self._segments.items()}

    def close(self) -> None:
        """Close them."""
        self._is_closed = True
        for segment in self._segments.values():
            segment.close()

    def _require_open(self) -> None:
        if self._is_closed:
            raise LogClosedError(self.directory, "its segments are no longer held open")


def _size_and_time(segment: OpenSegment) -> tuple[int, int]:
    about = segment.file.stat()
    return about.st_size, about.st_mtime_ns
