"""
Kafka logs as DataFrames: what `spark.read.format("kafkalog")`, `readStream` and `df.write` do.

Planning and reading know neither Spark nor a session: a plan is made of values that can be pickled, and a task turns
its part of it into Arrow's record batches. pyarrow is imported where batches are made and taken apart, pyspark in
`source.py`, `stream.py`, `sink.py`, `partitions.py` and `prune.py` only.
"""
