"""
How a running daemon is steered: a UNIX socket, one JSON object a line.

`server.py` stands around a `Steering`, `client.py` is what commands talk through. Who may connect is a matter of the
socket's file permissions; who did, the kernel says. The protocol is in docs/steering.md.
"""
