"""
README.md and docs/: each of their commands is run as written, and prints what they say.

A page's commands run in one shell, from the first to the last, in their own environment: the names of a machine's
directories (`/var/lib/kafka`, `/etc`) is below a temporary one. A command that cannot be run so is in `EXCEPTIONS`,
with the reason; a new one that is neither fails.
"""

from __future__ import annotations

import doctest
import os
import re
import shlex
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cleaner.base.model import TopicPartition
from cleaner.cli.main import main, make_parser
from cleaner.spark.clean.available import why_not_available
from tests.integration.forked_commands import forked_commands
from tests.integration.log_dirs import keyed_log
from tests.support.coordinator_records import offset_commit
from tests.support.log_builder import LogBuilder, write_log_dir
from tools.tutorial import Shell, Step, commands, matches

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]

# Patterns of commands that are not run here, and why. Those of ours are read by their parser all the same.
EXCEPTIONS = {
    r"make (demo|test)\b": "they take minutes: the demo's commands are docs/tutorial.md's, and the test's are these",
    r"python3 -m venv /opt|\S*pip install": "asks a package index; tests/deploy/test_image.py does it in a Debian",
    r"systemctl |systemd-sysusers$|journalctl ": "tests/deploy/test_systemd_service.py has a machine for them",
    r"make (simulate|teeth)|\S*python -m tests.simulation": "it takes minutes; tests/simulation runs some seeds",
    r"make (fuzz|mutants)|\S*python -m tests.fuzz": "it takes minutes; tests/fuzz and tests/kafka run some",
    r"make soak|\S*python -m tests.soak": "it takes an hour; tests/soak runs some seconds",
    r"apt-get ": "tests/deploy/test_deb.py installs it in a Debian",
    r"tar xf kafka-log|cd kafka-log": "tests/deploy/test_bundle.py does it in a Debian without a network",
    r"docker ": "needs a container engine; tests/deploy/test_image.py runs the Dockerfile's steps, and the image",
    r"helm ": "there is no cluster here; tests/deploy/test_helm.py renders the chart",
    r"cleaner bulk ": "tests/bulk runs it, with a master of its own too; here is no cluster",
    r"cleaner .*s3://": "there is no bucket here; tests/integration/test_remote.py has one, and runs these commands",
    r"cleaner .*cleaner\.otel\.": "there is no collector here; tests/integration/test_spans.py has one",
    r".* \| nc -U": "nc is not among the tools of the tests; tests/unit/control speaks the protocol",
    r"cleaner serve |kcat ": "tests/integration/test_serve_command.py has a server, and clients",
    r".*\$(\w*LOG_DIR|KEPT)\b": "tests/integration/test_way_back_page.py makes logs for it",
}
# Here each command is a process of its own, because it is in a mount namespace.
_WITH_PROCESSES = ("operations.md",)
# Pages whose examples of Python have tests with a session of their own.
# Its program needs a server: tests/integration/test_serve_command.py has one.
PAGES_OF_PYTHON = [page for page in PAGES if page.name != "serve.md" and "```python\n" in page.read_text()]
PYTHON_ELSEWHERE = {"library.md": "test_library_page.py", "spark.md": "test_spark_frames.py"}

_MACHINE = re.compile(r"(?<![\w.$/-])(?=/(?:etc|mnt|opt|srv|tmp|usr|var)/)")
_NAMES = {"LOG_DIR": "/var/lib/kafka", "TOPIC-PARTITION": "prices-0", "BEFORE": "/srv/before", "AFTER": "/srv/after"}


class World:
    """A machine's directories below another one, with two compacted logs in its `/var/lib/kafka`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.project = root / "project"
        for name in ("etc/kafka", "etc/systemd/system", "etc/bash_completion.d", "usr/lib/sysusers.d", "mnt", "opt"):
            (root / name).mkdir(parents=True)
        for name in ("var/lib/kafka", "srv/before", "srv/after"):
            logs = [keyed_log("prices-0"), keyed_log("users-0")]
            if name != "var/lib/kafka":
                logs.append(LogBuilder(TopicPartition("__consumer_offsets", 0)))
                logs[-1].append(offset_commit("g", "prices", 0, 17))
            log_dir = write_log_dir(root / name, *logs)
            policies = "prices.cleanup.policy=compact\nusers.cleanup.policy=compact\n"
            (log_dir / "cleaner-topics.properties").write_text(policies)
        (root / "tmp").mkdir()
        (root / "etc/cleaner").mkdir()
        (root / "etc/cleaner/cleaner.properties").write_text(f"log.dirs={root}/var/lib/kafka\n")
        (root / "etc/kafka/server.properties").write_text("log.dirs=/var/lib/kafka\n")
        self.project.mkdir()
        (self.project / "deploy").symlink_to(ROOT / "deploy")
        (self.project / "config").mkdir()
        for path in (ROOT / "config").glob("*.properties"):
            (self.project / "config" / path.name).write_text(self.place(path.read_text()))

    def place(self, text: str) -> str:
        """Return a text with the machine's directories replaced."""
        return _MACHINE.sub(str(self.root), text)

    def command(self, step: Step) -> str:
        """Return a command as it is run: capitals are replaced by names, brackets are left out."""
        command = re.sub(r" \[[^\]]*\.\.\.\]", "", step.command)
        for name, value in _NAMES.items():
            command = re.sub(rf"(?<![\w$-]){name}\b", value, command)
        return self.place(command)

    def settle(self, shell: Shell) -> None:
        """Have a daemon that a shell starts or asks find its logs here and keep its state here."""
        shell.run(f"export CLEANER_LOG_DIRS={self.root}/var/lib/kafka CLEANER_STATE_DIR={self.root}/var/lib/cleaner")
        shell.run("export CLEANER_HTTP_LISTEN=127.0.0.1:0")


