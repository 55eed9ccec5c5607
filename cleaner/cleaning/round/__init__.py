"""A cleaning round, from its start to its checkpoint."""
