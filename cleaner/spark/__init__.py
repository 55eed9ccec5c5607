"""
Logs as DataFrames in your Spark session.

    spark = cleaner.spark.register(SparkSession.builder.getOrCreate())
    spark.read.format("kafkalog").load("/var/lib/kafka")

docs/spark.md has the options.
"""

from __future__ import annotations

import os
import sys
import warnings
from typing import TYPE_CHECKING, Any

from cleaner.errors import UsageError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register"]

_FORMAT = "kafkalog"
_PYTHON = "PYSPARK_PYTHON"
_PYTHON_SETTING = "spark.pyspark.python"


def register(spark: SparkSession) -> SparkSession:
    """
    Make `format("kafkalog")` known to a session, and return the session.

    Logs are planned and read by the Python of `PYSPARK_PYTHON`, else of the session's `spark.pyspark.python`, else by
    the Python that runs this. Queries read only the columns they use; a warning says if this version of Spark cannot.
    Registering again does nothing.

    Raises:
        UsageError: `spark` is no session, or its Spark does not support data sources in Python.
    """
    if not hasattr(type(spark), "dataSource"):
        given = spark.__name__ if isinstance(spark, type) else f"a {type(spark).__name__}"
        raise UsageError(
            f"spark is {given}; a SparkSession of Spark 4 or later is needed: SparkSession.builder.getOrCreate()"
        )
    from cleaner.spark.source.source import KafkaLogSource

    if not hasattr(spark, "_jsparkSession"):  # Spark Connect: Python and optimizer are the server's
        spark.dataSource.register(KafkaLogSource)
        return spark
    from py4j.protocol import Py4JError

    from cleaner.spark.source.prune import add_rule

    # Spark refuses to register a source of this name if it found one itself, and warns about any other repetition.
    if not spark._jsparkSession.sessionState().dataSourceManager().dataSourceExists(_FORMAT):
        context: Any = spark.sparkContext
        usual = context.pythonExec
        # Spark looks the name up in the active session, not in the session that registers it.
        context._gateway.jvm.SparkSession.setActiveSession(spark._jsparkSession)
        # By default a session runs its workers with the first `python3` of the PATH.
        if _PYTHON not in os.environ:
            context.pythonExec = context.getConf().get(_PYTHON_SETTING) or sys.executable
        try:
            spark.dataSource.register(KafkaLogSource)
        finally:
            context.pythonExec = usual
    try:
        add_rule(spark)
    except Py4JError as error:
        reason = str(error).splitlines()[-1:]
        warnings.warn(
            f"kafkalog: Spark {spark.version} reads all columns of a log; name those in use with the option columns "
            f"({' '.join(reason)})",
            stacklevel=2,
        )
    return spark
