"""
State that a long-running cleaner keeps in its own directory (`cleaner.state.dir`), never inside a log dir.

Nothing here decides which records stay: all of it may be lost without harm to any log.
"""
