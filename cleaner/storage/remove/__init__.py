"""Removing segments and topics that retention or an operator deleted: renamed first, removed later."""
