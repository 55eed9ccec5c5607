"""Write `docs/metrics.md` from the table of metrics: `python -m tools.metrics_doc`; a test keeps the two in step."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from cleaner.present.metrics.families import CHAPTERS, KAFKA_CHAPTER, SERVE_CHAPTER, Chapter

PATH = Path(__file__).resolve().parent.parent / "docs" / "metrics.md"

_HEAD = """\
# Metrics

<!-- Written by `python -m tools.metrics_doc` from cleaner/present/metrics/families.py. -->

What `/metrics` shows; [monitoring.md](monitoring.md) says how to scrape it and what to look at. Sizes are in bytes,
times in seconds, parts of a whole from 0 to 1. Counters start at 0 with the process. A gauge without a value (a time
that has not come, the free space of a disk that does not answer) has no sample.
"""

_PROCESS = """
Beside these stand the six every Prometheus client has of its process: `process_cpu_seconds_total`,
`process_max_fds`, `process_open_fds`, `process_resident_memory_bytes`, `process_start_time_seconds` and
`process_virtual_memory_bytes`.
"""

_KAFKA = """
Only with `cleaner.http.kafka.metrics=true`: the names under which the JMX exporter shows the gauges of a broker's own
cleaner, in Kafka's units and rounded as there, so that boards and alerts made for it go on working.
"""

_SERVE = """
Not of the daemon: what `cleaner serve --metrics` shows ([serve.md](serve.md)), beside the six of its process.
"""


def document() -> str:
    """Return the text of `docs/metrics.md`."""
    parts = [_HEAD]
    for chapter in CHAPTERS:
        parts += [f"\n## {chapter.title}\n\n", *_rows(chapter)]
        if chapter is CHAPTERS[0]:
            parts.append(_PROCESS)
    for chapter, text in ((KAFKA_CHAPTER, _KAFKA), (SERVE_CHAPTER, _SERVE)):
        parts += [f"\n## {chapter.title}\n", text, "\n", *_rows(chapter)]
    return "".join(parts)


def _rows(chapter: Chapter) -> Iterable[str]:
    yield _row(("Metric", "Type", "Labels", "Meaning"))
    yield _row(["---"] * 4)
    for family in chapter.families:
        labels = ", ".join(f"`{label}`" for label in family.labels)
        yield _row((f"`{family.name}`", family.kind.value, labels, family.help))


def _row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |\n"


if __name__ == "__main__":
    PATH.write_text(document(), encoding="utf-8")
