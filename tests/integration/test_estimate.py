"""`plan --estimate`: the estimate is what cleaning then does, within a fifth."""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
import pytest

import cleaner
from cleaner.app.options import CallContext, Sampling
from cleaner.app.plan_log_dir import plan_log_dir
from cleaner.app.plan_report import PlanEntry
from cleaner.base.model import TopicPartition
from cleaner.cleaning.estimate import key_sample
from cleaner.cleaning.estimate.cells import Cells
from cleaner.cli.main import main
from cleaner.format.key_digests import secret_words
from cleaner.settings.sources import SetOption, Sources
from cleaner.storage.fs.file_system import FileSystem
from cleaner.storage.load.loaded_log import list_segments
from tests.integration.log_dirs import NOW
from tests.support.batch_builder import Producer
from tests.support.batch_reader import split_batches
from tests.support.log_builder import LogBuilder, write_log_dir
from tests.unit.cleaning.test_unseen_keys import SHAPES

PARTITION = TopicPartition("topic", 0)
Capture = pytest.CaptureFixture[str]


def write_log(log_dir: Path, shape: str, *, records: int = 40_000, per_batch: int = 20, codec: str = "none") -> int:
    """Write a log with keys of a shape; returns its bytes."""
    draw = random.Random(3)
    words = [f"{draw.getrandbits(40):x}" for _ in range(1000)]
    keys = SHAPES[shape](np.random.default_rng(7))[:: max(1, 200_000 // records)]
    if shape == "bursts":
        keys = np.repeat(np.arange(records // 50), 50)
    log = LogBuilder(PARTITION, segment_bytes=1 << 20)
    clean_end = 0
    for at in range(0, len(keys), per_batch):
        log.append(
            *[(f"key-{key}", " ".join(draw.choices(words, k=4))) for key in keys[at : at + per_batch]], codec=codec
        )
        if shape == "clean-and-dirty" and at <= len(keys) * 8 // 10:
            clean_end = log.next_offset
    log.roll()
    log.append(("last", "v"))
    write_log_dir(log_dir, log, cleaner_offsets={PARTITION: clean_end} if clean_end else {})
    return sum(path.stat().st_size for path in log_dir.rglob("*.log"))


def foretell(log_dir: Path, sample_bytes: int | None, *, settings: dict[str, str] | None = None) -> PlanEntry:
    options = [SetOption("topic", "cleanup.policy", "compact")]
    sources = Sources(config=settings or {}, sets=options)
    (entry,) = plan_log_dir(log_dir, sources, CallContext.of(now_ms=NOW), sampling=Sampling(sample_bytes))
    assert entry.error == ""
    return entry


def clean(log_dir: Path, **settings: str) -> cleaner.CleanReport:
    values = {"cleanup.policy": "compact", **{key.replace("_", "."): value for key, value in settings.items()}}
    return cleaner.clean(log_dir, "topic-0", values, now_ms=NOW, rounds="all")


WHOLE = [(shape, "none", 20) for shape in SHAPES] + [("zipf-1.0", "none", 1), ("zipf-1.0", "lz4", 50)]


@pytest.mark.parametrize(("shape", "codec", "per_batch"), WHOLE)
def test_bytes_freed_of_a_log_that_is_read_whole(shape: str, codec: str, per_batch: int, tmp_path: Path) -> None:
    """Up to 256 MiB are: within 3 % of the log, codecs and batch headers included; keys are exact."""
    total = write_log(tmp_path, shape, codec=codec, per_batch=per_batch, records=20_000)
    found = foretell(tmp_path, None).estimate
    assert found is not None
    assert (found.sample_part, found.bytes_before) == (1, total - _active(tmp_path))
    report = clean(tmp_path)
    assert found.bytes_freed == pytest.approx(report.bytes_read - report.bytes_written, abs=0.03 * total)


def _active(log_dir: Path) -> int:
    return sorted((log_dir / "topic-0").glob("*.log"))[-1].stat().st_size


@pytest.mark.parametrize("shape", SHAPES)
def test_bytes_freed_from_a_sample(shape: str, tmp_path: Path) -> None:
    """A quarter of 3 MB, some 50 cells: within a fifth, or 3 % of the log if little is freed, and in the range."""
    total = write_log(tmp_path, shape)
    entry = foretell(tmp_path, total // 4)
    found = entry.estimate
    assert found is not None
    assert found.sample_part == pytest.approx(0.25, abs=0.08)
    assert found.least_bytes_freed <= found.bytes_freed <= found.most_bytes_freed
    report = clean(tmp_path)
    freed = report.bytes_read - report.bytes_written
    assert found.bytes_freed == pytest.approx(freed, rel=0.2, abs=0.03 * total)
    assert found.least_bytes_freed - 0.01 * total <= freed <= found.most_bytes_freed + 0.01 * total


@pytest.mark.slow
@pytest.mark.parametrize("codec", ["none", "zstd"])
@pytest.mark.parametrize("shape", SHAPES)
def test_bytes_freed_from_a_tenth_of_a_larger_log(shape: str, codec: str, tmp_path: Path) -> None:
    """The table of docs/plan.md."""
    total = write_log(tmp_path, shape, records=200_000, codec=codec)
    found = foretell(tmp_path, total // 10).estimate
    assert found is not None
    report = clean(tmp_path)
    freed = report.bytes_read - report.bytes_written
    least, most = found.least_bytes_freed / total, found.most_bytes_freed / total
    estimated = f"{found.bytes_freed / total:6.1%} ({least:.1%} to {most:.1%})"
    print(f"{shape:18} {codec:5} freed {freed / total:6.1%} of the log, estimated {estimated}")
    assert found.bytes_freed == pytest.approx(freed, rel=0.2, abs=0.02 * total)


def test_log_of_batches_larger_than_cells_is_sampled(tmp_path: Path) -> None:
    """Most cells are empty: others are drawn until there is something to read."""
    log = LogBuilder(PARTITION, segment_bytes=1 << 20)
    for n in range(40):
        log.append((f"key-{n % 20}", "v" * 100_000))
    log.roll()
    log.append(("last", "v"))
    write_log_dir(tmp_path, log)
    found = foretell(tmp_path, 1).estimate
    assert found is not None
    assert 0 < found.sample_part < 1
    assert found.least_bytes_freed <= found.bytes_freed <= found.most_bytes_freed


def test_rounds_with_a_small_buffer_are_those_it_takes(tmp_path: Path) -> None:
    """Without an estimate there may be as many keys as offsets; with it the number is close to the real one."""
    write_log(tmp_path, "zipf-1.0", records=20_000)
    buffer = {"log.cleaner.dedupe.buffer.size": str(24 * 2000)}
    entry = foretell(tmp_path, None, settings=buffer)
    assert entry.rounds is not None
    report = clean(tmp_path, **{key.replace(".", "_"): value for key, value in buffer.items()})
    assert report.rounds > 2
    assert entry.rounds.count == pytest.approx(report.rounds, abs=1)


class Weighed(FileSystem):
    """Measures a directory's size whenever names in it change."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.most = directory, 0

    def rename_all(self, directory: Path, pairs: object) -> None:
        self.most = max(self.most, sum(path.stat().st_size for path in self.directory.iterdir()))
        super().rename_all(directory, pairs)  # type: ignore[arg-type]


def test_extra_disk_is_the_most_that_is_there(tmp_path: Path) -> None:
    """Groups of a megabyte: the first one's output counts, then old segments are gone."""
    write_log(tmp_path, "uniform-one-each", records=20_000)
    settings = {"log.segment.bytes": str(1 << 20)}
    found = foretell(tmp_path, None, settings=settings).estimate
    assert found is not None
    fs = Weighed(tmp_path / "topic-0")
    before = sum(path.stat().st_size for path in fs.directory.iterdir())
    cleaner.clean(tmp_path, "topic-0", {"cleanup.policy": "compact", **settings}, now_ms=NOW, fs=fs)
    assert found.extra_disk_bytes == pytest.approx(fs.most - before, rel=0.2)


def test_data_of_aborted_transactions_and_old_tombstones_are_not_counted(tmp_path: Path) -> None:
    """They are removed, whatever their keys."""
    log = LogBuilder(PARTITION)
    for n in range(300):
        log.append((f"aborted-{n}", "v" * 100), producer=Producer(7, 0, n, True))
    log.end_transaction(7, 0, commit=False)
    for n in range(300):
        log.append((f"gone-{n}", None), delete_horizon_ms=NOW - 1)
        log.append((f"kept-{n}", "v" * 100))
    log.roll()
    log.append(("last", "v"))
    write_log_dir(tmp_path, log)
    found = foretell(tmp_path, None).estimate
    assert found is not None
    report = clean(tmp_path)
    assert found.bytes_freed == pytest.approx(report.bytes_read - report.bytes_written, rel=0.02)


def test_a_sample_of_very_many_keys_represents_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory is bounded, and the estimate hardly changes; here the secret that draws the keys is fixed."""
    total = write_log(tmp_path, "uniform-one-each", records=20_000)
    whole = foretell(tmp_path, None).estimate
    monkeypatch.setattr(key_sample, "_MAX_RECORDS", 4000)
    monkeypatch.setattr(key_sample, "new_secret", lambda: secret_words(bytes(16)))
    part = foretell(tmp_path, None).estimate
    assert whole is not None
    assert part is not None
    assert part.records != whole.records
    assert part.records == pytest.approx(whole.records, rel=0.1)
    assert part.bytes_freed == pytest.approx(whole.bytes_freed, abs=0.03 * total)
    assert part.least_bytes_freed < part.bytes_freed < part.most_bytes_freed


def test_cells_hold_every_batch_once(tmp_path: Path) -> None:
    """Each begins and ends between two batches, also without an index."""
    write_log(tmp_path, "bursts", records=20_000)
    directory = tmp_path / "topic-0"
    sorted(directory.glob("*.index"))[0].unlink()
    segments = list_segments(FileSystem(), directory)
    placed = Cells(segments, 1 << 20, NOW, 0).draw(0, len(segments), 1 << 30, random.Random(1))
    for row, segment in enumerate(segments):
        mine = [cell for cell in placed if cell.segment == row]
        assert [mine[0].start, *(cell.end for cell in mine)] == [*(cell.start for cell in mine), segment.size]
        ends = np.cumsum([len(batch) for batch in split_batches(segment.log_path.read_bytes())])
        assert {cell.end for cell in mine} <= {0, *ends.tolist()}


def test_commands_show_the_estimate(tmp_path: Path, capsys: Capture) -> None:
    """Its own table below the plan's, a line of the page, a field of the JSON; only on request."""
    write_log(tmp_path, "zipf-1.0", records=2000)
    common = ["--set", "topic:cleanup.policy=compact", "--now", str(NOW)]
    assert main(["plan", str(tmp_path), *common, "--estimate"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[3].split()[:4] == ["partition", "sample", "dirty", "keys"]
    assert lines[4].split()[:2] == ["topic-0", "100%"]
    main(["explain", str(tmp_path), "topic-0", *common, "--sample", "1M"])
    assert "\nestimate    frees " in capsys.readouterr().out
    main(["plan", str(tmp_path), *common, "--estimate", "--format", "json"])
    assert json.loads(capsys.readouterr().out)["estimate"]["bytes_freed"] > 0
    main(["plan", str(tmp_path), *common, "--format", "json"])
    assert json.loads(capsys.readouterr().out)["estimate"] is None
