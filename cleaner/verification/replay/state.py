"""What a replay makes of a log: facts about named things, what it passed over, and where a real reader gives up."""

from __future__ import annotations

import hashlib
import json
import secrets
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, Protocol

_SECRET = secrets.token_bytes(16)
_MOST_BYTES = 1000


class Hidden(NamedTuple):
    """
    A value that may be a secret or long: only its digest is kept.

    The digest is made under a secret of the process, so that no one can guess a short value by it.
    """

    digest: str

    def __str__(self) -> str:
        return f"#{self.digest[:12]}"


def hidden(value: object) -> Hidden:
    """Return the digest of a JSON value."""
    text = json.dumps(value, sort_keys=True, ensure_ascii=True).encode()
    return Hidden(hashlib.blake2b(text, key=_SECRET, digest_size=16).hexdigest())


Fact = bool | int | str | Hidden | None | list["Fact"] | dict[str, "Fact"]
Facts = dict[str, Fact]
"""By field; the first field tells what the thing is, where it is missing as a whole."""


class Thing(NamedTuple):
    """Something with facts: its kind (`offset`, `member`, ...) and its name in words."""

    kind: str
    name: str


@dataclass(frozen=True)
class Failure:
    """
    A record at which those who read the log give up.

    Attributes:
        offset: of the record.
        name: of the thing it is about, in words.
        reason: in words that are the same in every log.
    """

    offset: int
    name: str
    reason: str


class Replay(Protocol):
    """
    The replay of one kind of topic.

    Attributes:
        committed: how its readers read: True as consumers of committed records, False as coordinators read their logs.
        notes: what was passed over, and the failures.
    """

    committed: bool
    notes: Notes

    def record(self, offset: int, producer_id: int, key: bytes | None, value: bytes | None) -> None:
        """Apply a record."""

    def marker(self, producer_id: int, is_commit: bool) -> None:
        """Apply the end of a transaction."""

    def things(self) -> Iterator[tuple[Thing, Facts]]:
        """Yield the state in any order, each thing once."""


MAX_FAILURES = 1000


class Notes:
    """
    What a replay did not apply.

    Attributes:
        passed_over: how many records its readers skip, by reason.
        failures: at which they give up, the first `MAX_FAILURES`; the replay goes on, to compare the rest.
        total_failures: how many there are.
    """

    def __init__(self) -> None:
        self.passed_over: Counter[str] = Counter()
        self.failures: list[Failure] = []
        self.total_failures = 0

    def skip(self, reason: str) -> None:
        """Note a record that is passed over. Reasons must be few: not made of a record's bytes."""
        self.passed_over[reason] += 1

    def fail(self, offset: int, name: str, reason: str) -> None:
        """Note a record that its readers fail on."""
        self.total_failures += 1
        if len(self.failures) < MAX_FAILURES:
            self.failures.append(Failure(offset, name, reason))


@dataclass(frozen=True)
class StateDifference:
    """
    One difference between two states.

    Attributes:
        kind: of the thing: `offset`, `member`, ...; `replay` where readers of the log after give up.
        name: of the thing, in words.
        field: that differs; if the thing is missing on one side, its first field.
        before, after: the field's value as text; None: the thing or the field is not there.
    """

    kind: str
    name: str
    field: str
    before: str | None
    after: str | None


def as_text(value: Fact) -> str:
    """Return a value in words, shortened."""
    if isinstance(value, Hidden | str):
        text = str(value)
    elif isinstance(value, list | dict):
        text = json.dumps(value, ensure_ascii=False, default=str)
    else:
        text = "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
    return text if len(text) <= _MOST_BYTES else text[:_MOST_BYTES] + "..."


def differences(before: Replay, after: Replay) -> Iterator[StateDifference]:
    """Yield the differences of two states, and the failures that only the log after has, by kind and name."""
    old, new = dict(before.things()), dict(after.things())
    for thing in sorted(old.keys() | new.keys()):
        theirs, ours = old.get(thing), new.get(thing)
        if theirs == ours:
            continue
        if theirs is None or ours is None:
            present = theirs or ours or {}
            field, value = next(iter(present.items()))
            text = as_text(value)
            yield StateDifference(*thing, field, None if theirs is None else text, None if ours is None else text)
            continue
        for field in dict.fromkeys([*theirs, *ours]):
            values = [as_text(side[field]) if field in side else None for side in (theirs, ours)]
            if field not in theirs or field not in ours or theirs[field] != ours[field]:
                yield StateDifference(*thing, field, *values)
    known = Counter((each.name, each.reason) for each in before.notes.failures)
    for failure in after.notes.failures:
        if known[failure.name, failure.reason]:
            known[failure.name, failure.reason] -= 1
        else:
            yield StateDifference(
                "replay", failure.name, "replay", "is applied", f"fails at offset {failure.offset}: {failure.reason}"
            )
