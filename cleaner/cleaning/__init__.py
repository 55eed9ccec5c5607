"""One cleaning round of one log."""
