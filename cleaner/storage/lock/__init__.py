"""Locks of log dirs and partitions, between processes and among threads."""
