"""`clean --keep-old`, `undo` and `recover --save-cut`, as an operator uses them."""

from __future__ import annotations

import errno
import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

import cleaner
from cleaner.storage.fs.file_system import FileSystem
from tests.integration.log_dirs import NOW, Run, contents, flip_bit, keyed_log, offsets
from tests.integration.test_recover_command import ACTIVE, logs, tear, unclean
from tests.support.log_builder import LogBuilder, write_log_dir

COMPACT = ("--set", "topic:cleanup.policy=compact")
FIRST = "00000000000000000000.log"


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    """A log dir of two partitions."""
    (tmp_path / "logs").mkdir()
    return write_log_dir(tmp_path / "logs", keyed_log(), keyed_log("topic-1"))


def everything(directory: Path) -> tuple[dict[str, str], dict[str, int]]:
    """Return all files, and the times of those that must be kept."""
    times = {str(p.relative_to(directory)): p.stat().st_mtime_ns for p in directory.rglob("*.log")}
    return contents(directory), times


def test_undo_brings_back_every_file_and_the_checkpoint(log_dir: Path, tmp_path: Path, run: Run) -> None:
    """Files, times and checkpoints are as before two partitions were cleaned; nothing is kept any more."""
    kept, before = tmp_path / "kept", everything(log_dir)
    assert run("clean", log_dir, "topic-0", "topic-1", "--keep-old", kept, *COMPACT)[0] == 0
    assert everything(log_dir) != before
    manifest = json.loads((kept / "topic-0" / "manifest.json").read_text())
    assert (manifest["format"], manifest["version"], len(manifest["groups"])) == ("cleaner-kept-segments", 1, 1)
    code, out, err = run("undo", kept)

    assert (code, err) == (0, "")
    assert out.splitlines()[0] == "topic-0: 3 segments put back (4.4 KiB), cleaner checkpoint none"
    assert everything(log_dir) == before
    assert list(kept.iterdir()) == []


def test_undo_of_a_round_that_replaced_nothing_brings_back_the_checkpoint(tmp_path: Path, run: Run) -> None:
    """All of its segments stayed in place; `verify` takes them for the log before."""
    log, kept = LogBuilder(), tmp_path / "kept"
    for number in range(3):
        log.append((f"a{number}", "v" * 300), (f"b{number}", "v" * 100))
        log.roll()
    log.append(("z", "z"))
    (tmp_path / "logs").mkdir()
    log_dir = write_log_dir(tmp_path / "logs", log)
    before = everything(log_dir)
    settings = ("--set", "topic:cleanup.policy=compact", "--set", "topic:internal.segment.bytes=600")
    assert run("clean", log_dir, "topic-0", "--keep-old", kept, *settings)[0] == 0
    after = everything(log_dir)
    assert {name for name in after[0] if after[0][name] != before[0].get(name)} == {"cleaner-offset-checkpoint"}
    assert run("verify", kept, log_dir, "topic-0", *settings)[0] == 0
    code, out, err = run("undo", kept)

    assert (code, err) == (0, "")
    assert out.splitlines()[0] == "topic-0: 0 segments put back (0 B), cleaner checkpoint none"
    assert everything(log_dir) == before
    assert list(kept.iterdir()) == []


def test_undo_of_several_rounds_leads_back_to_the_first(log_dir: Path, tmp_path: Path, run: Run) -> None:
    """A second round has replaced the output of the first; the last round is undone first."""
    kept, before = tmp_path / "kept", everything(log_dir)
    small = ("--max-dirty-bytes", "100", *COMPACT)
    assert run("clean", log_dir, "topic-0", "--keep-old", kept, *small)[0] == 0
    assert run("clean", log_dir, "topic-0", "--keep-old", kept, "--rounds", "all", *COMPACT)[0] == 0
    assert len(json.loads((kept / "topic-0" / "manifest.json").read_text())["groups"]) >= 2
    code, out, _ = run("undo", kept, "--format", "json")

    assert (code, json.loads(out)["checkpoint"]) == (0, None)
    assert everything(log_dir) == before


