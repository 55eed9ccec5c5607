"""The daemon's page."""
