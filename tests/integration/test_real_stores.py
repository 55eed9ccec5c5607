"""The faults of `test_remote_faults.py` with servers that others have written, which `make stores` fetches."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from cleaner.base.remote_path import any_path
from cleaner.storage.fs.remote import _store_of
from cleaner.storage.fs.store import Store
from tests.integration.bucket_checks import CHECKS, LIMITS, Rig
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
