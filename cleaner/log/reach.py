"""How far a log reaches, as its writer in this process knows it: for its user, and for its readers (`WriterView`)."""

from __future__ import annotations

from cleaner.log.partition_writer import PartitionWriter
from cleaner.read.view import Signal
from cleaner.storage.segment.indexes import Aborts

_LONGEST_TRUST_SECONDS = 1.0


class Reach:
    """The offsets that say how far a log reaches."""

    _writer: PartitionWriter

    @property
    def log_start_offset(self) -> int:
        """First offset that can be read."""
        return self._writer.log_start_offset

    @property
    def log_end_offset(self) -> int:
        """The offset the next record will get."""
        return self._writer.log_end_offset

    @property
    def high_watermark(self) -> int:
        """Everything below is on disk and survives a crash."""
        return self._writer.high_watermark

    @property
    def last_stable_offset(self) -> int:
        """Readers of committed records go up to here."""
        return self._writer.last_stable_offset

    @property
    def leader_epoch(self) -> int:
        """The epoch new batches get; a cut begins one, and an opening after an unclean stop, unless a cluster does."""
        return self._writer.leader_epoch


class WriterView(Reach):
    """
    A `ReadView` of an open writer.

    Args:
        writer: it signals each change.
    """

    def __init__(self, writer: PartitionWriter) -> None:
        self._writer = writer
        self._origin = writer.origin
        self._signal = Signal()
        writer.on_append.append(self._pass_on)

    def _pass_on(self) -> None:
        if self._writer.is_closed:
            self._signal.close()
        else:
            self._signal.notify()

    @property
    def signal(self) -> Signal:
        """Signals changes."""
        return self._signal

    def require_own(self) -> None:
        """Make sure that the writer belongs to this process, which is no fork of it. Raises ForkedError."""
        self._origin.require_own()

    @property
    def is_closed(self) -> bool:
        """Whether the log was closed, and this was signalled. Raises ForkedError."""
        if self._origin.is_parents:
            self._origin.require_own()
        return self._signal.is_closed

    @property
    def longest_pause_seconds(self) -> float:
        """The signal is not relied on forever: the thread that should give it may be interrupted just then."""
        return _LONGEST_TRUST_SECONDS

    def unlisted_aborts(self) -> Aborts | None:
        """Return None: the writer has them in its transaction index before they count as decided."""
        return None
