"""A segment: its names, its `.log` and its indexes."""
