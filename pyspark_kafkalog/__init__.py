"""
`spark.read.format("kafkalog")` without a registration: Spark looks into packages whose names begin with `pyspark_`.

What is behind it is in `cleaner.frames`.
"""

from cleaner.frames.source import KafkaLogSource as DefaultSource

__all__ = ["DefaultSource"]
