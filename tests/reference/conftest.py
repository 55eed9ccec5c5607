"""The twin is proven on the golden archives."""

from tests.golden.fixtures import random_logs, unpacked

__all__ = ["random_logs", "unpacked"]
