"""The comparisons of the writable log: each measurement does what it says, on a few records."""

from __future__ import annotations

from pathlib import Path

from benchmarks.append import append_tables
from benchmarks.commit import commit_table
from benchmarks.opening import opening_table
from benchmarks.read import read_tables
from benchmarks.restore import restore_table
from benchmarks.stores import PlainFile, Table, open_log, sample
from benchmarks.table import many_keys_table
from benchmarks.turns import take_turns
from cleaner import RecordColumns


def rows(tables: str) -> list[str]:
    """Return the first cell of each row, heads left out."""
    return [line.split("|")[1].strip() for line in tables.splitlines() if line.startswith("| ") and "---" not in line]


def test_stores_hold_the_same_records(tmp_path: Path) -> None:
    """Else they would not have done the same."""
    records = sample(2500, 100)
    with (
        open_log(tmp_path / "logs") as log,
        PlainFile(tmp_path / "records") as file,
        Table(tmp_path / "db", "OFF") as table,
    ):
        for keys, values in records.batches():
            log.append(RecordColumns(values, keys))
            file.append(keys, values)
            table.append(keys, values)
        expected = list(zip(records.keys, records.values, strict=True))
        assert [(record.key, record.value) for record in log.read(0, until="end")] == expected
        assert list(file.read()) == expected
        assert [row[2:] for row in table.read()] == expected
    assert {len(key) + len(value) for key, value in expected} == {100}


def test_first_turn_does_not_count(tmp_path: Path) -> None:
    """It loads what the others find loaded."""
    seconds = iter((100.0, 3.0, 1.0, 2.0))
    assert take_turns({"way": lambda _: next(seconds)}, 3, tmp_path) == {"way": 2.0}


def test_tables_have_a_row_for_each_way(tmp_path: Path) -> None:
    """A few records are enough to see that each way can be gone; those that read assert that they have read all."""
    assert rows(append_tables(1, tmp_path, 0.002)).count("ours, columns") == 2
    assert rows(read_tables(1, tmp_path, 0.002)).count("SQLite") == 2
    assert "ours" in restore_table(1, tmp_path, 0.002)
    assert len(rows(opening_table(0.03, 1, tmp_path))) == 5
    assert "get_many/s" in many_keys_table(tmp_path, 3000)
    assert rows(commit_table(1, tmp_path, 0.02))[1:] == ["1", "8", "32"]
