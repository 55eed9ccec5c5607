"""Kafka's jars for the tests of this directory; without them the tests skip and say what is missing."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.kafka.broker import Client
from tests.kafka.rig import CLEANERS, VERSIONS, Rig, Unavailable


def _load(version: str) -> Rig:
    try:
        return Rig.load(version)
    except Unavailable as error:
        pytest.skip(f"no Kafka {version}: {error}")


@pytest.fixture(scope="session")
def kafka() -> Rig:
    """Kafka 4.3.1, whose cleaner ours must equal."""
    return _load(CLEANERS[0])


@pytest.fixture(scope="session", params=CLEANERS)
def each_kafka(request: pytest.FixtureRequest) -> Rig:
    """Each of the releases whose cleaner ours must equal."""
    return _load(request.param)


@pytest.fixture(scope="session")
def kafkas() -> dict[str, Rig]:
    """Return all of them by version."""
    return {version: _load(version) for version in CLEANERS}


@pytest.fixture(scope="session")
def clients(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[Rig], Client]]:
    """Return a function from a broker to its client: of the same release, or of 4.3 for older brokers."""
    started: dict[str, Client] = {}

    def client_of(rig: Rig) -> Client:
        version = rig.version if rig.version in CLEANERS else CLEANERS[0]
        if version not in started:
            log = tmp_path_factory.mktemp("client") / f"client-{version}.log"
            started[version] = Client(_load(version), log)
        return started[version]

    yield client_of
    for client in started.values():
        client.close()


@pytest.fixture(scope="module", params=VERSIONS)
def broker_rig(request: pytest.FixtureRequest) -> Rig:
    """Each of the brokers that have to read what we leave."""
    return _load(request.param)


@pytest.fixture(scope="module", params=CLEANERS)
def cleaning_broker_rig(request: pytest.FixtureRequest) -> Rig:
    """Each of the brokers whose cleaner ours must equal."""
    return _load(request.param)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave to the long form what the older release has shown no less: `-m "slow or not slow"` runs it."""
    for item in items:
        if item.path.name in ("test_handover.py", "test_beside_broker.py") and "[4.3" in item.name:
            item.add_marker(pytest.mark.slow)
