"""Finds the name that was probably meant, and collects the errors of a configuration to report them together."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from itertools import islice

from cleaner.errors import ConfigError, ConfigErrors

# How similar two names must be (difflib's ratio) for one to be taken for a typo of the other.
_MIN_SIMILARITY = 0.6
_MAX_COMPARED = 10_000
"""Most names compared: with more, the comparison would take longer than the actual command."""


def nearest(text: str, known: Iterable[str], similarity: float = _MIN_SIMILARITY) -> str:
    """
    Return the known name most similar to a mistyped one; empty if none is similar.

    Args:
        text: as typed.
        known: the existing names.
        similarity: the least difflib ratio; 0: always return the nearest name.
    """
    import difflib  # slow to load, and needed only here

    likely = (name for name in known if not similarity or _could_match(text, name))
    names = {name.lower(): name for name in islice(likely, _MAX_COMPARED)}
    found = difflib.get_close_matches(text.lower(), names, n=1, cutoff=similarity)
    return names[found[0]] if found else ""


def _could_match(text: str, name: str) -> bool:
    """Rule out, cheaply, names that cannot reach the ratio: of thousands of names few have a similar length."""
    return abs(len(text) - len(name)) * 2 <= max(len(text), len(name))


def did_you_mean(text: str, known: Iterable[str]) -> str:
    """Return `; did you mean orders-0?`, to append to an error message; empty if no name is similar."""
    found = nearest(text, known)
    return f"; did you mean {found}?" if found else ""


class Mistakes:
    """Collects the operator's mistakes while settings are read, to raise them all at the end."""

    def __init__(self) -> None:
        self._found: dict[str, ConfigError] = {}

    def all(self) -> tuple[ConfigError, ...]:
        """Return the errors in the order they were found."""
        return tuple(self._found.values())

    def add(self, error: ConfigError) -> None:
        """Add an error; a message that is already in the list is not added twice."""
        for mistake in error.mistakes:
            self._found.setdefault(str(mistake), mistake)

    @contextlib.contextmanager
    def collected(self) -> Iterator[None]:
        """Add a ConfigError that ends the block, instead of raising it."""
        try:
            yield
        except ConfigError as error:
            self.add(error)

    def raise_any(self) -> None:
        """
        Raise the collected errors, if any.

        Raises:
            ConfigError: the only one; ConfigErrors if there are several.
        """
        found = self.all()
        if len(found) == 1:
            raise found[0]
        if found:
            raise ConfigErrors(found)
