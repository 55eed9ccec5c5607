"""
The long-running cleaner: looks at every log, picks the next, hands it to a worker, and goes on for years.

Nothing here knows of HTTP, sockets or the terminal: others look at it through `snapshot.py` and steer it through
`steering.py`.
"""
