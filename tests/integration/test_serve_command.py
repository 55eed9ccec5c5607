"""`cleaner serve` as a process, and the commands and the program of docs/serve.md, run as they stand there."""

from __future__ import annotations

import contextlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from cleaner.base.model import TopicPartition
from cleaner.cli.main import main
from tests.integration.log_dirs import contents, keyed_log
from tests.support.log_builder import LogBuilder, write_log_dir
from tests.support.wire_client import WireClient, records_of

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "serve.md").read_text()


@contextlib.contextmanager
def started(command: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Run a command line of `cleaner`; returns the process and its first line."""
    words = [sys.executable, "-m", *command.split()]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT) as process:
        try:
            assert process.stdout is not None
            yield process, process.stdout.readline()
        finally:
            process.kill()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_page(tmp_path: Path) -> None:
    """The command of the page serves a backup to its program and to kcat, changes nothing, and ends with SIGTERM."""
    write_log_dir(tmp_path, log := keyed_log("prices-0"))
    before, port = contents(tmp_path), free_port()
    command = next(line for line in re.findall(r"^ {4}(\S.*)$", PAGE, re.MULTILINE) if line.startswith("cleaner serve"))
    command = command.replace("/backup/kafka", str(tmp_path)) + f" --listen 127.0.0.1:{port}"
    with started(command) as (process, line):
        assert line == f"serving 1 topic, 1 partition at 127.0.0.1:{port}, read-only\n", process.communicate()
        program = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)[0].replace("9092", str(port))
        program = program.replace("consumer_timeout_ms=2000", "consumer_timeout_ms=700")
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr
        read = [int(line.split()[0]) for line in done.stdout.splitlines()]
        assert read == list(range(log.next_offset))
        if shutil.which("kcat"):
            kcat = re.findall(r"^ {4}(kcat .*)$", PAGE, re.MULTILINE)[0].replace("9092", str(port))
            shown = subprocess.run(["sh", "-c", kcat], capture_output=True, text=True, timeout=60, check=True).stdout
            assert [int(line.split()[0]) for line in shown.splitlines() if line] == read
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0
        assert process.stderr is not None and process.stderr.read() == ""
    assert contents(tmp_path) == before


def test_page_of_cleaned_copies(tmp_path: Path) -> None:
    """The second command of the page serves each key once, with metrics; its copies are gone when it has ended."""
    logs, scratch, port = tmp_path / "logs", tmp_path / "scratch", free_port()
    for each in (logs, scratch):
        each.mkdir()
    log = LogBuilder(TopicPartition("prices", 0))
    log.append(("k", "old"), ("k", "new"))
    write_log_dir(logs, log)
    before = contents(logs)
    (command,) = (line for line in re.findall(r"^ {4}(\S.*)$", PAGE, re.MULTILINE) if "--compacted" in line)
    more = f" --listen 127.0.0.1:0 --scratch {scratch} --metrics 127.0.0.1:{port}"
    with started(command.replace("/backup/kafka", str(logs)) + more) as (process, line):
        found = re.fullmatch(
            r"serving 1 topic, 1 partition \(1 of them from cleaned copies\) at 127.0.0.1:(\d+), read-only\n", line
        )
        assert found, process.communicate()
        with WireClient(int(found[1])) as client:
            answer = client.fetch("prices", 0)
            assert records_of(answer, 0, committed=False)[0] == [(1, b"k")]
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as page:
            assert b'cleaner_serve_requests_total{api="Fetch"} 1.0' in page.read()
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0
    assert contents(logs) == before and not list(scratch.iterdir())


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--listen", "0.0.0.0:9092"], "--access FILE"),
        (["--listen", "9092"], "not HOST:PORT"),
        (["--max-connections", "0"], "--max-connections"),
        (["--metrics", "0.0.0.0:9404"], "only with --access FILE"),
        (["--scratch", "."], "--compacted"),
        (["--access", "nothing.yml"], "--access=nothing.yml"),
    ],
)
def test_mistakes(tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], expected: str) -> None:
    """Bad options are one clear line and status 2."""
    write_log_dir(tmp_path, keyed_log("prices-0"))
    try:
        code = main(["serve", str(tmp_path), *words])
    except SystemExit as end:
        code = int(str(end.code))
    said = " ".join(capsys.readouterr().err.split())
    assert code == (78 if "nothing.yml" in words else 2) and expected in said
    assert "Traceback" not in said


def test_without_the_definitions(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error names the package and the command that installs it."""
    from cleaner.format import message_definitions as definitions

    write_log_dir(tmp_path, keyed_log("prices-0"))
    monkeypatch.setattr(definitions, "PACKAGE", "no-such-package")
    definitions._package.cache_clear()
    definitions.definition.cache_clear()
    try:
        assert main(["serve", str(tmp_path), "--listen", "127.0.0.1:0"]) == 2
    finally:
        definitions._package.cache_clear()
        definitions.definition.cache_clear()
    assert "pip install 'kafka-log-cleaner[serve]'" in capsys.readouterr().err
