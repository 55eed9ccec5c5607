"""Reads the files of an export without the exporter's code."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from tests.reference.table import Row, Table


def read_file(target: Path, name: str) -> list[dict[str, Any]]:
    """Return the rows of a file; `timestamp` in milliseconds, None where there is none."""
    path = target / name
    if path.suffix == ".jsonl":
        return [_plain(json.loads(line)) for line in path.read_text().splitlines()]
    table = pq.ParquetFile(path).read()
    millis = [
        None if each is None or each < 0 else each // 1000 for each in table["timestamp"].cast("int64").to_pylist()
    ]
    rows: list[dict[str, Any]] = table.drop_columns(["timestamp"]).to_pylist()
    for row, time in zip(rows, millis, strict=True):
        row["timestamp"] = time
        row["headers"] = tuple((each["key"], each["value"]) for each in row["headers"] or ())
    return rows


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    for name in ("key", "value"):
        row[name] = _bytes(row[name])
    row["headers"] = tuple((name, _bytes(value)) for name, value in row.get("headers", ()))
    return row


def _bytes(value: Any) -> bytes | None:
    if value is None or isinstance(value, str):
        return None if value is None else value.encode()
    return base64.b64decode(value["base64"])


def as_table(rows: list[dict[str, Any]]) -> Table:
    """Return rows by key."""
    found = {row["key"]: Row(row["value"], row["offset"], row["timestamp"], row["headers"]) for row in rows}
    assert len(found) == len(rows), "a key twice"
    return found


def manifest_of(target: Path, *, is_alone: bool = True) -> dict[str, Any]:
    """Return the manifest; each file that it names is there, and, if `is_alone`, no other file of an export is."""
    found: dict[str, Any] = json.loads((target / "manifest.json").read_text())
    files = [each[kind] for each in found["partitions"] for kind in ("table", "upserts", "deletes") if each[kind]]
    names = {str(path.relative_to(target)) for path in target.glob("*/*")}
    assert {each["name"] for each in files} <= names
    assert len(files) == len(names) or not is_alone
    for each in files:
        assert (target / each["name"]).stat().st_size == each["bytes"]
        assert len(read_file(target, each["name"])) == each["rows"]
    return found


def table_in(target: Path, partition: int = 0) -> Table:
    """Return the exported table of a partition."""
    about = manifest_of(target, is_alone=False)["partitions"][partition]
    return as_table(read_file(target, about["table"]["name"]))


def changes_in(target: Path, partition: int = 0) -> tuple[Table, set[bytes]]:
    """Return the exported changes of a partition."""
    about = manifest_of(target, is_alone=False)["partitions"][partition]
    deletes = read_file(target, about["deletes"]["name"])
    assert all(row["value"] is None for row in deletes)
    return as_table(read_file(target, about["upserts"]["name"])), {row["key"] for row in deletes}
