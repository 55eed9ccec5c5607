"""The golden archives, unpacked once a session."""

from tests.golden.fixtures import random_logs, unpacked

__all__ = ["random_logs", "unpacked"]
