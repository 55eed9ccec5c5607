"""Compares replicas of one partition: compacted at different times, they must still say the same of every key."""
