"""Collecting what is wrong with a configuration, so that the operator hears of all of it at once."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from cleaner.errors import ConfigError, ConfigErrors


class Mistakes:
    """A list of mistakes that grows while settings are read, and is raised when all are read."""

    def __init__(self) -> None:
        self._found: dict[str, ConfigError] = {}

    def all(self) -> tuple[ConfigError, ...]:
        """Return them in the order they were found."""
        return tuple(self._found.values())

    def add(self, error: ConfigError) -> None:
        """Remember what an error says; a line that is there already is not said twice."""
        for mistake in error.mistakes:
            self._found.setdefault(str(mistake), mistake)

    @contextlib.contextmanager
    def collected(self) -> Iterator[None]:
        """Remember the ConfigError that ends the block, instead of passing it on."""
        try:
            yield
        except ConfigError as error:
            self.add(error)

    def raise_any(self) -> None:
        """
        End here when there are mistakes.

        Raises:
            ConfigError: the only mistake; ConfigErrors when there are more.
        """
        found = self.all()
        if len(found) == 1:
            raise found[0]
        if found:
            raise ConfigErrors(found)
