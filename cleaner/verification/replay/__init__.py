"""
The state that coordinators, registries and Connect workers build from their internal topics, and its comparison.

A log is replayed in order, by the rules of those who read it (docs/replay.md), into named facts. Two logs with the same
facts are the same to them.
"""
