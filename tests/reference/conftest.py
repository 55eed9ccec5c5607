"""The twin is proven on the golden archives."""

from tests.golden.fixtures import unpacked

__all__ = ["unpacked"]
