"""The daemon's HTTP server: a few threads, read-only."""
