"""Kafka's jars for the tests of this directory; without them the tests skip and say what is missing."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.kafka.broker import Client
from tests.kafka.rig import VERSIONS, Rig, Unavailable


def _load(version: str) -> Rig:
    try:
        return Rig.load(version)
    except Unavailable as error:
        pytest.skip(f"no Kafka {version}: {error}")


@pytest.fixture(scope="session")
def kafka() -> Rig:
    """Kafka 4.3.1, whose cleaner ours must equal."""
    return _load(VERSIONS[0])


@pytest.fixture(scope="session")
def client(kafka: Rig, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """The client of all brokers, of whatever version: Kafka 4.3.1's."""
    client = Client(kafka, tmp_path_factory.mktemp("client") / "client.log")
    yield client
    client.close()


@pytest.fixture(scope="module", params=VERSIONS)
def broker_rig(request: pytest.FixtureRequest) -> Rig:
    """Each of the brokers that have to work with what we leave."""
    return _load(request.param)
