"""Decides whether a changed file is complete: it is if it has not changed for a second."""

from __future__ import annotations

from cleaner.settings.file_state import FileState

SETTLED_MS = 1000


class Settling:
    """
    Judges files by the time of their last change, so it must remember only files that are gone, which have none.

    A time in the future is useless, so such a file counts as complete.
    """

    def __init__(self) -> None:
        self._gone_since_ms: dict[str, int] = {}

    def is_settled(self, name: str, state: FileState | None, directory: FileState | None, now_ms: int) -> bool:
        """
        Tell whether a change may take effect.

        Args:
            name: identifies the file.
            state: of the file; None if it is gone, perhaps only for a moment while an editor replaces it.
            directory: state of its directory, which changed when the file vanished, or later.
            now_ms: the wall clock.
        """
        if state is not None:
            self._gone_since_ms.pop(name, None)
            return _is_old(state, now_ms)
        since_ms = self._gone_since_ms.setdefault(name, now_ms)
        is_gone = directory is None or _is_old(directory, now_ms) or not 0 <= now_ms - since_ms < SETTLED_MS
        if is_gone:
            del self._gone_since_ms[name]
        return is_gone


def _is_old(state: FileState, now_ms: int) -> bool:
    return not 0 <= now_ms - state.changed_ns // 1_000_000 < SETTLED_MS
