"""What is closed at the end of a `with` block."""

from __future__ import annotations

from types import TracebackType
from typing import Self


class Closing:
    """Something with a `close`, which a `with` block calls at its end."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close it."""
        raise NotImplementedError
