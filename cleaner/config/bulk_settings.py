"""The settings of cleaning with Spark, by `cleaner bulk` or the daemon: a field of `CleanerConfig` each."""

from __future__ import annotations

from dataclasses import dataclass

from cleaner.config.definition import setting

SPARK_PREFIX = "spark."
"""Settings with this prefix are Spark's own, and passed on unchanged."""


@dataclass(frozen=True)
class BulkSettings:
    """The settings of cleaning with Spark."""

    bulk_enable: bool = setting(
        "cleaner.bulk.enable",
        "boolean",
        "true",
        "Whether the daemon cleans large logs with Spark, if Spark and Java are installed.",
    )
    bulk_min_bytes: int = setting(
        "cleaner.bulk.min.bytes",
        "long",
        "107374182400",
        "The least size of a log for that: bytes of its clean and cleanable sections together.",
        minimum=0,
        in_bytes=True,
    )
    bulk_groups_in_flight: int = setting(
        "cleaner.bulk.groups.in.flight",
        "int",
        "4",
        "Groups of segments of a log that are recopied, or wait to be swapped in, at the same time. Until then their "
        "outputs take room next to the log.",
        minimum=1,
        maximum=10_000,
    )
    configured_bulk_work_dir: str | None = setting(
        "cleaner.bulk.work.dir",
        "string",
        None,
        "Where jobs keep their state, outside of all log dirs; all executors read and write there. "
        "Default: `bulk` in `cleaner.state.dir`.",
    )
    bulk_task_memory: int = setting(
        "cleaner.bulk.task.memory",
        "long",
        "67108864",
        "Bytes for the keys that one task holds at a time; besides them it needs some 100 MiB.",
        minimum=1024,
        in_bytes=True,
    )
