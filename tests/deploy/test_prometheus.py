"""Alerts, their tests and their runbooks; scrape and dashboard: all speak of metrics there are."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from cleaner.cli.main import make_parser
from cleaner.present.metrics.families import CHAPTERS, KAFKA_CHAPTER, MetricKind
from tests.deploy.installed import ROOT
from tests.deploy.tools import system_tool

PROMETHEUS = ROOT / "deploy" / "prometheus"
RULES = yaml.safe_load((PROMETHEUS / "rules.yaml").read_text())["groups"][0]["rules"]
TESTS = yaml.safe_load((PROMETHEUS / "rules.test.yaml").read_text())["tests"]
DASHBOARD = ROOT / "deploy" / "grafana" / "cleaner.json"
RUNBOOK = (ROOT / "docs" / "operations.md").read_text()
# Names that PromQL itself uses, besides metrics and labels.
_WORDS = re.compile(r"[a-z_:][a-z0-9_:]*")


def _promtool(*arguments: str) -> None:
    done = subprocess.run(
        [system_tool("promtool", "prometheus"), *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=PROMETHEUS,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def _series_names() -> set[str]:
    """Every name a scrape shows, those of histograms with their suffixes."""
    names = {"up"}
    for chapter in (*CHAPTERS, KAFKA_CHAPTER):
        for family in chapter.families:
            suffixes = ("_bucket", "_sum", "_count") if family.kind is MetricKind.HISTOGRAM else ("",)
            names |= {family.name + suffix for suffix in suffixes}
    return names


def _labels() -> dict[str, set[str]]:
    return {family.name: set(family.labels) for chapter in CHAPTERS for family in chapter.families}


def _unknown_names(expression: str) -> set[str]:
    """Names in an expression that look like ours and are no metric."""
    words = {
        word for word in _WORDS.findall(re.sub(r'"[^"]*"', "", expression)) if word.startswith(("cleaner_", "kafka_"))
    }
    return words - _series_names()


def test_rules_are_right_for_promtool() -> None:
    """Syntax and lint."""
    _promtool("check", "rules", "--lint-fatal", "rules.yaml")


def test_alerts_fire_when_they_should() -> None:
    """The unit tests beside the rules."""
    _promtool("test", "rules", "rules.test.yaml")


def test_scrape_sample_is_right_for_promtool() -> None:
    """Syntax only: the files it names are elsewhere."""
    _promtool("check", "config", "--syntax-only", "scrape.yaml")


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_alert_is_tested_both_ways_and_has_a_runbook(rule: dict[str, Any]) -> None:
    """It fires on one series and not on another; its entry says what it means, how to look, what to do: `next`, too."""
    ours = [test["alert_rule_test"][0] for test in TESTS if test["alert_rule_test"][0]["alertname"] == rule["alert"]]
    assert any(test["exp_alerts"] for test in ours)
    assert any(not test["exp_alerts"] for test in ours)
    page, _, anchor = rule["annotations"]["runbook_url"].partition("#")
    assert page.endswith("/docs/operations.md")
    assert anchor == rule["alert"].lower()
    _, _, entry = RUNBOOK.partition(f"\n### {rule['alert']}\n")
    entry = entry.partition("\n### ")[0].partition("\n## ")[0]
    assert [word for word in ("**Means**", "**Look**", "**Do**") if word not in entry] == []
    command = rule["annotations"]["next"].replace("{{ $labels.log_dir }}", "LOG_DIR")
    assert any(" ".join(words.split()).startswith(command) for words in re.findall(r"`([^`]+)`", entry))
    if command.startswith("cleaner "):
        assert make_parser().parse_args(shlex.split(command.replace("TOPIC-PARTITION", "prices-0"))[1:])


def test_runbook_has_no_entry_without_an_alert() -> None:
    """An alert that goes takes its entry along."""
    entries = re.findall(r"^### (Cleaner\w+)$", RUNBOOK, flags=re.MULTILINE)
    assert entries == [rule["alert"] for rule in RULES]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_alert_speaks_of_metrics_there_are(rule: dict[str, Any]) -> None:
    """Names, and the labels its words use."""
    assert _unknown_names(rule["expr"]) == set()
    used = set(re.findall(r"\$labels\.(\w+)", str(rule["annotations"]))) - {"instance"}
    metrics = [name for name in _labels() if re.search(rf"\b{name}\b", rule["expr"])]
    assert all(used <= _labels()[name] for name in metrics)


def _expressions(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        yield from (value for key, value in node.items() if key in ("expr", "query") and isinstance(value, str))
        for value in node.values():
            yield from _expressions(value)
    elif isinstance(node, list):
        for value in node:
            yield from _expressions(value)


def test_dashboard_is_importable_anywhere() -> None:
    """Classic form: no id, a stable uid, the data source chosen at import, a unit on every panel."""
    board = json.loads(DASHBOARD.read_text())
    assert board["id"] is None
    assert board["uid"] == "log-cleaner"
    assert 39 <= board["schemaVersion"] <= 41
    assert board["templating"]["list"][0]["type"] == "datasource"
    panels = [panel for panel in board["panels"] if panel["type"] != "row"]
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])
    for panel in panels:
        assert panel["datasource"]["uid"] == "${datasource}", panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"], panel["title"]
        assert panel["description"], panel["title"]


def test_dashboard_speaks_of_metrics_there_are() -> None:
    """Every expression, and rates over `$__rate_interval` only."""
    expressions = list(_expressions(json.loads(DASHBOARD.read_text())))
    assert len(expressions) > 20
    for expression in expressions:
        assert _unknown_names(expression) == set(), expression
        windows = re.findall(r"\[([^\]]+)\]", expression)
        assert set(windows) <= {"$__rate_interval", "$__range"}, expression


def test_dashboard_expressions_are_promql(tmp_path: Path) -> None:
    """promtool reads each of them as a recording rule."""
    expressions = [
        expression.replace("$__rate_interval", "5m").replace("$__range", "1h").replace("$instance", ".+")
        for expression in _expressions(json.loads(DASHBOARD.read_text()))
        if not expression.startswith("label_values")
    ]
    rules = [{"record": f"panel:{number}", "expr": text} for number, text in enumerate(expressions)]
    path = tmp_path / "panels.yaml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]}))
    _promtool("check", "rules", str(path))


def test_dashboard_is_the_one_its_table_makes() -> None:
    """The JSON is written by tools/dashboard.py and by nobody else."""
    from tools.dashboard import dashboard_json

    assert DASHBOARD.read_text() == dashboard_json()
