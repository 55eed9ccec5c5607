"""
The slow twin: a cleaning round written from the rules alone, one obvious step after the other, on files held as bytes.

It shares no code with `cleaner.engine`, `cleaner.recopy`, `cleaner.policy`, `cleaner.format` or the kernels. It is
proven against Kafka's own results (`test_twin_agrees_with_kafka.py`), and then the engine is proven against it.

Apart from the twin, `record_filter.py` has the rules for one batch and one record; tests hold the kernels to it.
"""
