"""The faults of `test_remote_faults.py` with servers that others have written, which `make stores` fetches."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cleaner.base.remote_path import any_path
from cleaner.cli.main import main
from cleaner.errors import LogDirOfflineError
from cleaner.storage.fs.hdfs import Hdfs
from cleaner.storage.fs.remote import RemoteFiles, _store_of
from cleaner.storage.fs.store import Store
from tests.integration import bucket_checks as checks
from tests.integration.bucket_checks import CHECKS, LIMITS, Rig
from tests.integration.log_dirs import keyed_log
from tests.support.log_builder import write_log_dir
from tests.support.manual_clock import ManualClock
from tests.support.real_stores import REAL, RealStore, environment_of, real_store, url_of

pytestmark = pytest.mark.slow
Served = tuple[str, RealStore, Store]


@pytest.fixture(scope="module", params=REAL)
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A kind, its server and its store."""
    kind = request.param
    if not REAL[kind].exists():
        pytest.skip(f"{REAL[kind].name} is not there: make stores")
    with real_store(kind, tmp_path_factory.mktemp(kind)) as server, pytest.MonkeyPatch.context() as patch:
        server.make_bucket()
        for name, value in environment_of(kind, server).items():
            patch.setenv(name, value)
        yield kind, server, _store_of(any_path(url_of(kind, server)).scheme, LIMITS)  # type: ignore[attr-defined]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_bucket_of_a_real_server_that_fails(check: Callable[[Rig], None], served: Served) -> None:
    rig = Rig(*served, url=url_of(*served[:2]))
    try:
        check(rig)
    finally:
        served[1].faults.clear()


HDFS_CHECKS = (
    checks.check_replaced_object_is_not_mixed,
    checks.check_kept_pieces_are_of_one_object,
    checks.check_listing_grows_old,
    checks.check_nothing_is_changed,
    checks.check_pages_are_all_listed,
)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealStore]:
    """A name node and a data node; files are put by HTTP."""
    if not REAL["webhdfs"].exists():
        pytest.skip("hdfs is not there: make stores")
    with real_store("webhdfs", tmp_path_factory.mktemp("hdfs")) as server:
        yield server


@pytest.mark.parametrize("check", HDFS_CHECKS, ids=lambda check: check.__name__)
def test_hdfs_in_its_own_language(
    check: Callable[[Rig], None], cluster: RealStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of the checks that need no fault of HTTP."""
    monkeypatch.setenv("HADOOP_USER_NAME", "root")
    check(Rig("hdfs", cluster, Hdfs(LIMITS), url=f"hdfs://127.0.0.1:{cluster.rpc_port}"))


def test_log_dir_in_hdfs(cluster: RealStore, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Commands say of it what they say of the disk; a name node that is silent is given up."""
    write_log_dir(tmp_path, keyed_log())
    cluster.upload(tmp_path, "kafka")
    found = []
    for place in (str(tmp_path), f"hdfs://127.0.0.1:{cluster.rpc_port}/kafka"):
        code = main(["check", place, "--format", "json"])
        code += main(["consume", "--log-dir", place, "--topic", "topic", "--from-beginning", "--format", "json"])
        found.append((code, capsys.readouterr().out.replace(place, "PLACE")))
    assert found[0] == found[1]
    os.kill(cluster.process_id, signal.SIGSTOP)
    try:
        with pytest.raises(LogDirOfflineError, match="no answer"):
            RemoteFiles(LIMITS, ManualClock()).list_dir(any_path(f"hdfs://127.0.0.1:{cluster.rpc_port}/kafka"))
    finally:
        os.kill(cluster.process_id, signal.SIGCONT)
