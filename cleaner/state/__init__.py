"""
What a long-running cleaner remembers in a directory of its own (`cleaner.state.dir`), never inside a log dir.

Nothing here decides which records stay: all of it may be lost without harm to any log.
"""
