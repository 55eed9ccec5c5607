"""
`spark.read.format("kafkalog")` without a registration: Spark looks into packages whose names begin with `pyspark_`.

What is behind it is in `cleaner.spark.source`.
"""

from cleaner.spark.source.source import KafkaLogSource as DefaultSource

__all__ = ["DefaultSource"]
