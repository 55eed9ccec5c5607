"""
Log directories that Kafka 4.3.1 wrote, and the results of its own cleaner, loader and retention.

One archive for each scenario in `data/`; `comparison.py` says what must agree. README.md says how they were made.
"""
