"""docs/key-views.md: every command of it, what plan and clean say, the way back, and who refuses such a topic."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import cleaner
from cleaner.app.clean_log_dir import clean_log_dir
from cleaner.app.options import CallContext, CleanOptions
from cleaner.app.reports import Refusal
from cleaner.base.model import TopicPartition
from cleaner.cli.main import main
from cleaner.errors import UncleanableError
from cleaner.settings.sources import Sources
from cleaner.spark.clean.round import BulkCleaner
from tests.integration.log_dirs import NOW, contents, offsets, record_offsets
from tests.support.log_builder import LogBuilder, offset_checkpoint, write_log_dir

PAGE = Path(__file__).resolve().parents[2] / "docs" / "key-views.md"
PARTITION = "_schemas-0"
VIEW = {"cleanup.policy": "compact", "cleaner.key.view": "schema-registry"}
ONE = b'{"keytype":"SCHEMA","subject":"orders","version":1,"magic":1}'
SAME = b'{"subject":"orders","keytype":"SCHEMA","magic":1,"version":1}'
OTHER = b'{"keytype":"SCHEMA","subject":"orders","version":2,"magic":1}'
Run = Callable[[str], tuple[int, str, str]]


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    """A registry's topic: a value at 0, one of another key at 1, and at 2 the deletion of the first."""
    log = LogBuilder(TopicPartition.parse(PARTITION))
    log.append((ONE, "schema"))
    log.append((OTHER, "schema 2"))
    log.roll()
    log.append((SAME, None))
    log.roll()
    log.append((OTHER, "schema 3"))
    (tmp_path / "logs").mkdir()
    return write_log_dir(tmp_path / "logs", log)


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Return what runs a command line: exit code, output and errors."""

    def command(line: str) -> tuple[int, str, str]:
        code = main(shlex.split(line)[1:])
        return code, *capsys.readouterr()

    return command


def _clean(log_dir: Path, **more: Any) -> cleaner.CleanReport:
    return cleaner.clean(log_dir, PARTITION, VIEW, now_ms=NOW, **more)


def test_commands_of_the_page_merge_the_keys_and_take_it_back(log_dir: Path, tmp_path: Path, run: Run) -> None:
    """plan counts, clean deletes what was deleted and says so, undo brings every file back."""
    commands = re.findall(r"^ {4}(cleaner .*)$", PAGE.read_text(), re.MULTILINE)
    plan, clean, undo = (
        each.replace("$LOG_DIR", str(log_dir)).replace("$KEPT", str(tmp_path / "kept")) for each in commands
    )
    before = contents(log_dir)
    code, _, said = run(plan)
    assert code == 0
    assert "cleaner.key.view=schema-registry: 1 key is another writing of a later key" in said
    assert contents(log_dir) == before
    code, _, said = run(clean)
    assert code == 0
    assert "1 key is another writing" in said
    assert record_offsets(log_dir / PARTITION) == [1, 2, 3]
    assert run(undo)[0] == 0
    assert contents(log_dir) == before


def test_json_names_the_view_and_says_nothing_of_other_topics(log_dir: Path, run: Run) -> None:
    """key_view and merged_keys, of plan and clean; without the setting they are empty, and the round is Kafka's."""
    sets = f"--format json --set cleanup.policy=compact {PARTITION}"
    plain = json.loads(run(f"cleaner plan {log_dir} {sets}")[1])
    assert (plain["key_view"], plain["merged_keys"]) == ("", None)
    viewed = json.loads(run(f"cleaner plan {log_dir} {sets} --set _schemas:cleaner.key.view=schema-registry")[1])
    assert (viewed["key_view"], viewed["merged_keys"]) == ("schema-registry", 1)
    cleaned = json.loads(run(f"cleaner clean {log_dir} {sets}")[1])
    assert (cleaned["key_view"], cleaned["merged_keys"]) == ("", 0)
    assert record_offsets(log_dir / PARTITION) == [0, 1, 2, 3]


