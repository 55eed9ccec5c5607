"""The daemon's HTTP server, read-only."""
