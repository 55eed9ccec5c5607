"""
Logs drawn to scale, as SVG: the clean section, the dirty section, what cannot be cleaned yet, the active segment.

    clean (tail)                      dirty (head)           held back   active
    [ already cleaned: gaps  ¦       |######################|:::::::::::|======]
                             ¦       cleaner point
                             delete retention point

Positions are percentages, so a drawing fills its place on any screen; `drawing.html` draws it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cleaner.base.sizes import human_bytes
from cleaner.daemon.snapshot import LogView, WorkerView
from cleaner.policy.sections import Sections, shared
from cleaner.present.text import count

# Every part is visible: a millionth of a log is drawn this wide (percent).
MIN_WIDTH = 0.5
_STEPS = 10_000  # of a drawing's width: the precision of `pct`
# Narrower parts have no name above them (percent).
MIN_WIDTH_OF_NAME = 15.0


@dataclass(frozen=True)
class DrawnPart:
    """One part of a drawing: a class, a word, bytes, and where it is (percent)."""

    kind: str
    name: str
    bytes: int
    x: float
    width: float


@dataclass(frozen=True)
class Point:
    """A point of the drawing in Kafka's documentation: where it is (percent), its line, and the offset there."""

    x: float
    y: int
    name: str
    offset: int


@dataclass(frozen=True)
class Drawing:
    """
    A log, drawn.

    Attributes:
        words: the drawing in words, for readers who cannot see it.
        parts: from the oldest to the newest.
        old_width: of the part below the delete retention point (percent).
        swept: where a worker began and how far it is (percent); None: no worker is at work.
        points: each on a line of its own.
    """

    words: str
    parts: Sequence[DrawnPart] = ()
    old_width: float = 0.0
    swept: tuple[float, float] | None = None
    points: Sequence[Point] = ()


def drawing_of(view: LogView, worker: WorkerView | None = None) -> Drawing:
    """Draw a log; one that could not be read has only words."""
    if view.sections is None:
        return Drawing(words_of(view))
    parts = parts_of(view.sections)
    old_width = _old_width(view.sections, parts)
    return Drawing(words_of(view), parts, old_width, _swept(parts, worker), _points(view.sections, parts, old_width))


def parts_of(sections: Sections) -> list[DrawnPart]:
    """Return the existing parts, from the oldest to the newest, to scale except for `MIN_WIDTH`."""
    weights = [
        ("clean", "clean", sections.clean_bytes),
        ("dirty", "dirty", sections.dirty_bytes),
        ("young", "held back", sections.uncleanable_bytes),
        ("active", "active", sections.active_bytes),
    ]
    present = [row for row in weights if row[2] > 0]
    widths = shared([size for _, _, size in present], _STEPS, round(MIN_WIDTH / 100 * _STEPS))
    parts, x = [], 0
    for (kind, name, size), width in zip(present, widths, strict=True):
        parts.append(DrawnPart(kind, name, size, 100 * x / _STEPS, 100 * width / _STEPS))
        x += width
    return parts


def words_of(view: LogView) -> str:
    """Describe in a sentence what the drawing of a log shows, for readers who cannot see it."""
    sections = view.sections
    if sections is None:
        return f"{view.partition}: could not be read"
    shown = [f"{part.name} {human_bytes(part.bytes)}" for part in parts_of(sections)] or ["empty"]
    retention = _retention_words(sections)
    return f"{view.partition}, {human_bytes(sections.total_bytes)}: {', '.join(shown)}{retention}"


def _retention_words(sections: Sections) -> str:
    offset = sections.delete_retention_offset
    return "" if offset is None else f"; delete retention point at offset {count(offset)}"


def pct(value: float) -> str:
    """Format a position in percent."""
    return f"{min(100.0, max(0.0, value)):.2f}%"


def _old_width(sections: Sections, parts: Sequence[DrawnPart]) -> float:
    if not parts or parts[0].kind != "clean" or not sections.delete_retention_bytes:
        return 0.0
    return parts[0].width * min(1.0, sections.delete_retention_bytes / sections.clean_bytes)


def _swept(parts: Sequence[DrawnPart], worker: WorkerView | None) -> tuple[float, float] | None:
    """Return how far a worker is: in the dirty section while it builds the map, then in both sections."""
    if worker is None or not worker.total_bytes or worker.phase not in ("map", "copy"):
        return None
    swept = [part for part in parts if part.kind == "dirty" or (part.kind == "clean" and worker.phase == "copy")]
    if not swept:
        return None
    begin, end = swept[0].x, swept[-1].x + swept[-1].width
    return begin, begin + (end - begin) * min(1.0, worker.done_bytes / worker.total_bytes)


def _points(sections: Sections, parts: Sequence[DrawnPart], old_width: float) -> list[Point]:
    offset = sections.delete_retention_offset
    cleaner_point = next((part.x + part.width for part in parts if part.kind == "clean"), 0.0)
    points = [Point(cleaner_point, 98, "cleaner point", sections.first_dirty_offset)]
    return points if offset is None else [Point(old_width, 82, "delete retention point", offset), *points]
