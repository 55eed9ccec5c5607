"""
Kafka logs as DataFrames: implements `spark.read.format("kafkalog")`, `readStream` and `df.write`.

Planning and reading do not depend on Spark or a session: a plan consists of values that can be pickled, and a task
turns its part of the plan into Arrow record batches. pyarrow is imported where batches are built and read; pyspark only
in `source.py`, `stream.py`, `sink.py`, `partitions.py` and `prune.py`.
"""
