"""
Writes deploy/grafana/cleaner.json, the Grafana dashboard, from the table below: `python -m tools.dashboard`.

Classic form, which every Grafana of the last years imports: no id, a stable uid, the data source chosen at import.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

PATH = Path(__file__).resolve().parent.parent / "deploy" / "grafana" / "cleaner.json"
COLUMNS = 24
SCHEMA_VERSION = 39  # Grafana 10 and later
_MINE = 'instance=~"$instance"'


@dataclass(frozen=True)
class Panel:
    """
    One panel.

    Attributes:
        title, description: what stands over it, and behind its question mark.
        unit: Grafana's name of it.
        queries: legend and expression; `{}` and `@` stand for the chosen instances.
        kind: `timeseries`, `stat` or `table`.
        width: of 24.
        thresholds: value and colour, ascending, after green.
        is_stacked: areas upon each other.
    """

    title: str
    description: str
    unit: str
    queries: tuple[tuple[str, str], ...]
    kind: str = "timeseries"
    width: int = 8
    thresholds: tuple[tuple[float, str], ...] = ()
    is_stacked: bool = False


def _rate(metric: str, by: str) -> str:
    return f"sum by ({by}) (rate({metric}{{@}}[$__rate_interval]))"


_BAD = ((1.0, "red"),)

ROWS: tuple[tuple[str, tuple[Panel, ...]], ...] = (
    (
        "Is all well?",
        (
            Panel("Cleaners up", "Those that answer Prometheus.", "none",
                  (("up", 'sum(up{job="cleaner", @})'),), "stat", 4),
            Panel("Not progressing", "The scheduler stands, or a busy worker does.", "none",
                  (("stuck", "count(cleaner_progressing{} == 0) or vector(0)"),), "stat", 4, _BAD),
            Panel("Quarantined", "Partitions in quarantine.", "none",
                  (("quarantined", "sum(cleaner_quarantined_partitions{})"),), "stat", 4, _BAD),
            Panel("Log dirs offline", "Disks that failed.", "none",
                  (("offline", "sum(cleaner_offline_log_dirs{})"),), "stat", 4, _BAD),
            Panel("Most overdue", "By how much a log is over max.compaction.lag.ms.", "s",
                  (("overdue", "max(cleaner_max_overdue_seconds{})"),), "stat", 4, ((1.0, "orange"), (3600.0, "red"))),
            Panel("Last success", "Since a round last ended well.", "s",
                  (("ago", "time() - max(cleaner_last_successful_round_timestamp_seconds{})"),), "stat", 4,
                  ((21600.0, "red"),)),
        ),
    ),
    (
        "Backlog",
        (
            Panel("Dirty ratio, worst topics", "The highest of each topic's logs.", "percentunit",
                  (("{{topic}}", "topk(10, max by (topic) (cleaner_topic_max_dirty_ratio{}))"),), width=12),
            Panel("Why logs wait", "All logs, by the reason why they are next, wait or are not cleaned.", "none",
                  (("{{reason}}", "sum by (reason) (cleaner_logs{})"),), width=12, is_stacked=True),
            Panel("Queue and workers", "Logs that only wait for a worker, and workers at work.", "none",
                  (("queue", "sum(cleaner_queue_logs{})"), ("busy", "sum(cleaner_workers_busy{})"),
                   ("workers", "sum(cleaner_workers{})"))),
            Panel("Overdue logs", "Over max.compaction.lag.ms.", "none",
                  (("{{instance}}", "cleaner_overdue_logs{}"),)),
            Panel("Failing logs", "Logs whose last round failed and that are tried again.", "none",
                  (("{{instance}}", "cleaner_retrying_partitions{}"),)),
        ),
    ),
    (
        "Work",
        (
            Panel("Rounds", "Rounds that ended, by result.", "ops",
                  (("{{result}}", _rate("cleaner_rounds_total", "result")),), is_stacked=True),
            Panel("Duration of rounds", "Good ones.", "s",
                  (("median", "histogram_quantile(0.5, "
                              "sum by (le) (rate(cleaner_round_duration_seconds_bucket{}[$__rate_interval])))"),
                   ("99 %", "histogram_quantile(0.99, "
                            "sum by (le) (rate(cleaner_round_duration_seconds_bucket{}[$__rate_interval])))"))),
            Panel("Offset map", "How full the last rounds made it, at most. Full is too small.", "percentunit",
                  (("{{instance}}", "cleaner_max_map_utilization_ratio{}"),)),
            Panel("Bytes read and written", "Both passes.", "binBps",
                  (("read, {{pass}}", _rate("cleaner_read_bytes_total", "pass")),
                   ("written", "sum(rate(cleaner_written_bytes_total{}[$__rate_interval]))"))),
            Panel("Records removed", "By why they went.", "ops",
                  (("{{reason}}", _rate("cleaner_removed_records_total", "reason")),), is_stacked=True),
            Panel("Freed by topic", "What copying left out, and retention removed, over the time shown.", "bytes",
                  (("{{topic}}", "topk(10, sum by (topic) (increase(cleaner_read_bytes_total"
                                 '{pass="copy", @}[$__range])) - sum by (topic) '
                                 "(increase(cleaner_written_bytes_total{}[$__range])))"),
                   ("{{topic}} (retention)",
                    "topk(10, sum by (topic) (increase(cleaner_retention_bytes_total{}[$__range])) > 0)"))),
        ),
    ),
    (
        "Disks and limits",
        (
            Panel("Logs by section", "Clean, dirty, uncleanable and active.", "bytes",
                  (("{{section}}", "sum by (section) (cleaner_log_bytes{})"),), is_stacked=True),
            Panel("Free space", "Of the log dirs' file systems.", "percentunit",
                  (("{{instance}} {{log_dir}}", "cleaner_log_dir_free_bytes{} / cleaner_log_dir_size_bytes{}"),)),
            Panel("State of log dirs", "Where one is not online.", "none",
                  (("{{instance}} {{log_dir}} {{state}}", 'cleaner_log_dir_state{state!="online", @} == 1'),)),
            Panel("Speed limit", "What goes through it, and what it is.", "binBps",
                  (("{{instance}}", "rate(cleaner_throttle_bytes_total{}[$__rate_interval])"),
                   ("{{instance}}, limit", "cleaner_throttle_limit_bytes_per_second{} < Inf"))),
            Panel("Slept for the limit", "Part of the workers' time.", "percentunit",
                  (("{{instance}}",
                    "rate(cleaner_throttle_wait_seconds_total{}[$__rate_interval]) / cleaner_workers{}"),)),
            Panel("Files to be removed", "Deleted by retention, waiting for file.delete.delay.ms.", "none",
                  (("{{instance}}", "cleaner_retention_waiting_files{}"),)),
        ),
    ),
    (
        "The process",
        (
            Panel("Memory", "That no file stands behind, and the most that is needed.", "bytes",
                  (("{{instance}}", "cleaner_anonymous_memory_bytes{}"),
                   ("{{instance}}, the most", "cleaner_needed_memory_bytes{}"))),
            Panel("Open files", "Descriptors.", "none", (("{{instance}}", "cleaner_open_files{}"),)),
            Panel("Duration of a turn", "The scheduler's last check of all logs.", "s",
                  (("{{instance}}", "cleaner_scheduler_turn_seconds{}"),)),
        ),
    ),
)  # fmt: skip


def _expression(text: str) -> str:
    """Put the chosen instances in, as all there is in `{}` or in place of `@` beside other labels."""
    return text.replace("{}", "{@}").replace("@", _MINE)


def _panel(number: int, panel: Panel, x: int, y: int, height: int) -> dict[str, object]:
    steps: list[dict[str, object]] = [{"color": "green", "value": None}]
    steps += [{"color": colour, "value": value} for value, colour in panel.thresholds]
    custom: dict[str, object] = {}
    if panel.kind == "timeseries":
        custom = {"fillOpacity": 20 if panel.is_stacked else 0, "showPoints": "never"}
        if panel.is_stacked:
            custom["stacking"] = {"mode": "normal", "group": "A"}
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.description,
        "datasource": {"type": "prometheus", "uid": "${datasource}"},
        "gridPos": {"x": x, "y": y, "w": panel.width, "h": height},
        "fieldConfig": {
            "defaults": {
                "unit": panel.unit,
                "min": 0,
                "custom": custom,
                "thresholds": {"mode": "absolute", "steps": steps},
            },
            "overrides": [],
        },
        "options": {"legend": {"displayMode": "list", "placement": "bottom"}} if panel.kind == "timeseries" else {},
        "targets": [
            {
                "refId": chr(ord("A") + place),
                "datasource": {"type": "prometheus", "uid": "${datasource}"},
                "expr": _expression(expression),
                "legendFormat": legend,
            }
            for place, (legend, expression) in enumerate(panel.queries)
        ],
    }


def _panels() -> list[dict[str, object]]:
    panels: list[dict[str, object]] = []
    y = 0
    for title, members in ROWS:
        row = {"type": "row", "title": title, "collapsed": False, "panels": []}
        panels.append({"id": len(panels) + 1, "gridPos": {"x": 0, "y": y, "w": COLUMNS, "h": 1}, **row})
        y += 1
        x, height = 0, 4 if members[0].kind == "stat" else 8
        for member in members:
            if x + member.width > COLUMNS:
                x, y = 0, y + height
            panels.append(_panel(len(panels) + 1, member, x, y, height))
            x += member.width
        y += height
    return panels


def dashboard_json() -> str:
    """Return the dashboard as it is committed."""
    board: dict[str, object] = {
        "title": "Log cleaner",
        "description": "The log cleaner for Kafka-format logs, which does not run on a live broker's log directory.",
        "id": None,
        "uid": "log-cleaner",
        "schemaVersion": SCHEMA_VERSION,
        "version": 1,
        "tags": ["kafka", "log-cleaner"],
        "timezone": "browser",
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {
            "list": [
                {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"},
                {
                    "name": "instance",
                    "label": "Instance",
                    "type": "query",
                    "datasource": {"type": "prometheus", "uid": "${datasource}"},
                    "query": "label_values(cleaner_build_info, instance)",
                    "refresh": 2,
                    "includeAll": True,
                    "multi": True,
                    "allValue": ".*",
                    "current": {"text": "All", "value": "$__all"},
                },
            ]
        },
        "annotations": {"list": []},
        "panels": _panels(),
    }
    return json.dumps(board, indent=2) + "\n"


if __name__ == "__main__":
    PATH.parent.mkdir(parents=True, exist_ok=True)
    PATH.write_text(dashboard_json())
