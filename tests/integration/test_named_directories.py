"""Every command that takes a log dir, given something else: it says what that is, and writes nothing."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import cleaner
from cleaner.cli.main import main, make_parser
from cleaner.errors import CleanerError
from cleaner.log.manager import LogManager
from cleaner.log.reader import open_reader
from cleaner.spark.source.find import find_partitions
from cleaner.spark.source.options import read_options
from cleaner.storage.fs.file_system import FileSystem
from cleaner.storage.log_dir import NEVER_FOLLOWED
from tests.integration.log_dirs import keyed_log
from tests.support.log_builder import write_log_dir

PARTITION = "orders-0"

COMMANDS = {
    "plan": ["plan", "{}"],
    "who": ["plan", "{}", "--who"],
    "recover": ["recover", "{}"],
    "recover-one": ["recover", "{}", PARTITION],
    "clean": ["clean", "{}"],
    "clean-all": ["clean", "{}", "--all", "--recover"],
    "clean-one": ["clean", "{}", PARTITION],
    "clean-dry-run": ["clean", "{}", "--all", "--dry-run"],
    "bulk": ["bulk", "{}", "--all", "--dry-run"],
    "explain": ["explain", "{}", PARTITION],
    "explain-alone": ["explain", "{}"],
    "undo": ["undo", "{}"],
    "verify-after": ["verify", "{good}", "{}"],
    "verify-before": ["verify", "{}", "{good}"],
    "consume": ["consume", "--topic", "orders", "--log-dir", "{}"],
    "produce": ["produce", "--topic", "orders", "--log-dir", "{}"],
    "topics-list": ["topics", "list", "--log-dir", "{}"],
    "topics-alter": ["topics", "alter", "--topic", "orders", "--config", "segment.ms=1000", "--log-dir", "{}"],
    "dump": ["dump", "{}"],
    "topics-dir": ["plan", "{good}", "--topics-dir", "{}"],
    "keep-old": ["clean", "{good}", PARTITION, "--set", "cleanup.policy=compact", "--keep-old", "{}"],
    "save-cut": ["recover", "{good}", "--save-cut", "{}"],
    "check": ["check", "{}"],
    "gaps": ["gaps", "{}"],
    "export": ["export", "{}", "orders", "--to", "exported"],
    "serve": ["serve", "{}", "--listen", "127.0.0.1:0"],
    "erase": ["erase", "{}", "orders", "--key-prefix", "k"],
    "erase-kept": ["erase", "{good}", "orders", "--key-prefix", "k", "--kept", "{}"],
    "replicas": ["check", "--replicas", "{good}", "{}"],
}
# What is no mistake there.
MEANT = {
    "partition": ("check", "gaps"),
    "parent": ("topics-dir", "keep-old", "save-cut", "erase-kept"),
    "empty": ("topics-dir", "keep-old", "save-cut", "erase-kept"),
    "missing": ("keep-old", "save-cut"),
    "segment": ("dump",),
}
WORDS = {
    "partition": ("partition", "data"),
    "segment": (
        "a file",
        "inside of the partition's",
        "not a log dir",
        "is there already",
        "Not a directory",
        "not a directory",
        "no such directory",
        "keeps no",
    ),
    "parent": ("contains log dirs", "a directory of log dirs", "keeps no segments"),
    "empty": ("empty directory", "keeps no segments"),
    "missing": ("no such", "No such"),
}


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One of each, made once: no test changes them."""
    root = tmp_path_factory.mktemp("places")
    for name in ("kafka-1", "kafka-2"):
        write_log_dir(root / "disks" / name, keyed_log(PARTITION))
    (root / "empty").mkdir()
    partition = write_log_dir(root / "data", keyed_log(PARTITION), clean_shutdown=False) / PARTITION
    good = write_log_dir(root / "other", keyed_log(PARTITION))
    (good / ".lock").touch()  # which every lock of a log dir leaves
    return {
        "good": good,
        "partition": partition,
        "segment": partition / "00000000000000000000.log",
        "parent": root / "disks",
        "empty": root / "empty",
        "missing": root / "dta",
    }


