"""Estimates from a sample what a round would do."""
