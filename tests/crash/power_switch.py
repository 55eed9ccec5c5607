"""A real file system with a power switch, thrown before or right after a change."""

from __future__ import annotations

import errno
import os

from tests.crash.loop_image import LoopImage
from tests.support.watched_fs import Operation, WatchedFileSystem

_FLUSHES = ("fsync", "fsync_dir")


class PowerSwitch(WatchedFileSystem):
    """
    A file system in an image, whose power is cut at one moment; from then on every change fails.

    Args:
        image: it is mounted.
        cut_at: cut before this change, counted from 0; None: never by itself.
        cut_behind_flush: cut after this fsync of a file or directory, counted from 0.

    Attributes:
        changes: all changes, the prevented one included.
        is_off: the power is cut.
    """

    syncs_really = True

    def __init__(self, image: LoopImage, cut_at: int | None = None, *, cut_behind_flush: int | None = None) -> None:
        self.changes: list[Operation] = []
        self.is_off = False
        self._image = image
        self._cut_at = cut_at
        self._flushes_left = cut_behind_flush

    def before(self, operation: Operation) -> None:
        """Count a change, or prevent it."""
        self.changes.append(operation)
        if self._cut_at is not None and len(self.changes) > self._cut_at:
            self.cut()
        if self.is_off:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    def after(self, operation: Operation) -> None:
        """Count a flush."""
        if self._flushes_left is not None and operation.kind in _FLUSHES:
            self._flushes_left -= 1
            if self._flushes_left < 0:
                self.cut()

    def cut(self) -> None:
        """Throw the switch; a second time does nothing."""
        if not self.is_off:
            self.is_off = True
            self._image.cut_power()
