"""Logs held against what they must be: by themselves (`check`), or against the log they were made from (`proof`)."""
