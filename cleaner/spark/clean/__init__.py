"""
Cleans logs with Spark: one round is spread over tasks.

pyspark, pyarrow and pandas are the extra `spark`. They are imported only below `cleaner.spark`, and inside functions,
so that checking whether Spark is installed costs nothing.
"""
