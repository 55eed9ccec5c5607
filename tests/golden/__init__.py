"""
Log directories that Kafka 4.3.1 wrote, and what its own cleaner, loader and retention made of them.

One archive a scenario in `data/`; `comparison.py` says what must agree. README.md tells how they were made.
"""
