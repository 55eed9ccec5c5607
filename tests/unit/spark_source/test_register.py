"""What `cleaner.spark.register` is given that is no session: said in words, without Spark."""

from __future__ import annotations

from typing import Any

import pytest

from cleaner.errors import UsageError
from cleaner.spark import register


class Session:
    """Looks like one; the class itself is none."""

    dataSource: Any = None


class Builder:
    """Has no formats, like a context and a session of an earlier Spark."""


@pytest.mark.parametrize(
    ("given", "named"),
    [(None, "a NoneType"), ("local", "a str"), (Builder(), "a Builder"), (Builder, "Builder"), (Session, "Session")],
)
def test_register_of_no_session_names_what_is_needed(given: Any, named: str) -> None:
    """A `SparkSession.builder` not asked for its session, for one."""
    with pytest.raises(UsageError, match=rf"^spark is {named}; a SparkSession .* is needed: .*getOrCreate\(\)$"):
        register(given)
