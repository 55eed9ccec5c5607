"""Power cuts on ext4 and XFS while a log is written to, rolled, cut, expired, cleaned and opened again."""

from __future__ import annotations

import contextlib
from pathlib import Path
from random import Random

import pytest

from cleaner.errors import CleanerError
from cleaner.log.transactional_ids import FILE_NAME
from tests.crash.loop_image import LoopImage, loop_image
from tests.crash.power_switch import PowerSwitch
from tests.property.modelled_log import PARTITION, ModelledLog, Pairs

pytestmark = pytest.mark.root

KEYS = "abcdef"
VALUES = ("", "v", "w" * 40, "x" * 300, None)
_MAX_CHANGES = 500
_MAX_FLUSHES = 200
_MAX_STEPS = 400
# Names that may exist: files that load, and none that an earlier run has left unfinished.
_KEPT_SUFFIXES = (".log", ".index", ".timeindex", ".txnindex", ".snapshot", "-checkpoint", ".metadata")


class LogOnAnImage(ModelledLog):
    """A log in an image; its power is cut at random moments, half of them right after a flush."""

    fs: PowerSwitch

    def __init__(self, image: LoopImage, rng: Random) -> None:
        self._image = image
        self._rng = rng
        self._is_armed = False
        settings = {"flush.messages": "7", "preallocate": rng.choice(("true", "false"))}
        super().__init__(image.mount() / "log-dir", rng.choice(("producer", "lz4")), settings)

    def new_disk(self) -> PowerSwitch:
        """Return a switch, which will be thrown if this run has a power cut."""
        if not self._is_armed:
            return PowerSwitch(self._image)
        if self._rng.random() < 0.5:
            return PowerSwitch(self._image, cut_behind_flush=self._rng.randrange(_MAX_FLUSHES))
        return PowerSwitch(self._image, self._rng.randrange(_MAX_CHANGES))

    def live(self, *, cuts: int) -> None:
        """Take steps until there were `cuts` power cuts; the log opens whole after each."""
        self._is_armed = True
        is_open = True
        while cuts:
            try:
                if is_open:
                    self._take_steps()
                else:
                    self.after_crash(self.log_dir, is_in_step=True)
                    self._judge_files()
                    is_open = True
            except (CleanerError, OSError):
                # A step that fails while the power is on has failed by itself.
                if not self.fs.is_off:
                    raise
                is_open = False
                cuts -= 1
                self._restore_power()
        self._is_armed = False
        self.after_crash(self.log_dir, is_in_step=True)

    def _take_steps(self) -> None:
        for _ in range(_MAX_STEPS):
            self._take_step()
        self.fs.cut()
        self.flush()

    def _take_step(self) -> None:
        rng = self._rng
        share = rng.random()
        if share < 0.40:
            self.append(self._some_records(), wait=rng.random() < 0.3)
        elif share < 0.55:
            self.append_in_transaction(self._some_records())
        elif share < 0.65:
            if self.is_in_transaction:
                self.end_transaction(rng.random() < 0.6)
        elif share < 0.70:
            self.time_passes(rng.choice((1, 20, 70)))
        elif share < 0.74:
            self.cut(rng.random())
        else:
            rng.choice((self.flush, self.roll, self.roll, self.note_offsets, self.clean, self.stop_and_start))()

    def _some_records(self) -> Pairs:
        rng = self._rng
        return [(rng.choice(KEYS), rng.choice(VALUES)) for _ in range(rng.randint(1, 6))]

    def has_stopped(self) -> None:
        """The power is cut after the log was closed: it opens whole all the same."""
        if self._rng.random() < 0.5:
            self.fs.cut()
            self._restore_power()

    def _restore_power(self) -> None:
        with contextlib.suppress(CleanerError):
            self.abandon()
        self._image.unmount()
        self._image.mount()

    def _judge_files(self) -> None:
        names = [path.name for path in (self.log_dir / str(PARTITION)).iterdir()]
        # The temporary file of the transactional ids is replaced by the next producer.
        left = [name for name in names if not name.endswith(_KEPT_SUFFIXES) and not name.startswith(FILE_NAME)]
        assert not left, left


def _cut_again_and_again(kind: str, scratch: Path, *, seed: int, cuts: int) -> None:
    with loop_image(kind, scratch) as image:
        log = LogOnAnImage(image, Random(seed))
        try:
            log.live(cuts=cuts)
        except Exception as error:
            raise AssertionError(f"seed {seed}: {error!r}") from error
        finally:
            log.abandon()


@pytest.mark.parametrize("kind", ["ext4", "xfs"])
def test_power_cuts_while_a_log_is_written_lose_nothing_acknowledged(tmp_path: Path, kind: str) -> None:
    """Durable records are there, no others than written ones, and open transactions are aborted."""
    _cut_again_and_again(kind, tmp_path, seed=1, cuts=12)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 12))
@pytest.mark.parametrize("kind", ["ext4", "xfs"])
def test_power_cuts_while_a_log_is_written_long_form(tmp_path: Path, kind: str, seed: int) -> None:
    """The same, with more of everything."""
    _cut_again_and_again(kind, tmp_path, seed=seed, cuts=60)
