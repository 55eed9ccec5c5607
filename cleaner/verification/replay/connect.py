"""Connect's three topics: what a worker makes of connectors' configurations, offsets and states."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from cleaner.verification.replay.json_records import compact, parse_list, parse_object
from cleaner.verification.replay.state import Fact, Facts, Notes, Thing, as_text, hidden

_TARGET_STATES = ("STARTED", "PAUSED", "STOPPED")
_NOT_STATE = ("restart-connector-", "logger-cluster-")


class ConnectReplay:
    """
    A worker's replay; what a record is for is told by its key, as the topics may have any names.

    Values of configurations, and session keys, are compared, never shown.

    Task configurations wait for the commit of their connector. A commit with too few of them makes the connector
    inconsistent, one without a connector is ignored: for both the order of records counts. Records that cannot be
    parsed are passed over.
    """

    committed = True

    def __init__(self) -> None:
        self.notes = Notes()
        self._connectors: dict[str, Facts] = {}
        self._targets: dict[str, str] = {}
        self._tasks: dict[str, dict[int, Facts]] = {}
        self._waiting: dict[str, dict[int, Facts]] = {}
        self._task_counts: dict[str, int] = {}
        self._inconsistent: set[str] = set()
        self._fenced: dict[str, int] = {}
        self._to_fence: set[str] = set()
        self._offsets: dict[str, Facts] = {}
        self._states: dict[Thing, Facts] = {}
        self._session: Facts = {}

    def record(self, offset: int, producer_id: int, key: bytes | None, value: bytes | None) -> None:
        """Apply a record."""
        try:
            if key is None:
                raise ValueError("a record without a key")
            if key.lstrip().startswith(b"["):
                self._offset(parse_list(key, "key"), value)
                return
            name = key.decode("utf-8")
            content = None if value is None else parse_object(value, "value")
            self._apply(name, content)
        except UnicodeDecodeError:
            self.notes.skip("a key that is not a text")
        except ValueError as error:
            self.notes.skip(str(error))

    def marker(self, producer_id: int, is_commit: bool) -> None:
        """Ignore it: consumers of committed records are not given it."""

    def things(self) -> Iterator[tuple[Thing, Facts]]:
        """Yield the state; of tasks those that their connector has."""
        for name, properties in self._connectors.items():
            count = self._task_counts.get(name, 0)
            facts: Facts = {"tasks": count, "consistent": name not in self._inconsistent}
            facts |= {"to be fenced": name in self._to_fence, "fenced tasks": self._fenced.get(name)}
            yield Thing("connector", f"connector {name}"), facts | properties
            for number, task in self._tasks.get(name, {}).items():
                if number < count:
                    yield Thing("task", f"connector {name}, task {number}"), _first("number", number, task)
        for name, state in self._targets.items():
            yield Thing("target state", f"connector {name}"), {"target state": state}
        for key, facts in self._offsets.items():
            yield Thing("source offset", key), facts
        yield from self._states.items()
        if self._session:
            yield Thing("session key", "session key"), self._session

    # ---- offsets ---------------------------------------------------------------------------------------------------

    def _offset(self, key: list[Any], value: bytes | None) -> None:
        connector = key[0] if key and isinstance(key[0], str) else "?"
        name = f"connector {connector}, partition {compact(key[1:2][0] if len(key) > 1 else None)}"
        if value is None:
            self._offsets.pop(name, None)
        else:
            self._offsets[name] = {
                "offset": as_text(value.decode("utf-8", "backslashreplace")),
                "bytes": hidden(value.hex()),
            }

    # ---- configurations and states ---------------------------------------------------------------------------------

    def _apply(self, key: str, value: dict[str, Any] | None) -> None:
        for prefix, apply in (
            ("target-state-", self._target_state),
            ("connector-", self._connector),
            ("task-", self._task),
            ("commit-", self._commit),
            ("tasks-fencing-", self._fencing),
            ("status-connector-", self._connector_status),
            ("status-task-", self._task_status),
            ("status-topic-", self._topic_status),
        ):
            if key.startswith(prefix):
                apply(key.removeprefix(prefix), value)
                return
        if key == "session-key":
            if value is None:
                raise ValueError("a session key of null")
            self._session = {"key": hidden(value)}
        elif not key.startswith(_NOT_STATE):
            raise ValueError("a key of an unknown kind")

    def _target_state(self, name: str, value: dict[str, Any] | None) -> None:
        if value is None:
            self._targets.pop(name, None)
            if name in self._connectors:
                self._targets[name] = _TARGET_STATES[0]
            return
        newer = value.get("state.v2")
        state = newer if isinstance(newer, str) else value.get("state")
        if state not in _TARGET_STATES:
            raise ValueError("a target state of an unknown name")
        self._targets[name] = state

    def _connector(self, name: str, value: dict[str, Any] | None) -> None:
        if value is None:
            self._forget(name)
            return
        self._connectors[name] = _properties(value)
        self._targets.setdefault(name, _TARGET_STATES[0])

    def _forget(self, name: str) -> None:
        for held in (self._connectors, self._task_counts, self._tasks, self._waiting):
            held.pop(name, None)

    def _task(self, name: str, value: dict[str, Any] | None) -> None:
        connector, number = _numbered(name)
        if value is None:
            raise ValueError("a task's configuration of null")
        self._waiting.setdefault(connector, {})[number] = _properties(value)

    def _commit(self, name: str, value: dict[str, Any] | None) -> None:
        if name not in self._connectors:
            self._forget(name)
            return
        count = _count(value, "tasks")
        waiting = self._waiting.pop(name, {})
        # More than it takes may be there: of tasks that the connector no longer has.
        if sum(number in waiting for number in range(min(count, len(waiting) + 1))) < count:
            self._inconsistent.add(name)
        else:
            self._tasks.setdefault(name, {}).update(waiting)
            self._inconsistent.discard(name)
        self._task_counts[name] = count
        self._to_fence.add(name)

    def _fencing(self, name: str, value: dict[str, Any] | None) -> None:
        self._fenced[name] = _count(value, "task-count")
        self._to_fence.discard(name)

    def _connector_status(self, name: str, value: dict[str, Any] | None) -> None:
        if value is None:
            words = f"connector {name}, task "
            for thing in [each for each in self._states if each.kind == "task state" and each.name.startswith(words)]:
                if thing.name.removeprefix(words).isdigit():
                    del self._states[thing]
        self._put(Thing("connector state", f"connector {name}"), value)

    def _task_status(self, name: str, value: dict[str, Any] | None) -> None:
        connector, number = _numbered(name)
        self._put(Thing("task state", f"connector {connector}, task {number}"), value)

    def _topic_status(self, name: str, value: dict[str, Any] | None) -> None:
        self._put(Thing("active topic", name), value)

    def _put(self, thing: Thing, value: dict[str, Any] | None) -> None:
        if value is None:
            self._states.pop(thing, None)
        else:
            shown: Facts = {"state": as_text(value.get("state"))} if "state" in value else {}
            worker = {"worker": value.get("worker_id"), "generation": value.get("generation")}
            self._states[thing] = (
                shown | {"content": hidden(value)} | {k: v for k, v in worker.items() if v is not None}
            )


def _first(name: str, value: Fact, facts: Facts) -> Facts:
    first: Facts = {name: value}
    return first | facts


def _properties(value: dict[str, Any]) -> Facts:
    properties = value.get("properties")
    if not isinstance(properties, dict):
        raise ValueError("a configuration without properties")
    return {f"property {name}": hidden(each) for name, each in properties.items()}


def _count(value: dict[str, Any] | None, name: str) -> int:
    count = None if value is None else value.get(name)
    if not isinstance(count, int):
        raise ValueError(f"a record without {name}")
    return count


def _numbered(name: str) -> tuple[str, int]:
    connector, _, number = name.rpartition("-")
    if not number.isascii() or not number.isdecimal() or len(number) > len(str(2**31)):
        raise ValueError("a task's key without a number")
    return connector, int(number)
