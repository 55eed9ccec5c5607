"""`max.decompressed.message.bytes`: what each command does with a larger record in a compressed batch."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

import cleaner
from cleaner.base.model import TopicPartition
from cleaner.cli.main import main
from cleaner.daemon.snapshot import ServiceSnapshot
from cleaner.errors import RecordAboveLimitError
from cleaner.present.explanations import explain_log
from tests.integration.daemons import UID, daemon, settings_for
from tests.integration.log_dirs import NOW, contents, flip_bit, offsets
from tests.support.log_builder import LogBuilder, write_log_dir

TOPIC = TopicPartition("topic", 0)
KEY = "max.decompressed.message.bytes"
LIMIT = 500
SMALL, LARGE = "v", "v" * 600
LARGE_BYTES = 609  # attributes, two deltas, key of 2 bytes, value, no headers, with their lengths
Capture = pytest.CaptureFixture[str]


def write_log(log_dir: Path, *segments: Sequence[str], codec: str = "gzip", clean: int = 0) -> Path:
    """Write segments of batches of two records, one of them with the given value, and an active segment."""
    log = LogBuilder(TOPIC)
    for values in segments:
        for value in values:
            log.append((f"k{log.next_offset % 4}", value), ("other", SMALL), codec=codec)
        log.roll()
    log.append(("last", SMALL))
    write_log_dir(log_dir, log, cleaner_offsets={TOPIC: log.base_offsets[clean]} if clean else {})
    return log_dir / str(TOPIC)


def settings(limit: int = LIMIT, **more: str) -> dict[str, str]:
    return {"cleanup.policy": "compact", KEY: str(limit), "min.cleanable.dirty.ratio": "0"} | more


def options(limit: int = LIMIT) -> list[str]:
    return ["--set", "topic:cleanup.policy=compact", "--set", f"topic:{KEY}={limit}", "--now", str(NOW)]


def test_log_with_a_record_above_the_limit_is_refused_and_nothing_changes(tmp_path: Path, capsys: Capture) -> None:
    """The error names file, position, setting and both sizes, and what to do; with a higher limit it is cleaned."""
    directory = write_log(tmp_path, [SMALL, SMALL], [SMALL, LARGE, SMALL])
    before = contents(tmp_path)
    assert main(["clean", str(tmp_path), "topic-0", *options()]) == 1
    said = capsys.readouterr().err
    assert f"{directory / f'{4:020d}.log'}: at byte " in said
    assert (
        f"a compressed record of {LARGE_BYTES} bytes, 0 bytes into its unpacked batch, is above {KEY}={LIMIT}" in said
    )
    assert "Kafka 4.4 refuses" in said
    assert f"`--set topic:{KEY}=BYTES`" in said
    assert contents(tmp_path) == before
    assert main(["clean", str(tmp_path), "topic-0", *options(LARGE_BYTES)]) == 0


@pytest.mark.parametrize("version", ["4.3", "4.4"])
def test_limit_acts_with_the_rules_of_both_versions(tmp_path: Path, version: str) -> None:
    """It is our own protection, too."""
    write_log(tmp_path, [LARGE])
    with pytest.raises(RecordAboveLimitError):
        cleaner.clean(tmp_path, "topic-0", settings(**{"cleaner.kafka.version": version}), now_ms=NOW)


def test_uncompressed_records_and_the_default_have_no_limit(tmp_path: Path) -> None:
    """Whatever their size."""
    write_log(tmp_path / "plain", [LARGE], codec="none")
    assert cleaner.clean(tmp_path / "plain", "topic-0", settings(1), now_ms=NOW).end_offset == 2
    write_log(tmp_path / "packed", [LARGE])
    without = {"cleanup.policy": "compact"}
    assert cleaner.clean(tmp_path / "packed", "topic-0", without, now_ms=NOW).end_offset == 2


def test_record_of_the_clean_section_stops_the_round_before_its_group(tmp_path: Path) -> None:
    """The groups before it are swapped in, and the checkpoint stays (R-560)."""
    directory = write_log(tmp_path, [SMALL, SMALL], [LARGE], [SMALL, SMALL], clean=2)
    before, clean_end = contents(directory), offsets(tmp_path, "cleaner")
    with pytest.raises(RecordAboveLimitError) as caught:
        cleaner.clean(tmp_path, "topic-0", settings(**{"internal.segment.bytes": "200"}), now_ms=NOW)
    assert (caught.value.path.name, caught.value.position) == (f"{4:020d}.log", 0)
    after = contents(directory)
    changed = {name for name in before.keys() | after.keys() if name.endswith(".log") and before[name] != after[name]}
    assert changed == {f"{0:020d}.log"}
    assert offsets(tmp_path, "cleaner") == clean_end


def test_round_that_keeps_damage_refuses_a_record_above_the_limit(tmp_path: Path) -> None:
    """Such a batch is not damaged: it would be compacted, or carried over forever, if it counted as damage."""
    directory = write_log(tmp_path, [SMALL, SMALL, LARGE])
    flip_bit(directory / f"{0:020d}.log", 70)
    before = contents(tmp_path)
    with pytest.raises(RecordAboveLimitError):
        cleaner.clean(tmp_path, "topic-0", settings(), now_ms=NOW, damaged="keep")
    assert contents(tmp_path) == before
    report = cleaner.clean(tmp_path, "topic-0", settings(700), now_ms=NOW, damaged="keep")
    assert len(report.kept_damage) == 1


@pytest.mark.parametrize("codec", ["gzip", "lz4", "none"])
def test_check_notes_a_batch_that_no_cleaning_reads(tmp_path: Path, codec: str, capsys: Capture) -> None:
    """It is no damage, and of no interest unless the topic is compacted."""
    directory = write_log(tmp_path, [SMALL, LARGE, LARGE], codec=codec)
    assert main(["check", str(tmp_path), *options(), "--format", "json"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    found = [line for line in lines if line["what"] == "finding"]
    assert [(line["kind"], line["offset"], line["is_damage"]) for line in found] == (
        [] if codec == "none" else [("uncleanable", 2, False), ("uncleanable", 4, False)]
    )
    assert {line["path"] for line in found} <= {str(directory / f"{0:020d}.log")}
    assert (lines[-1]["damages"], lines[-1]["notes"]) == (0, len(found))
    assert main(["check", str(tmp_path), "--set", f"topic:{KEY}={LIMIT}", "--format", "json"]) == 0
    assert "uncleanable" not in capsys.readouterr().out


def test_estimate_refuses_what_a_round_would_refuse(tmp_path: Path, capsys: Capture) -> None:
    """Without an estimate no record is read, so the plan knows of none."""
    write_log(tmp_path, [SMALL, LARGE])
    assert main(["plan", str(tmp_path), *options()]) == 0
    assert "above" not in capsys.readouterr().out
    assert main(["plan", str(tmp_path), "--estimate", *options()]) == 1
    said = capsys.readouterr()
    assert f"is above {KEY}={LIMIT}" in said.out + said.err


def test_readers_and_proofs_have_no_limit(tmp_path: Path, capsys: Capture) -> None:
    """A log that was accepted before the limit was lowered is served; a cleaning of it can be proven."""
    directory = write_log(tmp_path / "before", [SMALL, LARGE, LARGE])
    write_log(tmp_path / "after", [SMALL, LARGE, LARGE])
    cleaner.clean(tmp_path / "after", "topic-0", {"cleanup.policy": "compact"}, now_ms=NOW)
    given = ["--set", "topic:cleanup.policy=compact", "--set", f"topic:{KEY}={LIMIT}"]
    assert main(["verify", str(tmp_path / "before"), str(tmp_path / "after"), *given]) == 0
    assert main(["dump", str(directory / f"{0:020d}.log")]) == 0
    capsys.readouterr()
    assert main(["consume", "--log-dir", str(tmp_path / "before"), "--topic", "topic", "--from-beginning"]) == 0
    assert capsys.readouterr().out.count(LARGE) == 2


def test_daemon_quarantines_the_log_until_it_is_released_under_a_higher_limit(tmp_path: Path) -> None:
    """With file and position; explain names the setting, and that no byte is damaged."""
    logs = tmp_path / "logs"
    directory = write_log(logs, [SMALL, LARGE])
    given = settings_for(logs, state_dir=tmp_path / "state")
    with daemon({**given, KEY: str(LIMIT)}) as running:
        running.log.wait("quarantined", partition="topic-0")
    with daemon({**given, KEY: str(LIMIT)}) as running:
        shown: ServiceSnapshot = running.service.snapshot()
        (entry,) = shown.quarantine
        assert (entry.kind, entry.file) == ("RecordAboveLimitError", str(directory / f"{0:020d}.log"))
        assert entry.position
        (view,) = shown.logs
        found = explain_log(view, shown)
        assert found.settings == (KEY,)
        assert "No byte is damaged" in found.meaning
        assert f"{KEY}={LIMIT}" in view.why
        assert any(command.startswith("cleaner release topic-0") for command, _ in found.commands)
    with daemon({**given, KEY: "700"}) as running:
        running.steering.release(running.partition("topic-0"), UID)
        running.log.wait("cleaned", partition="topic-0")
