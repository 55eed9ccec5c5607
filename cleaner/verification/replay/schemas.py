"""`_schemas`: what a Schema Registry makes of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from cleaner.verification.replay.json_records import compact, parse_object
from cleaner.verification.replay.state import Facts, Notes, Thing, hidden

_SETTINGS = {"CONFIG": ("compatibility", "compatibilityLevel"), "MODE": ("mode", "mode")}


class SchemaReplay:
    """
    The registry's replay, by its sources.

    Records it cannot parse are passed over. So is a schema under an id that the subject has for another schema.
    `DELETE_SUBJECT` marks the versions that are there by then as deleted, `CLEAR_SUBJECT` drops those that are marked:
    for both the order of records counts.
    """

    committed = True

    def __init__(self) -> None:
        self.notes = Notes()
        self._schemas: dict[str, dict[int, Facts]] = {}
        self._others: dict[Thing, Facts] = {}

    def record(self, offset: int, producer_id: int, key: bytes | None, value: bytes | None) -> None:
        """Apply a record."""
        try:
            named = parse_object(key, "key")
            content = None if value is None else parse_object(value, "value")
            self._apply(named, content)
        except ValueError as error:
            self.notes.skip(str(error))

    def marker(self, producer_id: int, is_commit: bool) -> None:
        """Ignore it: consumers of committed records are not given it."""

    def things(self) -> Iterator[tuple[Thing, Facts]]:
        """Yield schemas and settings."""
        for subject, versions in self._schemas.items():
            for version, facts in versions.items():
                yield Thing("schema", f"subject {subject}, version {version}"), facts
        yield from self._others.items()

    def _apply(self, key: dict[str, Any], value: dict[str, Any] | None) -> None:
        kind, subject = key.get("keytype"), key.get("subject")
        if kind == "SCHEMA":
            version = key.get("version")
            if not isinstance(subject, str) or not isinstance(version, int):
                raise ValueError("a schema's key without subject and version")
            self._schema(subject, version, value)
        elif kind in ("DELETE_SUBJECT", "CLEAR_SUBJECT"):
            if value is not None and isinstance(subject := value.get("subject", subject), str):
                self._clear(subject) if kind == "CLEAR_SUBJECT" else self._delete(subject, value.get("version"))
        elif kind == "NOOP":
            return
        elif not isinstance(kind, str):
            raise ValueError("a key without a keytype")
        else:
            what, first = _SETTINGS.get(kind, (kind.lower(), "value"))
            rest = {name: each for name, each in key.items() if name not in ("keytype", "subject", "magic")}
            name = "all subjects" if subject is None else f"subject {subject}"
            thing = Thing(what, f"{name}, {compact(rest)}" if rest else name)
            if value is None:
                self._others.pop(thing, None)
            elif what in ("compatibility", "mode"):
                more = {name: hidden(each) for name, each in value.items() if name not in (first, "subject")}
                self._others[thing] = {what: value.get(first)} | more
            else:
                self._others[thing] = {first: hidden(value)}

    def _schema(self, subject: str, version: int, value: dict[str, Any] | None) -> None:
        versions = self._schemas.setdefault(subject, {})
        if value is None:
            versions.pop(version, None)
            if not versions:
                del self._schemas[subject]
            return
        content = hidden([value.get("schema"), value.get("references") or []])
        number = value.get("id")
        if any(each["id"] == number and each["schema"] != content for each in versions.values()):
            raise ValueError("a schema under an id that its subject has for another")
        versions[version] = {
            "id": number,
            "deleted": bool(value.get("deleted", False)),
            "type": str(value.get("schemaType") or "AVRO"),
            "schema": content,
            "rest": hidden({name: each for name, each in value.items() if name in ("metadata", "ruleSet")}),
        }

    def _delete(self, subject: str, last: object) -> None:
        if not isinstance(last, int):
            raise ValueError("a deletion of a subject without a version")
        for version, facts in self._schemas.get(subject, {}).items():
            if version <= last:
                facts["deleted"] = True

    def _clear(self, subject: str) -> None:
        versions = self._schemas.get(subject, {})
        for version in [version for version, facts in versions.items() if facts["deleted"]]:
            del versions[version]
