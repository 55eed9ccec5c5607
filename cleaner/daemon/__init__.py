"""
The long-running cleaner: looks at every log, picks the next, gives it to a worker, and so on for years.

Except `control/`, nothing here knows HTTP, sockets or the terminal: other packages read its state through `snapshot.py`
and steer it through `steering.py`.
"""
