"""What is made of rounds on logs of different sizes."""

from __future__ import annotations

from dataclasses import replace

from benchmarks.linear import Cost, Measured, cost_table, held_table

GB = 10**9
ONE = Cost(
    seconds=1.0,
    size_bytes=GB,
    output_bytes=GB // 5,
    read_bytes=GB * 22 // 10,
    written_bytes=GB // 5,
    disk_read_bytes=GB,
    page_cache_bytes=100_000_000,
    left_bytes=0,
    peak_bytes=200_000_000,
)
FOUR = replace(ONE, size_bytes=4 * GB, output_bytes=4 * GB // 5, read_bytes=GB * 88 // 10, written_bytes=4 * GB // 5)


def verdicts(one: Cost, four: Cost) -> list[str]:
    """The last cells of the table."""
    found = [Measured(1, None, one, 2e9), Measured(4, None, four, 2e9)]
    return [line.split("|")[-2].strip() for line in held_table(found).splitlines()[4:]]


def test_times_read_leaves_reading_back_out() -> None:
    """Twice the log and once what was kept is reading the log twice."""
    assert ONE.times_read == 2.0


def test_held_table_takes_the_large_log_by_the_gigabyte() -> None:
    """Four times the seconds for four times the bytes is linear, five times is not."""
    assert verdicts(ONE, replace(FOUR, seconds=4.0)) == ["must met", "aim met", "must met", "must met"]
    assert verdicts(ONE, replace(FOUR, seconds=5.0))[0] == "MISSED"


def test_held_table_misses_what_reads_thrice_writes_twice_or_floods() -> None:
    """Each row has a bound of its own."""
    bad = replace(FOUR, seconds=4.0, read_bytes=13 * GB, written_bytes=2 * GB, page_cache_bytes=4 * GB)
    assert verdicts(ONE, bad) == ["must met", "MISSED", "MISSED", "MISSED"]


def test_cost_table_without_warm_round_has_a_cold_row_only() -> None:
    """A log that does not fit the page cache twice is never warm."""
    names = [line.split("|")[1].strip() for line in cost_table([Measured(4, None, FOUR, 2e9)]).splitlines()[4:]]
    assert names == ["4 GB, cold"]
