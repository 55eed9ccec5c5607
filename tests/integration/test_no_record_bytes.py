"""No output has a byte of a key or value, whatever is wrong with a log."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from cleaner.cli.main import main
from cleaner.present.spans import Spans
from tests.integration.log_dirs import NOW
from tests.support.batch_builder import Record
from tests.support.log_builder import LogBuilder, write_log_dir

CONFIDENTIAL = "confidential"
FIRST = "00000000000000000000.log"
COMPACT = ("--set", "topic:cleanup.policy=compact")
TRACED = ("--set", "cleaner.otel.endpoint=http://127.0.0.1:1")


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log dir in which every key, value, header name and header is secret."""
    log = LogBuilder()
    for number in range(6):
        secret = f"{CONFIDENTIAL}-{number}".encode()
        log.append(Record(secret, secret * 3, headers=((secret, secret),)), (secret, None))
    log.roll()
    log.append((CONFIDENTIAL, CONFIDENTIAL))
    return write_log_dir(tmp_path_factory.mktemp("sound"), log)


def commands(before: Path, log_dir: Path) -> list[list[str]]:
    """Return the command lines that read records, those that change the log last."""
    log = log_dir / "topic-0" / FIRST
    return [
        ["plan", str(log_dir), "--estimate", *COMPACT],
        ["check", str(log_dir)],
        ["check", str(log_dir), "--format", "json"],
        ["gaps", str(log_dir), *COMPACT],
        ["gaps", str(log_dir), "--format", "json", *COMPACT],
        ["export", str(log_dir), "topic", "--to", f"{log_dir}-out", "--as-root"],
        ["prove-erased", "--key-prefix", CONFIDENTIAL[:4], str(log_dir)],
        ["dump", str(log), "--deep-iteration", "--skip-record-metadata"],
        ["verify", str(before), str(log_dir), "--end", "12", *COMPACT],
        ["erase", str(log_dir), "topic", "--key-prefix", CONFIDENTIAL[:4], "--dry-run"],
        ["clean", str(log_dir), "topic-0", "--now", str(NOW), *COMPACT, *TRACED],
        ["clean", str(log_dir), "topic-0", "--now", str(NOW), "--damaged", "keep", *COMPACT, *TRACED],
        ["recover", str(log_dir), *COMPACT],
    ]


@pytest.mark.parametrize("position", range(0, 240, 13))
def test_no_byte_of_a_record_is_printed(
    sound: Path, tmp_path: Path, position: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A byte is wrong in a header, a length, a key, a value: errors name the place, never the bytes. Nor do spans."""
    sent: list[InMemorySpanExporter] = []

    def in_memory(_endpoint: str, command: str, warn: Callable[[str], None]) -> Spans:
        sent.append(InMemorySpanExporter())
        return Spans(SimpleSpanProcessor(sent[-1]), command, warn)

    monkeypatch.setattr("cleaner.present.spans.open_spans", in_memory)
    log_dir = Path(shutil.copytree(sound, tmp_path / "logs"))
    log = log_dir / "topic-0" / FIRST
    content = bytearray(log.read_bytes())
    content[position] ^= 0x55
    log.write_bytes(content)
    for words in commands(sound, log_dir):
        main(words)
        out, err = capsys.readouterr()
        assert CONFIDENTIAL not in out + err, words
        assert "Traceback" not in err, words
    spans = [span for each in sent for span in each.get_finished_spans()]
    assert [span.name for span in spans].count("round") == 2
    assert CONFIDENTIAL not in "".join(span.to_json() for span in spans)
