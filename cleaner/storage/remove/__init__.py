"""Removing what retention or an operator has let go: set aside first, removed later."""
