"""Verifies logs: alone (`check`), or against the log they were made from (`proof`)."""
