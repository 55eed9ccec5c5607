"""`cleaner.spark.register` called with something other than a session: a clear error, without Spark."""

from __future__ import annotations

from typing import Any

import pytest

from cleaner.errors import UsageError
from cleaner.spark import register


class Session:
    """Looks like one; the class itself is none."""

    dataSource: Any = None


class Builder:
    """Has no data sources, like a context or a session of an earlier Spark."""


@pytest.mark.parametrize(
    ("given", "named"),
    [(None, "a NoneType"), ("local", "a str"), (Builder(), "a Builder"), (Builder, "Builder"), (Session, "Session")],
)
def test_register_without_a_session_names_the_required_type(given: Any, named: str) -> None:
    """For example a `SparkSession.builder` without `getOrCreate()`."""
    with pytest.raises(UsageError, match=rf"^spark is {named}; a SparkSession .* is needed: .*getOrCreate\(\)$"):
        register(given)
