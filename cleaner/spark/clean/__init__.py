"""
Logs as Spark sees them: a round spread over tasks, and a data source.

pyspark, pyarrow and pandas are the extra `spark`. They are imported in this room only, and inside functions, so that
asking whether Spark is there costs nothing.
"""
