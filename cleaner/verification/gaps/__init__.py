"""Which offsets of a partition have no record for a reader, and why; see `docs/gaps.md`."""
