"""Putting new segments in the place of old ones, so that a crash leaves the old or the new."""
