"""`cleaner dump` compared with Kafka's own dump of the same files: the same lines."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path

import pytest

from cleaner.cli.main import main
from tests.golden.archive import DATA, unpack
from tests.kafka.rig import DUMP_LOG_SEGMENTS, Rig, Unavailable

pytestmark = pytest.mark.kafka

METADATA = DATA.parent / "cluster-metadata.tar.xz"


@pytest.fixture(scope="module")
def tools() -> Rig:
    try:
        return Rig.load_tools()
    except Unavailable as error:
        pytest.skip(f"no tools of Kafka: {error}")


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    return lambda name: unpack(DATA / f"{name}.tar.xz", tmp_path_factory.mktemp(name))


def files(root: Path, *endings: str) -> list[str]:
    """Return the files below a directory, those of one segment together."""
    return [str(path) for path in sorted(root.rglob("*")) if path.name.endswith(endings)]


def both(tools: Rig, paths: list[str], *options: str) -> tuple[tuple[str, list[str]], tuple[str, list[str]]]:
    """Return what Kafka and what we print: standard output, and the lines of standard error in any order."""
    assert paths
    out, errors = StringIO(), StringIO()
    with redirect_stdout(out), redirect_stderr(errors):
        main(["dump", "--files", ",".join(paths), *options])
    done = tools.run(DUMP_LOG_SEGMENTS, "--files", ",".join(paths), *options)
    return (done.stdout, sorted(done.stderr.splitlines())), (out.getvalue(), sorted(errors.getvalue().splitlines()))


EVERYTHING = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")


@pytest.mark.parametrize(
    ("scenario", "options"),
    [
        ("broker-transactions", ["--print-data-log"]),
        ("legacy-magic", ["--print-data-log"]),
        ("headers-and-nulls", ["--deep-iteration"]),
        ("log-append-time", []),
        ("zstd", ["--deep-iteration"]),
        ("idempotent-producers", ["--deep-iteration"]),
        ("tombstones", ["--print-data-log", "--skip-record-metadata", "--max-bytes", "3000"]),
        ("k1-k4", ["--key-decoder-class", "--value-decoder-class", "org.apache.kafka.tools.api.StringDecoder"]),
        ("damaged-bad-crc", ["--deep-iteration"]),
        ("damaged-truncated-middle", ["--deep-iteration"]),
        ("damaged-index-back", []),
        ("transactions", ["--index-sanity-check"]),
        ("transactions", ["--verify-index-only"]),
        ("consumer-offsets", ["--offsets-decoder"]),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else value,
)
def test_dump_prints_what_kafkas_own_dump_prints(
    tools: Rig, unpacked: Callable[[str], Path], scenario: str, options: list[str]
) -> None:
    """Batches, records, entries of every index, snapshots; what does not fit goes to standard error."""
    kafka, ours = both(tools, files(unpacked(scenario) / "before", *EVERYTHING), *options)
    assert ours == kafka


def test_dump_of_the_metadata_log_is_kafkas(tools: Rig, tmp_path: Path) -> None:
    """Records of a cluster that has done a bit of everything, control records, and snapshots."""
    paths = files(unpack(METADATA, tmp_path), ".log", ".checkpoint")
    kafka, ours = both(tools, paths, "--cluster-metadata-decoder")
    assert ours == kafka