def test_round_after_one_without_the_view_reads_the_clean_section_too(log_dir: Path) -> None:
    """The checkpoint says that all is clean; the named partition is cleaned, and the next time nothing changes."""
    cleaner.clean(log_dir, PARTITION, {"cleanup.policy": "compact"}, now_ms=NOW)
    assert offsets(log_dir, "cleaner")[PARTITION] == 3
    assert _clean(log_dir).merged_keys == 1
    assert record_offsets(log_dir / PARTITION) == [1, 2, 3]
    after = contents(log_dir / PARTITION)
    report = _clean(log_dir)
    assert (report.merged_keys, report.removed.total) == (0, 0)
    assert contents(log_dir / PARTITION) == after


def test_tombstone_that_goes_takes_what_it_deleted_with_it(log_dir: Path) -> None:
    """A round without the view gave it its horizon; when that has passed, both go in one round."""
    cleaner.clean(log_dir, PARTITION, {"cleanup.policy": "compact"}, now_ms=NOW)
    cleaner.clean(log_dir, PARTITION, VIEW, now_ms=NOW + 3 * 86_400_000)
    assert record_offsets(log_dir / PARTITION) == [1, 3]


def test_verify_proves_the_round_by_the_same_setting_only(log_dir: Path, tmp_path: Path) -> None:
    """To Kafka's rule the value is lost."""
    before = tmp_path / "before"
    shutil.copytree(log_dir, before)
    _clean(log_dir)
    assert cleaner.verify(before, log_dir, PARTITION, VIEW, now_ms=NOW).is_proven
    plain = cleaner.verify(before, log_dir, PARTITION, {"cleanup.policy": "compact"}, now_ms=NOW)
    assert [each.offset for each in plain.findings] == [0]


def test_key_indexes_of_rounds_without_the_view_are_not_believed(log_dir: Path, tmp_path: Path) -> None:
    """By their digests the segment has no key in common with the new records; it is read all the same."""
    (log_dir / "cleaner-offset-checkpoint").write_bytes(offset_checkpoint({TopicPartition.parse(PARTITION): 2}))
    plain = {"cleanup.policy": "compact", "internal.segment.bytes": "100"}
    cleaner.clean(log_dir, PARTITION, plain, now_ms=NOW, index_dir=tmp_path / "index")
    assert list((tmp_path / "index").rglob("*.keys"))
    report = _clean(log_dir, index_dir=tmp_path / "index")
    assert (report.segments_unread, report.index_bytes_read, report.removed.superseded) == (0, 0, 1)


def test_small_map_goes_on_behind_the_old_checkpoint(tmp_path: Path) -> None:
    """With room for one key a round, rounds follow until no part of the log is dirty that was clean before."""
    log = LogBuilder(TopicPartition.parse(PARTITION))
    for number in range(8):
        log.append((b'{"a":%d,"b":0}' % number, "v"), (b'{"b":0, "a":%d}' % number, "w"))
        log.roll()
    write_log_dir(tmp_path, log, cleaner_offsets={TopicPartition.parse(PARTITION): 12})
    tiny = {"log.cleaner.dedupe.buffer.size": "96", "log.cleaner.io.buffer.load.factor": "1.0"}
    report = cleaner.clean(tmp_path, PARTITION, VIEW | tiny, now_ms=NOW)
    assert report.rounds > 1
    assert offsets(tmp_path, "cleaner")[PARTITION] > 12


def test_spark_refuses_the_topic(log_dir: Path) -> None:
    """Its rounds know no views: they say so, and nothing changes."""
    before = contents(log_dir)
    bulk = BulkCleaner(lambda _: pytest.fail("no job"), lambda *_: pytest.fail("no options"))
    sources = Sources.of_call("_schemas", VIEW, None, None)
    (refusal,) = clean_log_dir(log_dir, [PARTITION], sources, CleanOptions(clean_round=bulk.clean), CallContext.of())
    assert isinstance(refusal, Refusal)
    assert isinstance(refusal.error, UncleanableError)
    assert "cleaner.key.view=schema-registry: rounds on Spark know no key views" in str(refusal.error)
    assert contents(log_dir) == before
