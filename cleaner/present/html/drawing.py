"""
Logs drawn to scale, as SVG: the clean section, the dirty section, what cannot be cleaned yet, the active segment.

    clean (tail)                      dirty (head)           held back   active
    [ already cleaned: gaps  ¦       |######################|:::::::::::|======]
                             ¦       cleaner point
                             delete retention point

Places are percentages, so a drawing is as wide as its place on any screen. Nothing is styled here but by class.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from cleaner.base.sizes import human_bytes
from cleaner.daemon.snapshot import LogView, RoundView, WorkerView
from cleaner.policy.sections import Sections
from cleaner.present.html.markup import Markup, el
from cleaner.present.text import count, percent

# What is there is seen: a part of a millionth of a log is drawn this wide (percent).
LEAST_WIDTH = 0.5
# Narrower parts go without their name above them (percent).
LEAST_WIDTH_OF_NAME = 15.0


@dataclass(frozen=True)
class DrawnPart:
    """One part of a drawing: a class, a word, bytes, and where it is (percent)."""

    kind: str
    name: str
    bytes: int
    x: float
    width: float


def parts_of(sections: Sections) -> list[DrawnPart]:
    """Return the parts that are there, from the oldest to the newest, to scale but for `LEAST_WIDTH`."""
    weights = [
        ("clean", "clean", sections.clean_bytes),
        ("dirty", "dirty", sections.dirty_bytes),
        ("young", "held back", sections.uncleanable_bytes),
        ("active", "active", sections.active_bytes),
    ]
    present = [row for row in weights if row[2] > 0]
    total = sum(row[2] for row in present)
    widths = [max(LEAST_WIDTH, 100 * row[2] / total) for row in present]
    scale = 100 / sum(widths) if widths else 1.0
    parts, x = [], 0.0
    for (kind, name, weight), width in zip(present, widths, strict=True):
        parts.append(DrawnPart(kind, name, weight, x, width * scale))
        x += width * scale
    return parts


def words_of(view: LogView) -> str:
    """Say in a sentence what the drawing of a log shows, for those who do not see it."""
    sections = view.sections
    if sections is None:
        return f"{view.partition}: could not be looked at"
    shown = [f"{part.name} {human_bytes(part.bytes)}" for part in parts_of(sections)] or ["empty"]
    retention = _retention_words(sections)
    return f"{view.partition}, {human_bytes(sections.total_bytes)}: {', '.join(shown)}{retention}"


def _retention_words(sections: Sections) -> str:
    offset = sections.delete_retention_offset
    return "" if offset is None else f"; delete retention point at offset {count(offset)}"


def strip(view: LogView, worker: WorkerView | None = None) -> Markup:
    """Return a log as one line of a table."""
    words = words_of(view)
    if view.sections is None:
        return el("svg", el("title", words), class_="strip empty", role="img", aria_label=words)
    parts = parts_of(view.sections)
    return el(
        "svg",
        el("title", words),
        _rects(parts, "0", "100%"),
        _old(view.sections, parts, "0", "100%"),
        _sweep(parts, worker, "0", "100%"),
        class_="strip",
        role="img",
        aria_label=words,
    )


def anatomy(view: LogView, worker: WorkerView | None = None) -> Markup:
    """Return a log with its parts and points named; nothing for one that could not be looked at."""
    sections = view.sections
    if sections is None:
        return Markup("")
    parts = parts_of(sections)
    words = words_of(view)
    names = [
        el("text", part.name, x=_pct(part.x + part.width / 2), y="13", class_="part-name", text_anchor="middle")
        for part in parts
        if part.width >= LEAST_WIDTH_OF_NAME
    ]
    return el(
        "svg",
        el("title", words),
        names,
        _rects(parts, "22", "44"),
        _old(sections, parts, "22", "44"),
        [_cells(part) for part in parts],
        _sweep(parts, worker, "22", "44"),
        _points(sections, parts),
        class_="anatomy",
        role="img",
        aria_label=words,
    )


def _pct(value: float) -> str:
    return f"{min(100.0, max(0.0, value)):.2f}%"


def _rects(parts: Iterable[DrawnPart], y: str, height: str) -> list[Markup]:
    return [el("rect", x=_pct(p.x), y=y, width=_pct(p.width), height=height, class_=p.kind) for p in parts]


def _cells(part: DrawnPart) -> Markup:
    """Return records as cells: gaps where keys were removed, close together where none were."""
    pattern = "gaps" if part.kind == "clean" else "cells"
    return el("rect", x=_pct(part.x), y="22", width=_pct(part.width), height="44", fill=f"url(#{pattern})")


def _old_width(sections: Sections, parts: Sequence[DrawnPart]) -> float:
    if not parts or parts[0].kind != "clean" or not sections.delete_retention_bytes:
        return 0.0
    return parts[0].width * min(1.0, sections.delete_retention_bytes / sections.clean_bytes)


def _old(sections: Sections, parts: Sequence[DrawnPart], y: str, height: str) -> Markup | None:
    """Return the shade of what lies below the delete retention point."""
    width = _old_width(sections, parts)
    return el("rect", x="0", y=y, width=_pct(width), height=height, class_="old") if width else None


def _sweep(parts: Sequence[DrawnPart], worker: WorkerView | None, y: str, height: str) -> list[Markup]:
    """Return how far a worker has come: through the dirty section while it builds the map, then through both."""
    if worker is None or not worker.total_bytes or worker.phase not in ("map", "copy"):
        return []
    swept = [p for p in parts if p.kind == "dirty" or (p.kind == "clean" and worker.phase == "copy")]
    if not swept:
        return []
    begin, end = swept[0].x, swept[-1].x + swept[-1].width
    at = begin + (end - begin) * min(1.0, worker.done_bytes / worker.total_bytes)
    return [
        el("rect", x=_pct(begin), y=y, width=_pct(at - begin), height=height, class_="swept"),
        el("line", x1=_pct(at), x2=_pct(at), y1=y, y2=height if y == "0" else "66", class_="broom"),
    ]


def _points(sections: Sections, parts: Sequence[DrawnPart]) -> list[Markup]:
    """Return the two points of the drawing in Kafka's documentation, each on a line of its own."""
    points: list[tuple[float, int, str, int]] = []
    offset = sections.delete_retention_offset
    if offset is not None:
        points.append((_old_width(sections, parts), 82, "delete retention point", offset))
    cleaner_point = next((p.x + p.width for p in parts if p.kind == "clean"), 0.0)
    points.append((cleaner_point, 98, "cleaner point", sections.first_dirty_offset))
    # Lines first: a name is written over another point's line, not crossed out by it.
    lines = [el("line", x1=_pct(x), x2=_pct(x), y1="18", y2=y, class_="point") for x, y, _, _ in points]
    return lines + [_point_name(*point) for point in points]