def exception_to(command: str) -> str | None:
    """Return the pattern that excepts a command from being run."""
    return next((pattern for pattern in EXCEPTIONS if re.match(pattern, command)), None)


def start_daemon(shell: Shell, command: str) -> None:
    """Leave a daemon running in a shell, which ends it."""
    own = command.replace("cleaner", str(Path(sys.executable).with_name("cleaner")), 1)
    shell.run(f"{own} > daemon.log 2>&1 &")
    shell.run("until cleaner status --probe ready; do kill -0 $! || break; done 2> /dev/null")
    shell.run("cleaner status --probe ready || { cat daemon.log; false; }")


def ids(path: Path) -> str:
    """Name a page."""
    return path.name


def to_run(page: Path) -> list[Step]:
    """Return a page's commands without the exceptions."""
    return [step for step in commands(page.read_text()) if exception_to(step.command) is None]


@pytest.fixture(scope="module")
def _warm() -> None:
    """Compile all kernels: no documented answer has the message about compiling."""
    main(["warm"])


@pytest.fixture(scope="module")
def _forked(_warm: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Return the directory of a `cleaner` that begins in no time."""
    with forked_commands(tmp_path_factory.mktemp("forked")) as path:
        yield path


@pytest.mark.parametrize("page", [page for page in PAGES if to_run(page)], ids=ids)
def test_each_command_of_a_page_answers_as_it_says(tmp_path: Path, page: Path, _forked: Path) -> None:
    """In one shell, from the first to the last; a daemon runs where one is needed."""
    is_incidents = page.name == "operations.md"
    if is_incidents and os.geteuid() != 0:
        pytest.skip("the full disk is mounted, which takes root")
    programs = {step.command.split()[0] for step in to_run(page)}
    missing = [program for program in programs if program.startswith("systemd-") and shutil.which(program) is None]
    if missing:
        pytest.skip(f"commands of {page.name} NOT RUN: no {', '.join(missing)} (tools/prepare tests)")
    world = World(tmp_path)
    with Shell(world.project, inside=["unshare", "--mount"] if is_incidents else ()) as shell:
        if page.name not in _WITH_PROCESSES:
            shell.run(f"PATH={_forked}:$PATH")
        if is_incidents:
            shell.run(f"PYTHONPATH={ROOT} {sys.executable} -m tools.incidents .")
        if page.name in ("steering.md", "operations.md", "README.md"):
            world.settle(shell)
        if page.name in ("steering.md", "operations.md"):
            start_daemon(shell, "cleaner run --config config/cleaner.properties")
        for step in to_run(page):
            command = world.command(step)
            if step.answer is None and command.startswith("cleaner run "):
                start_daemon(shell, command)
                continue
            answer = shell.run(command)
            expected = None if step.answer is None else [world.place(line) for line in step.answer]
            said = f"{page.name}:{step.line_number}: {command}\n" + "\n".join(answer)
            assert expected is None or matches(expected, answer), said


def test_commands_that_are_not_run_are_few_and_understood(capsys: pytest.CaptureFixture[str]) -> None:
    """Each exception is needed, and the `cleaner` lines among them are at least read by their parser."""
    every = [(page.name, step.command) for page in PAGES for step in commands(page.read_text())]
    excepted = [(page, command) for page, command in every if exception_to(command) is not None]
    assert set(EXCEPTIONS) == {exception_to(command) for _, command in excepted}
    assert 3 * len(excepted) < len(every)
    refused = []
    for page, command in excepted:
        if command.startswith("cleaner "):
            try:
                make_parser().parse_args(shlex.split(command, comments=True)[1:])
            except SystemExit:
                refused.append((page, command, capsys.readouterr().err))
    assert refused == []


@pytest.mark.parametrize("page", PAGES_OF_PYTHON, ids=ids)
def test_python_of_a_page_runs(tmp_path: Path, page: Path) -> None:
    """Its blocks one after the other, in one process."""
    blocks = re.findall(r"^```python\n(.*?)^```$", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    if any("spark" in block for block in blocks) and (reason := why_not_available()):
        pytest.skip(reason)
    world = World(tmp_path)
    (tmp_path / "blocks.py").write_text(world.place("\n".join(blocks)))
    with Shell(world.project) as shell:
        shell.run(f"python {tmp_path}/blocks.py")


def test_sessions_of_all_other_pages_answer_as_they_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sessions of Python, from the first line of a page to the last."""
    for page in PAGES:
        if page.name in PYTHON_ELSEWHERE:
            continue
        home = tmp_path / page.relative_to(ROOT).with_suffix("")
        home.mkdir(parents=True)
        monkeypatch.chdir(home)
        # A fence is no answer, and a doctest would take it for one.
        sessions = "\n".join(re.findall(r"^```pycon\n(.*?)^```$", page.read_text(), flags=re.MULTILINE | re.DOTALL))
        test = doctest.DocTestParser().get_doctest(sessions, {}, page.name, str(page), 0)
        told: list[str] = []
        results = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test, out=told.append)
        assert results.failed == 0, "".join(told)


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_blocks_of_a_page_are_of_kinds_that_are_run(page: Path) -> None:
    """A fence says what is in it; one that does not is a drawing and holds no command."""
    text = page.read_text()
    blocks = re.findall(r"^```(.*)\n((?:(?!```).*\n)*)```$", text, flags=re.MULTILINE)
    assert {kind for kind, _ in blocks} <= {"console", "pycon", "python", ""}
    drawings = "".join(f"    {line}\n" for kind, block in blocks if kind == "" for line in block.splitlines())
    assert commands(drawings) == []
