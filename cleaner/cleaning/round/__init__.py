"""A round from its first look to its checkpoint."""
