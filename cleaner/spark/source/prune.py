"""
Column pruning: Spark does not tell Python sources which columns a query uses; our optimizer rule does.

The rule is Java (`PruneColumns.java`), like Spark's optimizer. Spark's compiler for generated code compiles it into a
class of the driver's JVM. The rule gets from here the command that replaces the one planned for all columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from cleaner.spark.source.partitions import read_partition

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

_RULE = "PruneColumns"


def add_rule(spark: SparkSession) -> None:
    """
    Add the rule to a session; does nothing if the session has it already.

    Raises:
        Py4JError: the rule does not fit this version of Spark.
    """
    experimental = spark._jsparkSession.experimental()
    rules = experimental.extraOptimizations()
    if any(rules.apply(number).ruleName().endswith(_RULE) for number in range(rules.size())):
        return
    rule = _compiled(spark)
    getattr(experimental, "extraOptimizations_$eq")(rules.appended(rule))


def _compiled(spark: SparkSession) -> Any:
    gateway: Any = spark.sparkContext._gateway
    jvm = gateway.jvm
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(spark._jsparkSession.getClass().getClassLoader())
    compiler.cook(rule_source())
    rule = compiler.getClassLoader().loadClass(f"{__package__}.{_RULE}")
    return rule.getConstructor(gateway.new_array(jvm.Class, 0)).newInstance(gateway.new_array(jvm.Object, 0))


def rule_source() -> str:
    """Return the rule's Java source."""
    return (files(__package__) / f"{_RULE}.java").read_text()


def read_command(names: str) -> tuple[Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]], StructType]:
    """
    Return the function that a Spark task runs and the type of its rows, as `pyspark.sql.worker.plan_data_source_read`
    does.

    Args:
        names: column names, separated by commas.
    """
    import pickle

    from pyspark.sql.pandas.types import from_arrow_schema

    from cleaner.spark.source.arrow import arrow_schema

    columns = tuple(names.split(","))

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for partition in batch.column(0).to_pylist():
                yield from read_partition(pickle.loads(partition), columns)  # noqa: S301 (made by our own planner)

    return read, from_arrow_schema(arrow_schema(columns))
