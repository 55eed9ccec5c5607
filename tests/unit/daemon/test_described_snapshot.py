"""What programs are handed of a snapshot."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from cleaner.base.json_values import described, format_json, json_value
from cleaner.daemon.snapshot import ServiceSnapshot
from cleaner.policy.selection_context import DirCondition
from tests.support.sample_daemons import at_work, hostile, with_problems
from tests.support.snapshots import log, log_dir, partition, retry, round_of, snapshot


@pytest.mark.parametrize("daemon", [at_work, with_problems, hostile])
def test_snapshot_json_of_any_daemon_is_strict_json_in_ascii(daemon: Callable[[], ServiceSnapshot]) -> None:
    """What holds odd text, too, is JSON that every reader takes, without a control character."""
    text = format_json(described("snapshot", daemon()))
    assert json.loads(text)["format_version"] == 1
    assert text.isascii() and text.isprintable()


def test_snapshot_json_names_partitions_choices_and_properties() -> None:
    """Partitions are directory names, choices lower case, and what can be asked for is there."""
    said = described(
        "snapshot",
        snapshot(
            (log("orders", 3, clean_bytes=300, dirty_bytes=100, active_bytes=7),),
            log_dirs=(log_dir(condition=DirCondition.NEEDS_RECOVERY),),
            rounds=(round_of(bytes_read=10, bytes_written=4),),
            retries={partition("orders", 3): retry()},
        ),
    )
    view = said["logs"][0]
    assert (view["partition"], view["ratio"], view["verdict"]["reason"]) == ("orders-3", 0.25, "under_ratio")
    assert view["sections"]["total_bytes"] == 407
    assert said["log_dirs"][0]["condition"] == "needs_recovery"
    assert said["rounds"][0]["bytes_freed"] == 6
    assert list(said["retries"]) == ["orders-3"]


def test_json_value_of_something_foreign_is_refused() -> None:
    """Nothing is turned into text by accident."""
    with pytest.raises(TypeError, match="set has no form"):
        json_value({1, 2})
