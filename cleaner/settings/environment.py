"""
Settings in environment variables, for containers: `CLEANER_LOG_CLEANER_THREADS=2`.

A variable's name is `CLEANER_` and the setting's name in capitals, with `_` for `.` and `-`; the prefix `cleaner.` of
our own settings is not repeated (`CLEANER_HTTP_LISTEN`). Settings of single topics have no variables.

A `CLEANER_` variable that is not a setting is an error: otherwise a typo in a pod's manifest would go unnoticed for
years. Exceptions are the variables that Kubernetes and container links set for a service named `cleaner` or
`cleaner-...`, such as `CLEANER_SERVICE_HOST` and `CLEANER_METRICS_PORT_9404_TCP_ADDR`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from cleaner.base.mistakes import Mistakes, nearest
from cleaner.config.table import BROKER_SETTINGS, SETTING_OF_SYNONYM, TOPIC_SETTINGS
from cleaner.errors import ConfigError

PREFIX = "CLEANER_"
_OUR_PREFIX = "cleaner."
_MAX_ALIKE_CHARACTERS = 100  # of a variable's name, in the search for the nearest setting
_PORT_OF_A_SERVICE = re.compile(r"_PORT_[0-9]++_(?:TCP|UDP|SCTP)(?:_(?:PROTO|PORT|ADDR))?\Z")


def variable_of(key: str) -> str:
    """Return the environment variable of a setting."""
    return PREFIX + key.removeprefix(_OUR_PREFIX).upper().replace(".", "_").replace("-", "_")


_KEY_OF_VARIABLE = {variable_of(key): key for key in (*TOPIC_SETTINGS, *SETTING_OF_SYNONYM, *BROKER_SETTINGS)}


def read_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """
    Return the settings in environment variables, by key.

    Args:
        environment: for example `os.environ`; other variables are ignored.
    Raises:
        ConfigError: `CLEANER_` variables that are not settings, each with the nearest setting.
    """
    mistakes = Mistakes()
    values = read_known_variables(environment, mistakes)
    mistakes.raise_any()
    return values


def read_known_variables(environment: Mapping[str, str], mistakes: Mistakes) -> dict[str, str]:
    """Do as `read_environment`, but collect errors and continue."""
    values = {}
    for variable in sorted(name for name in environment if name.startswith(PREFIX)):
        key = _KEY_OF_VARIABLE.get(variable)
        if key is not None:
            values[key] = environment[variable]
        elif not _is_of_a_service(variable):
            begin = variable[:_MAX_ALIKE_CHARACTERS]
            reason = f"no setting has this environment variable; the nearest is {nearest(begin, _KEY_OF_VARIABLE, 0.0)}"
            mistakes.add(ConfigError(variable, None, reason))
    return values


def _is_of_a_service(variable: str) -> bool:
    """Tell whether Kubernetes or a container link may have set it, for a service `cleaner` or `cleaner-...`."""
    name = "_" + variable.removeprefix(PREFIX)
    is_plain = variable.isascii() and variable.isupper() and variable.replace("_", "").isalnum()
    is_named = name.endswith(("_SERVICE_HOST", "_SERVICE_PORT", "_PORT")) or "_SERVICE_PORT_" in name
    return is_plain and (is_named or _PORT_OF_A_SERVICE.search(name) is not None)
