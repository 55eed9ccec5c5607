"""
Steering of a running daemon: a UNIX socket, one JSON object per line.

`server.py` serves a `Steering`, and commands use `client.py`. The socket's file permissions decide who may connect; the
kernel tells which user did. The protocol is in docs/steering.md.
"""
