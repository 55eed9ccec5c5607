"""Settings in `CLEANER_` variables."""

from __future__ import annotations

import pytest

from cleaner.config.table import BROKER_SETTINGS, SETTING_OF_SYNONYM, TOPIC_SETTINGS
from cleaner.errors import ConfigError
from cleaner.settings import read_environment, variable_of


@pytest.mark.parametrize(
    ("key", "variable"),
    [
        ("log.cleaner.threads", "CLEANER_LOG_CLEANER_THREADS"),
        ("cleaner.http.listen", "CLEANER_HTTP_LISTEN"),
        ("min.cleanable.dirty.ratio", "CLEANER_MIN_CLEANABLE_DIRTY_RATIO"),
        ("log.retention.ms", "CLEANER_LOG_RETENTION_MS"),
    ],
)
def test_variable_is_the_key_in_capitals(key: str, variable: str) -> None:
    """`CLEANER_` and the key with underscores, a leading `cleaner.` not doubled; and it is read back."""
    assert variable_of(key) == variable
    assert read_environment({variable: " 5 ", "HOME": "/", "cleaner_x": "1"}) == {key: " 5 "}


def test_every_setting_has_a_variable_of_its_own() -> None:
    """No two keys share one, and none looks like a service's."""
    keys = {*BROKER_SETTINGS, *TOPIC_SETTINGS, *SETTING_OF_SYNONYM}
    variables = {variable_of(key): "x" for key in keys}
    assert len(variables) == len(keys)
    assert set(read_environment(variables)) == keys


def test_unknown_variables_are_refused_naming_the_nearest() -> None:
    """All of them at once, with their values."""
    with pytest.raises(ConfigError) as caught:
        read_environment({"CLEANER_LOG_CLEANER_THREAD": "2", "CLEANER_HTTP_LISTN": "x", "CLEANER_HTTP_LISTEN": ""})
    assert [str(mistake) for mistake in caught.value.mistakes] == [
        "CLEANER_HTTP_LISTN: no setting has this environment variable; the nearest is CLEANER_HTTP_LISTEN",
        "CLEANER_LOG_CLEANER_THREAD: no setting has this environment variable; "
        "the nearest is CLEANER_LOG_CLEANER_THREADS",
    ]


@pytest.mark.parametrize(
    "variable",
    [
        "CLEANER_SERVICE_HOST",
        "CLEANER_SERVICE_PORT",
        "CLEANER_SERVICE_PORT_HTTP",
        "CLEANER_PORT",
        "CLEANER_PORT_9404_TCP",
        "CLEANER_PORT_9404_TCP_ADDR",
        "CLEANER_METRICS_PORT_9404_TCP_PROTO",
        "CLEANER_METRICS_SERVICE_HOST",
    ],
)
def test_variables_kubernetes_sets_for_a_service_are_passed_over(variable: str) -> None:
    """A service called `cleaner` must not keep every cleaner of the namespace from starting."""
    assert read_environment({variable: "tcp://10.0.0.1:9404"}) == {}
