"""A day in the life of the daemon, in minutes, with real processes."""