def test_undo_on_another_file_system_copies(
    log_dir: Path, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where no hard link can be made, bytes and times are the same all the same."""

    def no_link(*_: object, **__: object) -> None:
        raise OSError(errno.EXDEV, "Invalid cross-device link")

    kept, before = tmp_path / "kept", everything(log_dir)
    monkeypatch.setattr("os.link", no_link)
    assert run("clean", log_dir, "topic-0", "--keep-old", kept, *COMPACT)[0] == 0
    assert (kept / "topic-0" / "000001" / FIRST).stat().st_nlink == 1
    assert run("undo", kept)[0] == 0
    assert everything(log_dir) == before


def test_kept_segments_are_hard_links(log_dir: Path, tmp_path: Path, run: Run) -> None:
    """On one file system keeping costs no copy: it is the very file."""
    inode = (log_dir / "topic-0" / FIRST).stat().st_ino
    assert run("clean", log_dir, "topic-0", "--keep-old", tmp_path / "kept", *COMPACT)[0] == 0
    assert (tmp_path / "kept" / "topic-0" / "000001" / FIRST).stat().st_ino == inode


class Stop(BaseException):
    """The process is killed."""


REMOVALS = ("remove", "remove_all", "remove_dir")


def stop_at(patch: pytest.MonkeyPatch, directory: Path, calls: int, kinds: Sequence[str] = REMOVALS) -> None:
    """Have the process killed before one of the calls that remove something in a directory, or change it otherwise."""
    count = 0

    def stopping(real: Callable[..., object]) -> Callable[..., object]:
        def call(fs: FileSystem, path: Path, *rest: object) -> object:
            nonlocal count
            count += directory in (path, *path.parents)
            if count >= calls:
                raise Stop
            return real(fs, path, *rest)

        return call

    for name in kinds:
        patch.setattr(FileSystem, name, stopping(getattr(FileSystem, name)))


def _append(log_dir: Path, partition: str = "topic-0") -> None:
    log = keyed_log(partition)
    log.append(("k9", "new"))
    name = "00000000000000000060.log"
    (log_dir / partition / name).write_bytes(log.files()[name])


def _clean_again(log_dir: Path) -> None:
    (log_dir / "cleaner-offset-checkpoint").write_text("0\n0\n")
    path = log_dir / "topic-0" / FIRST
    cleaner.clean(log_dir, "topic-0", {"cleanup.policy": "compact", "delete.retention.ms": "0"}, now_ms=NOW + 1)
    path.write_bytes(path.read_bytes()[:-75])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (_append, "records were appended or cut since"),
        (_clean_again, "is not the file that the round wrote"),
        (lambda log_dir: flip_bit(log_dir.parent / "kept" / "topic-0" / "000001" / FIRST), "the kept file is damaged"),
        (lambda log_dir: (log_dir.parent / "kept" / "topic-0" / "000001" / FIRST).unlink(), "the kept file is gone"),
    ],
    ids=["appended", "cleaned", "kept-damaged", "kept-gone"],
)
def test_undo_of_what_has_changed_since_is_refused_and_touches_nothing(
    log_dir: Path, tmp_path: Path, run: Run, change: Callable[[Path], None], words: str
) -> None:
    """The difference is named; log and kept files stay unchanged, and the other partition is put back."""
    kept = tmp_path / "kept"
    assert run("clean", log_dir, "topic-0", "topic-1", "--keep-old", kept, *COMPACT)[0] == 0
    change(log_dir)
    found = contents(log_dir / "topic-0"), contents(kept / "topic-0")
    code, out, err = run("undo", kept)

    assert code == 1
    assert words in err
    assert (contents(log_dir / "topic-0"), contents(kept / "topic-0")) == found
    assert "topic-1: 3 segments put back" in out


def test_keep_old_within_the_log_dir_is_refused(log_dir: Path, run: Run) -> None:
    """A broker would take it for a partition (R-102); nothing is cleaned."""
    before = contents(log_dir)
    for place in (log_dir / "kept", log_dir / "topic-0"):
        code, _, err = run("clean", log_dir, "topic-0", "--keep-old", place, *COMPACT)
        assert code == 2
        assert "inside of the log dir" in err
    assert contents(log_dir) == before


def test_keep_old_where_another_log_is_kept_is_refused(log_dir: Path, tmp_path: Path, run: Run) -> None:
    """Two log dirs cannot share a place; the second is left as it is."""
    other = tmp_path / "other"
    shutil.copytree(log_dir, other)
    before = contents(other)
    assert run("clean", log_dir, "topic-0", "--keep-old", tmp_path / "kept", *COMPACT)[0] == 0
    code, _, err = run("clean", other, "topic-0", "--keep-old", tmp_path / "kept", *COMPACT)
    assert code == 2
    assert "keeps segments of another log" in err
    assert contents(other) == before


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "keeps no segments"),
        ("{}", "its format is not cleaner-kept-segments"),
        ('{"format": "cleaner-kept-segments", "version": 2}', "version 2 is newer"),
        ('{"format": "cleaner-kept-segments", "version": 1}', "log_dir is missing"),
    ],
    ids=["none", "foreign", "newer", "empty"],
)
def test_undo_of_a_directory_that_keeps_nothing_of_ours_is_refused(
    tmp_path: Path, run: Run, content: str | None, words: str
) -> None:
    """A manifest that cannot be read is named, and stays."""
    (tmp_path / "topic-0").mkdir()
    if content is not None:
        (tmp_path / "topic-0" / "manifest.json").write_text(content)
    before = contents(tmp_path)
    code, _, err = run("undo", tmp_path)
    assert code in (1, 2)
    assert words in err
    assert contents(tmp_path) == before


def test_undo_whose_manifest_has_gone_says_so_and_puts_back_the_others(log_dir: Path, tmp_path: Path, run: Run) -> None:
    """Segments are kept, but nothing says where they were; another partition does not suffer for it."""
    kept, before = tmp_path / "kept", everything(log_dir)
    assert run("clean", log_dir, "topic-0", "topic-1", "--keep-old", kept, *COMPACT)[0] == 0
    cleaned = contents(log_dir / "topic-0")
    (kept / "topic-0" / "manifest.json").rename(tmp_path / "elsewhere")
    code, out, err = run("undo", kept)
    assert (code, out.split(":")[0], out.count("put back")) == (1, "topic-1", 1)
    assert "topic-0/manifest.json: there is none beside the kept segments" in "".join(err.split("\n  "))
    assert contents(log_dir / "topic-0") == cleaned
    code, _, err = run("undo", kept)
    assert (code, "keeps no segments" in err) == (1, False)
    assert "bring it back from a copy" in err
    (tmp_path / "elsewhere").rename(kept / "topic-0" / "manifest.json")
    code, _, err = run("undo", kept / "topic-0")
    assert (code, f"name the directory above, {kept.resolve()}" in "".join(err.split("\n  "))) == (2, True)
    assert run("undo", kept)[0] == 0
    assert everything(log_dir) == before


def test_undo_again_after_a_stop_in_its_last_step_says_so_and_finishes(
    log_dir: Path, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever in the removal of kept files it stopped, and though records have come since; then all is gone."""
    kept = tmp_path / "kept"
    for calls in range(1, 5):
        assert run("clean", log_dir, "topic-0", "topic-1", "--keep-old", kept, *COMPACT)[0] == 0
        assert len(contents(kept)) > 2
        with monkeypatch.context() as patch:
            stop_at(patch, kept / "topic-1", calls)
            with pytest.raises(Stop):
                cleaner.undo(kept)
        assert list(kept.glob("topic-1/*"))
        if calls == 4:
            _append(log_dir, "topic-1")
        code, out, err = run("undo", kept)
        assert (code, err, out.splitlines()) == (0, "", ["topic-1: undone already, cleaner checkpoint none"])
        assert list(kept.iterdir()) == []
    code, _, err = run("undo", kept)
    assert (code, "keeps no segments" in err) == (2, True)


def test_undo_of_several_rounds_that_is_stopped_anywhere_is_finished_by_the_same_command(
    log_dir: Path, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What an earlier round wrote, and a later one replaced, is gone again once the segments before both are back."""
    kept, before = tmp_path / "kept", everything(log_dir)
    for some in (("--max-dirty-bytes", "100"), ("--max-dirty-bytes", "200"), ("--rounds", "all")):
        assert run("clean", log_dir, "topic-0", "--keep-old", kept, *some, *COMPACT)[0] == 0
    for directory in (log_dir, kept):
        shutil.copytree(directory, tmp_path / f"{directory.name}-cleaned")
    stops = 0
    while True:
        with monkeypatch.context() as patch:
            stop_at(patch, tmp_path, stops + 1, ("rename", "rename_all", "remove", "remove_all", "fsync_dir"))
            try:
                cleaner.undo(kept)
                break
            except Stop:
                stops += 1
        code, _, err = run("undo", kept)
        assert (code, err) == (0, ""), stops
        assert everything(log_dir) == before, stops
        assert list(kept.iterdir()) == []
        for directory in (log_dir, kept):
            shutil.rmtree(directory)
            shutil.copytree(tmp_path / f"{directory.name}-cleaned", directory)
    assert stops > 20


def test_mark_of_another_log_dir_s_undo_keeps_none_from_being_undone(
    log_dir: Path, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next command removes it."""
    kept, other = tmp_path / "kept", shutil.copytree(log_dir, tmp_path / "other")
    before = everything(other)
    assert run("clean", log_dir, "topic-0", "--keep-old", kept, *COMPACT)[0] == 0
    with monkeypatch.context() as patch:
        stop_at(patch, kept / "topic-0", 1)
        with pytest.raises(Stop):
            cleaner.undo(kept)
    assert run("clean", other, "topic-1", "--keep-old", kept, *COMPACT)[0] == 0
    assert run("undo", kept)[0] == 0
    assert everything(other) == before
    code, out, _ = run("undo", kept)
    assert (code, out.splitlines()) == (0, ["topic-0: undone already, cleaner checkpoint none"])


def test_file_of_ours_among_kept_ones_stays_and_is_no_segment(log_dir: Path, tmp_path: Path, run: Run) -> None:
    kept = tmp_path / "kept"
    assert run("clean", log_dir, "topic-0", "--keep-old", kept, *COMPACT)[0] == 0
    notes = kept / "topic-0" / "000001" / "notes"
    notes.write_text("mine")
    assert run("undo", kept)[0] == 0
    code, _, err = run("undo", kept)
    assert (code, "keeps no segments" in err, notes.read_text()) == (2, True, "mine")


def test_kept_files_beside_the_mark_of_an_earlier_undo_are_not_undone(log_dir: Path, tmp_path: Path, run: Run) -> None:
    """A power cut may bring the mark back; if the next manifest is then lost, the kept files are the only ones."""
    kept = tmp_path / "kept"
    assert run("clean", log_dir, "topic-0", "--keep-old", kept, *COMPACT)[0] == 0
    mark = kept / "topic-0" / "undone.json"
    shutil.copy(kept / "topic-0" / "manifest.json", tmp_path / "mark")
    assert run("undo", kept)[0] == 0
    mark.parent.mkdir()
    shutil.move(tmp_path / "mark", mark)
    assert run("clean", log_dir, "topic-0", "--keep-old", kept, *COMPACT)[0] == 0
    assert not mark.exists()
    (kept / "topic-0" / "manifest.json").unlink()
    assert run("undo", kept)[0] != 0
    assert (kept / "topic-0" / "000001" / FIRST).exists()


def test_undo_of_a_partition_that_has_gone_is_refused_and_puts_back_the_others(
    log_dir: Path, tmp_path: Path, run: Run
) -> None:
    """As in every command, one log never stops the others."""
    kept = tmp_path / "kept"
    before = contents(log_dir / "topic-1")
    assert run("clean", log_dir, "topic-0", "topic-1", "--keep-old", kept, *COMPACT)[0] == 0
    (log_dir / "topic-0").rename(tmp_path / "topic-0")
    code, out, err = run("undo", kept)
    assert (code != 0, "topic-1: " in out, "no partition topic-0" in err) == (True, True, True)
    assert contents(log_dir / "topic-1") == before


def test_recover_saves_what_it_cuts(tmp_path: Path, run: Run) -> None:
    """The torn tail, and segments behind damage, with their positions in the names; together nothing is missing."""
    log_dir, cuts = tmp_path / "logs", tmp_path / "cuts"
    log_dir.mkdir()
    unclean(log_dir, keyed_log(), keyed_log("topic-1"))
    tear(log_dir / "topic-0" / ACTIVE)
    middle = log_dir / "topic-1" / "00000000000000000020.log"
    flip_bit(middle, 200)
    originals = {path.name: path.read_bytes() for path in (log_dir / "topic-1").glob("*.log")}
    torn = (log_dir / "topic-0" / ACTIVE).read_bytes()
    assert run("recover", log_dir, "--allow-truncate", "--save-cut", cuts)[0] == 0

    left = (log_dir / "topic-0" / ACTIVE).read_bytes()
    assert (cuts / "topic-0" / f"{ACTIVE}.{len(left)}-{len(torn)}").read_bytes() == torn[len(left) :]
    kept = {path.name: path.read_bytes() for path in (cuts / "topic-1").iterdir()}
    left = middle.read_bytes()
    expected = {f"{name}.0-{len(data)}": data for name, data in originals.items() if name > middle.name}
    damaged = originals[middle.name]
    expected[f"{middle.name}.{len(left)}-{len(damaged)}"] = damaged[len(left) :]
    assert kept == expected
    assert offsets(log_dir, "recovery-point")["topic-0"] == 79


def test_recover_that_cannot_save_cuts_nothing(tmp_path: Path, run: Run) -> None:
    """The bytes are saved before they are cut, or they are not cut."""
    log_dir = tmp_path / "logs"
    log_dir.mkdir()
    unclean(log_dir, keyed_log())
    tear(log_dir / "topic-0" / ACTIVE)
    (tmp_path / "cuts").write_text("no directory")
    before = logs(log_dir)
    assert run("recover", log_dir, "--save-cut", tmp_path / "cuts")[0] == 1
    assert logs(log_dir) == before
    code, _, err = run("recover", log_dir, "--save-cut", log_dir / "cuts")
    assert code == 2
    assert "inside of the log dir" in err


def test_cuts_of_one_name_do_not_replace_each_other(tmp_path: Path) -> None:
    """A second recovery that cuts other bytes at the same place keeps both."""
    for value in ("first", "other"):
        log_dir = tmp_path / value
        log_dir.mkdir()
        log = LogBuilder(timestamp_ms=NOW)
        log.append(("k", "v"))
        log.append(("k", value))
        unclean(log_dir, log)
        tear(log_dir / "topic-0" / FIRST)
        for _ in range(2):
            cleaner.recover(log_dir, save_cut=tmp_path / "cuts", fs=FileSystem())
    names = sorted(path.name for path in (tmp_path / "cuts" / "topic-0").iterdir())
    assert len(names) == 2
    assert names[1] == f"{names[0]}.2"
