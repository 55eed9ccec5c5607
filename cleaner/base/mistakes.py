"""What was probably meant; and what is wrong with a configuration, collected to be told all at once."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from itertools import islice

from cleaner.errors import ConfigError, ConfigErrors

# How alike two names must be (difflib's ratio) for one to be taken for a slip of the other.
_ALIKE = 0.6
_MOST_COMPARED = 10_000
"""Names that are looked at: thousands of partitions would take longer than what was asked for."""


def nearest(text: str, known: Iterable[str], alike: float = _ALIKE) -> str:
    """
    Return the name that a mistyped one is most like; empty where none is.

    Args:
        text: as typed.
        known: the names there are.
        alike: difflib's ratio from which on one is taken for the other; 0: there is always a nearest one.
    """
    import difflib  # slow to load, and for mistakes only

    likely = (name for name in known if not alike or _may_be_like(text, name))
    names = {name.lower(): name for name in islice(likely, _MOST_COMPARED)}
    found = difflib.get_close_matches(text.lower(), names, n=1, cutoff=alike)
    return names[found[0]] if found else ""


def _may_be_like(text: str, name: str) -> bool:
    """Rule out, cheaply, what cannot reach the ratio: of thousands of names few are as long."""
    return abs(len(text) - len(name)) * 2 <= max(len(text), len(name))


def did_you_mean(text: str, known: Iterable[str]) -> str:
    """Return `; did you mean orders-0?`, to be put behind what is wrong; empty where no name is like it."""
    found = nearest(text, known)
    return f"; did you mean {found}?" if found else ""


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
