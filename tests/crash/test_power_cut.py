"""Power cuts on ext4 and XFS: at every step of a round, with sources that were fsynced and that never were."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from cleaner.errors import LogDirOfflineError
from tests.crash.loop_image import LoopImage, loop_image
from tests.crash.power_switch import PowerSwitch
from tests.crash.rounds import PARTITION, Expected, clean, recover, write_round

pytestmark = pytest.mark.root


def _write(root: Path, *, durable: bool) -> Path:
    """
    Write the round's log dir; segments and snapshots are then fsynced or not.

    Checkpoints and other files of the log dir always are: without them on disk a log dir is lost in any case.
    """
    shutil.rmtree(root / "log-dir", ignore_errors=True)
    log_dir = write_round(root / "log-dir")
    os.sync()
    if not durable:
        for path in [path for path in (log_dir / PARTITION).iterdir() if path.name[:20].isdigit()]:
            data, about = path.read_bytes(), path.stat()
            path.unlink()
            path.write_bytes(data)
            os.utime(path, ns=(about.st_atime_ns, about.st_mtime_ns))
    return log_dir


def _sweep(expected: Expected, image: LoopImage, *, durable: bool, every: int) -> None:
    """Cut the power before each change of a round in turn (or every few), mount again, recover and judge."""
    counting = PowerSwitch(image)
    clean(_write(image.mount(), durable=durable), counting)
    starts = [number for number, one in enumerate(counting.changes) if one.path.suffix == ".cleaned"]
    # A cut before the first segment is written may lose sources that were never fsynced: not the round's fault.
    begin = 0 if durable else starts[0] + 1
    swapped = []
    for cut_at in range(begin, len(counting.changes) + 1, every):
        log_dir = _write(image.point, durable=durable)
        fs = PowerSwitch(image, cut_at)
        if cut_at < len(counting.changes):
            with pytest.raises(LogDirOfflineError):
                clean(log_dir, fs)
        else:
            clean(log_dir, fs)
            image.cut_power()
        image.unmount()
        image.mount()
        try:
            recover(log_dir)
            words = expected.judge(log_dir)
        except Exception as error:
            step = counting.changes[cut_at] if cut_at < len(counting.changes) else "the end"
            raise AssertionError(f"power cut before change {cut_at}, {step}") from error
        swapped.append(len(words) - words.count("old"))
    image.unmount()
    # In between not in order: a group ends in the background, so a number is not the same change in each run.
    assert swapped[0] == 0
    assert every > 1 or set(swapped) == set(range(len(expected.groups) + 1))


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> Expected:
    """The round without a crash."""
    return Expected.of(tmp_path_factory.mktemp("expected"))


@pytest.mark.parametrize("kind", ["ext4", "xfs"])
def test_power_cut_on_a_real_file_system_leaves_groups_old_or_new(
    expected: Expected, tmp_path: Path, kind: str
) -> None:
    """C-1 on the file systems that brokers use; every third step (`slow`: all)."""
    with loop_image(kind, tmp_path) as image:
        _sweep(expected, image, durable=kind == "ext4", every=3)


def test_image_has_power_again_though_another_mount_namespace_keeps_it(tmp_path: Path) -> None:
    """As a container's does that another test started while it was mounted."""
    with loop_image("ext4", tmp_path) as image:
        at = image.mount()
        (at / "file").write_bytes(b"there")
        subprocess.run(["sync", "-f", str(at)], check=True)
        command = ["unshare", "--mount", "cat"]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0) as other:
            assert other.stdin is not None
            assert other.stdout is not None
            other.stdin.write(b"\n")
            assert other.stdout.read(1) == b"\n"  # it has begun
            image.cut_power()
            image.unmount()
            image.mount()
            assert (at / "file").read_bytes() == b"there"
            other.stdin.close()
        image.unmount()


@pytest.mark.slow
@pytest.mark.parametrize("durable", [True, False], ids=["sources-durable", "sources-never-fsynced"])
@pytest.mark.parametrize("kind", ["ext4", "xfs"])
def test_power_cut_at_every_step_long_form(expected: Expected, tmp_path: Path, kind: str, durable: bool) -> None:
    """The same at every step, on fsynced sources and on sources that never were."""
    with loop_image(kind, tmp_path) as image:
        _sweep(expected, image, durable=durable, every=1)
