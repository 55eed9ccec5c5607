"""docs/spark.md: its tables have every option with its default, and no others."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cleaner.spark.source.columns import BATCH_FIELDS, SELECTABLE, usual_columns
from cleaner.spark.source.options import NOT_HERE, READ_DEFAULTS
from cleaner.spark.source.write_options import WRITE_DEFAULTS

PAGE = Path(__file__).parents[3] / "docs" / "spark.md"
FIRST_ROW = "| option | default | meaning |"


def table(number: int) -> dict[str, str]:
    """Return the options of one of the page's tables with their defaults."""
    rows = PAGE.read_text().split(FIRST_ROW)[number].split("\n\n")[0].splitlines()[2:]
    found = {}
    for row in rows:
        names, default = (cell.strip() for cell in row.split("|")[1:3])
        for name in re.findall("`(.*?)`", names):
            found[name] = default.strip("`")
    return found


@pytest.mark.parametrize(("number", "defaults"), [(1, READ_DEFAULTS), (2, WRITE_DEFAULTS)], ids=["read", "write"])
def test_tables_have_every_option_with_its_default(number: int, defaults: dict[str, str]) -> None:
    """`all` means an empty text; the path is in the call."""
    shown = {name: "" if default == "all" else default for name, default in table(number).items()}
    assert shown == {name: default for name, default in defaults.items() if name != "path"}


def test_page_names_every_column_on_request() -> None:
    """Columns of a record's batch."""
    text = PAGE.read_text()
    asked = set(SELECTABLE) - set(usual_columns(headers=True))
    assert set(BATCH_FIELDS) < asked
    assert [name for name in sorted(asked) if f"`{name}`" not in text] == []


def test_page_names_every_ignored_option() -> None:
    """Options of Spark's Kafka source that need a broker."""
    text = PAGE.read_text()
    assert [name for name in NOT_HERE if f"`{name}`" not in text] == []
