"""A sample of the fuzzer's cases, the same ones each time (`make fuzz` runs many), and of what its judges must see."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz.change_records import sealed
from tests.fuzz.laundering import SoundBatches
from tests.fuzz.limits import TooMuch, limited
from tests.support.batch_reader import split_batches
from tests.support.log_builder import LogBuilder


@pytest.mark.parametrize(
    ("options", "cases"),
    [(["--seed", "1"], 6), (["--seed", "1000000"], 6), (["--seed", "1", "--parsers"], 300)],
    ids=["commands", "other-commands", "parsers"],
)
def test_hostile_files_never_crash_a_step(options: list[str], cases: int) -> None:
    """In its own process, so that a crash or a hang is reported too."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.fuzz", *options, "--cases", str(cases)],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{cases} cases, 0 bad" in done.stderr


def test_damage_with_a_new_checksum_is_laundered(tmp_path: Path) -> None:
    """A batch of the same records is not, though it is packed otherwise."""
    log, other = LogBuilder(), LogBuilder()
    log.append(("a", "1"), ("b", "1"), codec="gzip")
    log.append(("c", "damaged"))
    other.append(("a", "1"), ("b", "1"), codec="zstd")
    path = log.write(tmp_path) / f"{0:020d}.log"
    packed, plain = split_batches(path.read_bytes())
    path.write_bytes(packed + plain[:-3] + b"?" + plain[-2:])
    sound = SoundBatches([tmp_path])

    path.write_bytes(packed + sealed(plain[:-3] + b"?" + plain[-2:]))
    assert len(sound.laundered(tmp_path, may_append=False)) == 1
    path.write_bytes(other.files()[path.name])
    assert sound.laundered(tmp_path, may_append=False) == []


def test_step_that_takes_more_memory_than_it_may_is_found() -> None:
    """What was resident and is free again counts too."""
    with pytest.raises(TooMuch, match="MB of memory"), limited():
        assert bytearray(b"x") * (600 << 20)
