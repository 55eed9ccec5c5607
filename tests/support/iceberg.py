"""Reads an Iceberg table from its files, as its specification says, without pyiceberg and the exporter's code."""

from __future__ import annotations

import io
import json
import struct
import zlib
from pathlib import Path
from typing import Any, NamedTuple

from tests.reference.table import Table
from tests.support.tables import as_table, read_file

_DELETED = 2


class State(NamedTuple):
    """A snapshot: its number, that of the one before, its tables by partition, and what its summary says."""

    snapshot: int
    parent: int | None
    tables: dict[int, Table]
    summary: dict[str, str]


def states_in(target: Path, *, by_hint: bool = False, is_alone: bool = True) -> list[State]:
    """
    Return the snapshots of a table, the current one last; all their files are there, and of the size that is noted.

    Args:
        by_hint: as readers that look at `version-hint.text`; else those that look for the highest number.
        is_alone: there are no files that no snapshot has.
    """
    versions = {int(path.name[1:].partition(".")[0]): path for path in (target / "metadata").glob("v*.metadata.json")}
    chosen = int((target / "metadata" / "version-hint.text").read_text()) if by_hint else max(versions)
    about = json.loads(versions[chosen].read_text())
    assert about["format-version"] == 2
    found, named = [], set()
    for each in sorted(about["snapshots"], key=lambda each: each["sequence-number"]):
        rows: dict[int, list[dict[str, Any]]] = {}
        lists = [_place(target, each["manifest-list"])]
        manifests = [_place(target, entry["manifest_path"]) for path in lists for entry in avro(path)]
        for entry in (entry for path in manifests for entry in avro(path) if entry["status"] != _DELETED):
            file = entry["data_file"]
            path = _place(target, file["file_path"])
            mine = read_file(target, str(path.relative_to(target)))
            assert file["content"] == 0
            assert (file["record_count"], file["file_size_in_bytes"]) == (len(mine), path.stat().st_size)
            assert {row["partition"] for row in mine} == {file["partition"]["partition"]}
            assert [row["offset"] for row in mine] == sorted(row["offset"] for row in mine)
            rows.setdefault(file["partition"]["partition"], []).extend(mine)
            named.add(path)
        named |= {*lists, *manifests}
        tables = {number: as_table(found) for number, found in rows.items()}
        found.append(State(each["snapshot-id"], each.get("parent-snapshot-id"), tables, each["summary"]))
    assert found[-1].snapshot == about["current-snapshot-id"]
    there = {path for kind in ("*.avro", "*.parquet") for path in target.rglob(kind)}
    assert named <= there
    assert there == named or not is_alone
    assert len(versions) <= 2 or not is_alone
    return found


def _place(target: Path, location: str) -> Path:
    path = Path(location.removeprefix("file://"))
    assert path.is_relative_to(target)
    return path


def avro(path: Path) -> list[Any]:
    """Return what is in an Avro file, uncompressed or deflated."""
    stream = io.BytesIO(path.read_bytes())
    assert stream.read(4) == b"Obj\x01"
    about = _value(stream, {"type": "map", "values": "bytes"})
    schema, codec, sync = json.loads(about["avro.schema"]), about.get("avro.codec", b"null"), stream.read(16)
    found: list[Any] = []
    while stream.tell() < path.stat().st_size:
        count, size = _long(stream), _long(stream)
        data = stream.read(size)
        block = io.BytesIO(zlib.decompress(data, -15) if codec == b"deflate" else data)
        found += [_value(block, schema) for _ in range(count)]
        assert stream.read(16) == sync
    return found


def _long(stream: io.BytesIO) -> int:
    number = shift = 0
    while True:
        byte = stream.read(1)[0]
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1)


def _value(stream: io.BytesIO, schema: Any) -> Any:
    if isinstance(schema, list):
        return _value(stream, schema[_long(stream)])
    kind = schema["type"] if isinstance(schema, dict) else schema
    if isinstance(kind, dict | list):
        return _value(stream, kind)
    if kind == "record":
        return {field["name"]: _value(stream, field["type"]) for field in schema["fields"]}
    if kind in ("array", "map"):
        found = []
        while count := _long(stream):
            if count < 0:
                _long(stream)
            for _ in range(abs(count)):
                name = _value(stream, "string") if kind == "map" else None
                found.append((name, _value(stream, schema["items" if kind == "array" else "values"])))
        return dict(found) if kind == "map" else [each for _, each in found]
    if kind in ("bytes", "string"):
        data = stream.read(_long(stream))
        return data if kind == "bytes" else data.decode()
    if kind in ("float", "double"):
        return struct.unpack("<f" if kind == "float" else "<d", stream.read(4 if kind == "float" else 8))[0]
    if kind == "fixed":
        return stream.read(schema["size"])
    return {"null": lambda: None, "boolean": lambda: stream.read(1) == b"\x01"}.get(kind, lambda: _long(stream))()
