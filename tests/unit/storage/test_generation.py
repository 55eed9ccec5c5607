"""The number from which readers learn that the segments they have open were replaced."""

from __future__ import annotations

from pathlib import Path

import pytest

from cleaner.base.model import TopicPartition
from cleaner.errors import LogDirOfflineError
from cleaner.storage.fs.file_system import File, FileSystem
from cleaner.storage.segment.generation import Generations, raise_generation
from cleaner.storage.segment.names import GENERATIONS

FS = FileSystem()
ORDERS, PRICES = TopicPartition("orders", 0), TopicPartition("prices", 3)


def test_generation_is_raised_for_this_partition_only(tmp_path: Path) -> None:
    """A reader sees each swap of its partition, and none of another partition's."""
    with Generations(FS, tmp_path) as generations:
        assert (generations.of(ORDERS), generations.of(PRICES)) == (0, 0)
        raise_generation(FS, tmp_path, ORDERS)
        raise_generation(FS, tmp_path, ORDERS)
        assert (generations.of(ORDERS), generations.of(PRICES)) == (2, 0)


def test_generation_without_readers_leaves_no_file(tmp_path: Path) -> None:
    """A log dir without readers does not get the file: a broker's, an archive."""
    raise_generation(FS, tmp_path, ORDERS)
    assert list(tmp_path.iterdir()) == []


def test_generation_continues_where_it_was(tmp_path: Path) -> None:
    """A later reader does not reset the numbers for existing ones."""
    with Generations(FS, tmp_path) as first:
        raise_generation(FS, tmp_path, ORDERS)
        with Generations(FS, tmp_path) as second:
            raise_generation(FS, tmp_path, ORDERS)
            assert first.of(ORDERS) == second.of(ORDERS) == 2


def test_generation_file_takes_after_the_log_dir(tmp_path: Path) -> None:
    """It has the directory's read and write bits, and is small."""
    tmp_path.chmod(0o750)
    Generations(FS, tmp_path).close()
    raise_generation(FS, tmp_path, ORDERS)
    status = (tmp_path / GENERATIONS).stat()
    assert status.st_mode & 0o777 == 0o640
    assert status.st_size <= 512 << 10


def test_generation_file_created_by_another_process_meanwhile_is_used(tmp_path: Path) -> None:
    """Losing the race to create the file is not an error."""

    class SomebodyFaster(FileSystem):
        def create(self, path: Path, *, like: Path | None) -> File:
            path.touch()
            return super().create(path, like=like)

    with Generations(SomebodyFaster(), tmp_path) as generations:
        raise_generation(FS, tmp_path, ORDERS)
        assert generations.of(ORDERS) == 1


def test_generation_file_that_is_a_link_is_refused(tmp_path: Path) -> None:
    """Nothing is written through a link to elsewhere."""
    (tmp_path / "elsewhere").touch()
    (tmp_path / GENERATIONS).symlink_to("elsewhere")
    with pytest.raises(LogDirOfflineError):
        raise_generation(FS, tmp_path, ORDERS)
    with pytest.raises(LogDirOfflineError):
        Generations(FS, tmp_path)
    assert (tmp_path / "elsewhere").read_bytes() == b""
