"""Loading a log as a broker does at its start: leftovers, recovery, producers."""
