"""The first pass: the offset map and what fills it."""
