"""
The long-running cleaner: looks at every log, picks the next, hands it to a worker, and goes on for years.

Except `control/`, nothing here knows HTTP, sockets or the terminal: other packages read its state through `snapshot.py`
and steer it through `steering.py`.
"""
