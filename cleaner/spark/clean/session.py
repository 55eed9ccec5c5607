"""
The Spark session of a job: our defaults, and the operator's `spark.*` keys.

By default Spark listens on the machine's external address, serves its UI there, and runs its Python workers with the
first `python3` on the PATH. Our session stays on the loopback interface unless other machines take part, serves no UI,
and runs its workers with this Python. The operator's keys override our defaults.
"""

from __future__ import annotations

import os
import pwd
import sys
import tempfile
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MASTER = "spark.master"
DEFAULT_MASTER = "local[*]"

_PYTHON = "spark.pyspark.python"
_LOOPBACK = "127.0.0.1"
_LOOPBACK_HOSTS = ("127.", "localhost", "[::1]")

_DEFAULTS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "WARN",
    "spark.driver.memory": "1g",
    # Off by default in Spark, which then refuses a reader that has `pushFilters`.
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # Our own reader makes batches of this many rows; use the same for batches from Spark.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
}


def spark_settings(given: Mapping[str, str]) -> dict[str, str]:
    """
    Return the settings of a session: the given keys, and our defaults for the others.

    Args:
        given: `spark.*` keys. `spark.master` decides whether the network is needed.
    """
    master = given.get(MASTER, DEFAULT_MASTER)
    settings = {MASTER: master, _PYTHON: sys.executable, **_DEFAULTS}
    if _is_local(master):
        settings["spark.driver.host"] = settings["spark.driver.bindAddress"] = _LOOPBACK
    if _makes_secrets(master):
        settings["spark.authenticate"] = "true"
    # Workers start in our current directory, which may belong to another user: import nothing from it.
    settings["spark.executorEnv.PYTHONSAFEPATH"] = "1"
    settings["spark.driver.defaultJavaOptions"] = " ".join(_java_options(is_local=master.startswith("local")))
    return {**settings, **given}


def make_spark(name: str, given: Mapping[str, str]) -> SparkSession:
    """
    Start Spark, or return the session that this process has already, which then keeps its master and heap.

    Spark takes the workers' Python from an environment variable, so it is set here for the whole process. In the main
    thread Spark would also handle SIGINT: call this from another thread.

    Args:
        name: of the job, as the cluster shows it.
        given: `spark.*` keys, see `spark_settings`.
    """
    from pyspark.sql import SparkSession

    settings = spark_settings(given)
    os.environ["PYSPARK_PYTHON"] = settings[_PYTHON]
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    if "spark.driver.bindAddress" in settings:
        os.environ.setdefault("SPARK_LOCAL_IP", settings["spark.driver.bindAddress"])
    if not _has_account():
        # Hadoop's libraries need a user name and fail without one.
        for variable in ("HADOOP_USER_NAME", "SPARK_USER"):
            os.environ.setdefault(variable, f"uid-{os.geteuid()}")
    builder = SparkSession.builder.appName(name)
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def _is_local(master: str) -> bool:
    """Tell whether driver and executors are all on this machine, so that the loopback interface is enough."""
    kind, _, host = master.partition("://")
    return kind.startswith("local") or (kind == "spark" and host.startswith(_LOOPBACK_HOSTS))


def _makes_secrets(master: str) -> bool:
    """Tell whether Spark creates the secret itself; a standalone cluster has its own secret, or none."""
    return master.startswith(("local", "k8s://")) or master == "yarn"


def _java_options(*, is_local: bool) -> list[str]:
    """Return options of the driver's JVM; `spark.driver.extraJavaOptions` come after them."""
    scratch = tempfile.gettempdir()
    options = ["-XX:+UseSerialGC", f"-Djava.io.tmpdir={scratch}"]
    if is_local:
        # The JVM only carries bytes for our tasks, on the same cores: Java's second compiler would take half of them.
        options.append("-XX:TieredStopAtLevel=1")
    if not _has_account():
        options.append(f"-Duser.home={scratch}")
    return options


def _has_account() -> bool:
    """Tell whether this process's user has an entry in the password file; in a container it often has none."""
    try:
        pwd.getpwuid(os.geteuid())
    except KeyError:
        return False
    return True