@pytest.fixture(autouse=True)
def _here(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No command leaves anything in the current directory, where a relative `--to` leads."""
    here = tmp_path_factory.mktemp("here")
    monkeypatch.chdir(here)
    yield
    assert list(here.iterdir()) == []


def _traces(root: Path) -> dict[str, tuple[int, int, int]]:
    """The state that a write would change; reading changes none of it."""
    found = (root, *root.rglob("*"))
    return {str(path): (about.st_ino, about.st_size, about.st_mtime_ns) for path in found for about in [os.lstat(path)]}


def _cases() -> list[object]:
    return [
        pytest.param(place, command, id=f"{name}-of-{place}")
        for place in WORDS
        for name, command in COMMANDS.items()
        if name not in MEANT.get(place, ())
    ]


@pytest.mark.parametrize(("place", "command"), _cases())
def test_command_given_something_else_says_so_and_writes_nothing(
    places: dict[str, Path], capfd: pytest.CaptureFixture[str], place: str, command: list[str]
) -> None:
    """Exit code 2, or another code of a refusal; a line says what the path is."""
    root = places["good"].parent
    before = _traces(root)
    code = main([word.format(places[place], good=places["good"]) for word in command])
    out, err = capfd.readouterr()
    assert code in (1, 2, 78)
    assert any(word in out + err for word in WORDS[place]), out + err
    assert "unexpected" not in err
    assert _traces(root) == before


def test_every_command_that_takes_a_log_dir_is_in_the_table() -> None:
    """A new one goes into `COMMANDS`; `throttle` names a log dir to the daemon, and reads none."""
    parsers = make_parser().commands()
    taking = {name for name, parser in parsers.items() for action in parser._actions if action.dest == "log_dir"}
    assert taking - {words[0] for words in COMMANDS.values()} == {"throttle"}


def test_partition_directory_is_answered_with_what_was_meant(
    places: dict[str, Path], capfd: pytest.CaptureFixture[str]
) -> None:
    """Log dir and partition are there to be copied into the next command."""
    assert main(["recover", str(places["partition"])]) == 2
    assert f"LOG_DIR PARTITION: {places['partition'].parent} {PARTITION}" in capfd.readouterr().err


# What asks nothing of partitions, or needs an empty scratch directory besides.
OF_NO_LOG = ("clean", "explain-alone", "undo", "dump", "topics-dir", "save-cut", "keep-old", "serve", "erase-kept")
OF_LINKS = {
    **{name: words for name, words in COMMANDS.items() if name not in OF_NO_LOG},
    "topics-create": ["topics", "create", "--topic", "orders", "--log-dir", "{}"],
    "topics-delete": ["topics", "delete", "--topic", "orders", "--log-dir", "{}"],
    "topics-describe": ["topics", "describe", "--log-dir", "{}"],
    "verify-both": ["verify", "{}", "{}"],
    "doctor": ["doctor", "{}"],
}


@pytest.mark.parametrize("command", OF_LINKS.values(), ids=OF_LINKS)
def test_partition_that_is_a_link_is_named_by_every_command_and_not_followed(
    places: dict[str, Path], tmp_path: Path, capfd: pytest.CaptureFixture[str], command: list[str]
) -> None:
    """Whether it is left out or was named: nobody may believe that it is not there, or was worked on."""
    linked = write_log_dir(tmp_path / "linked", keyed_log("prices-0"))
    home = write_log_dir(tmp_path / "elsewhere", keyed_log(PARTITION))
    (linked / PARTITION).symlink_to(home / PARTITION)
    before = _traces(home)
    main([word.format(linked, good=places["good"]) for word in command])
    out, err = capfd.readouterr()
    assert NEVER_FOLLOWED in " ".join((out + err).split()), out + err
    assert "unexpected" not in err
    assert _traces(home) == before
    assert (linked / PARTITION).is_symlink()


def test_words_for_a_link_stand_in_one_place() -> None:
    """A second place would soon say something else, or say it of fewer commands."""
    root = Path(cleaner.__file__).parent
    found = [str(path.relative_to(root)) for path in root.rglob("*.py") if NEVER_FOLLOWED in path.read_text("utf-8")]
    assert found == ["storage/log_dir.py"]


def test_manager_names_a_link_where_its_log_is_wanted(tmp_path: Path) -> None:
    """`failed` has it, and a reader of it hears the same."""
    linked = write_log_dir(tmp_path / "linked", keyed_log("prices-0"))
    (linked / PARTITION).symlink_to(linked / "prices-0")
    with LogManager(linked, {}, cleaner=False) as manager:
        assert [str(each) for each in manager.failed] == [PARTITION]
        with pytest.raises(CleanerError, match=NEVER_FOLLOWED):
            manager.log("orders")
        with pytest.raises(CleanerError, match=NEVER_FOLLOWED):
            manager.create_topic("orders", 1, {})
        assert manager.log("prices").log_end_offset > 0
    with pytest.raises(CleanerError, match=NEVER_FOLLOWED):
        open_reader(linked, "orders")


TWICE = {
    "check": (["check", "{}", "{}/"], "2 partitions, 8 segments"),
    "check-link": (["check", "{}", "{link}"], "2 partitions, 8 segments"),
    "check-partition": (["check", "{}/orders-0", "{}", "{}/../logs/orders-0"], "2 partitions, 8 segments"),
    "config": (["config", "check", "--log-dir", "{}", "--log-dir", "{}/"], "also for 1 topic in 1 log dir"),
    "settings": (["config", "check", "--config", "{}.properties"], "also for 1 topic in 1 log dir"),
    "replicas": (["check", "--replicas", "{}", "{copy}", "{}/"], "orders-0: 2 replicas agree"),
    "prove-erased": (["prove-erased", "{}", "{}/", "--key-prefix", "zzz"], '"total_files": {files}'),
}


@pytest.mark.parametrize(("words", "said"), TWICE.values(), ids=TWICE)
def test_directory_that_is_named_twice_counts_once(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    """Whatever the second name looks like: a slash more, or a link."""
    logs = write_log_dir(tmp_path / "logs", keyed_log(PARTITION), keyed_log("orders-1"))
    copy = write_log_dir(tmp_path / "copy", keyed_log(PARTITION), keyed_log("orders-1"))
    (tmp_path / "link").symlink_to(logs)
    (tmp_path / "logs.properties").write_text(f"log.dirs={logs},{logs}/,{tmp_path}/link\n")
    main([word.format(logs, copy=copy, link=tmp_path / "link") for word in words])
    files = sum(path.is_file() for path in logs.rglob("*"))
    assert said.replace("{files}", str(files)) in capfd.readouterr().out


def test_directory_that_is_named_twice_is_examined_and_served_once(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Its partitions were taken for those of two log dirs, which cannot be served together."""
    logs = write_log_dir(tmp_path / "logs", keyed_log(PARTITION))
    main(["doctor", str(logs), f"{logs}/../logs"])
    assert capfd.readouterr().out.count("directories") == 1
    with cleaner.serve_log_dirs([logs, f"{logs}/../logs"]) as address:
        assert address


CALLS: dict[str, Callable[[Path, Path], object]] = {
    "clean": lambda path, _: cleaner.clean(path, PARTITION),
    "plan": lambda path, _: cleaner.plan(path),
    "who": lambda path, _: cleaner.who(path),
    "erase": lambda path, _: cleaner.erase(path, ["orders"], [b"k"]),
    "recover": lambda path, _: cleaner.recover(path),
    "open_reader": lambda path, _: open_reader(path, "orders"),
    "LogManager": lambda path, _: LogManager(path, {}, create=False, cleaner=False),
    "LogManager-create": lambda path, _: LogManager(path, {}, create=True, cleaner=False),
    "spark": lambda path, _: find_partitions(FileSystem(), read_options({"path": str(path)})),
}
CREATE = {"empty", "missing"}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("place", WORDS)
def test_call_given_something_else_is_refused_and_writes_nothing(
    places: dict[str, Path], call: str, place: str
) -> None:
    """With our own error, which says what it is."""
    if (call == "LogManager-create" and place in CREATE) or (call, place) == ("spark", "partition"):
        return  # that is what it is for
    root = places["good"].parent
    before = _traces(root)
    with pytest.raises(CleanerError) as refused:
        CALLS[call](places[place], root)
    assert any(word in str(refused.value) for word in WORDS[place]), str(refused.value)
    assert _traces(root) == before


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="SKIPPED FOR WANT OF ROOT: others need not give up what they are not")
def test_root_hears_of_a_slip_where_others_could_make_a_directory(capfd: pytest.CaptureFixture[str]) -> None:
    """The missing directory is named, not its owner."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o777)
        assert main(["plan", f"{name}/nowhere"]) == 2
        assert f"{name}/nowhere: no such directory" in capfd.readouterr().err