def _point_name(x: float, y: int, name: str, offset: int) -> Markup:
    is_left = x < 50
    return el(
        "text",
        f"{name} ",
        el("tspan", count(offset), class_="offset"),
        x=_pct(x),
        y=y,
        dx="6" if is_left else "-6",
        text_anchor="start" if is_left else "end",
        class_="point-name",
    )


def bar(part: float, kind: str, words: str) -> Markup:
    """Return a bar of which a part (0 to 1) is filled."""
    return el(
        "svg",
        el("title", words),
        el("rect", x="0", y="0", width="100%", height="100%", class_="rest"),
        el("rect", x="0", y="0", width=_pct(100 * part), height="100%", class_=kind),
        class_="bar",
        role="img",
        aria_label=words,
    )


def ratio_bar(ratio: float, least: float, is_due: bool) -> Markup:
    """Return a dirty ratio with a tick at what it has to be over."""
    words = f"dirty ratio {percent(ratio)}, due over {percent(least)}"
    return el(
        "svg",
        el("title", words),
        el("rect", x="0", y="3", width="100%", height="6", class_="rest"),
        el("rect", x="0", y="3", width=_pct(100 * ratio), height="6", class_="dirty" if is_due else "mild"),
        el("line", x1=_pct(100 * least), x2=_pct(100 * least), y1="0", y2="12", class_="tick"),
        class_="ratio",
        role="img",
        aria_label=words,
    )


def round_bar(view: RoundView, most_bytes: int) -> Markup:
    """Return what a round kept and what it freed, on a scale that a table's rounds share."""
    words = f"{human_bytes(view.bytes_read)} became {human_bytes(view.bytes_written)}"
    scale = 100 / most_bytes if most_bytes else 0.0
    kept = scale * min(view.bytes_written, most_bytes)
    freed = scale * max(0, view.bytes_freed)
    return el(
        "svg",
        el("title", words),
        el("rect", x="0", y="0", width=_pct(kept), height="100%", class_="clean"),
        el("rect", x=_pct(kept), y="0", width=_pct(freed), height="100%", class_="freed"),
        class_="bar",
        role="img",
        aria_label=words,
    )


def stack(rows: Sequence[tuple[str, int, str]], words: str) -> Markup:
    """Return counts beside each other: class, how many, what they are."""
    total = sum(many for _, many, _ in rows)
    rects, x = [], 0.0
    for kind, many, name in rows:
        width = 100 * many / total if total else 0.0
        rects.append(el("rect", el("title", name), x=_pct(x), y="0", width=_pct(width), height="100%", class_=kind))
        x += width
    return el("svg", rects, class_="stack", role="img", aria_label=words)


def patterns() -> Markup:
    """Return what the drawings of a page share."""
    gaps = [
        el("rect", x=x, y="0", width=width, height="44") for x, width in ((9, 2), (20, 9), (38, 2), (47, 16), (72, 2))
    ]
    cells = el("rect", x="9", y="0", width="1", height="44")
    shared = {"patternUnits": "userSpaceOnUse", "y": "22", "height": "44"}
    return el(
        "svg",
        el(
            "defs",
            el("pattern", gaps, id="gaps", width="74", **shared),
            el("pattern", cells, id="cells", width="10", **shared),
        ),
        class_="patterns",
        width="0",
        height="0",
        aria_hidden="true",
    )
