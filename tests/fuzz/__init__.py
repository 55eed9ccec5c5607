"""Hostile files of every kind, and all commands and readers run on them in process; `python -m tests.fuzz`."""
