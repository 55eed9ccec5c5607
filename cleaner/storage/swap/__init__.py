"""Replacing old segments by new ones, so that a crash leaves either the old or the new."""
