"""Loading a log as a broker does when it starts: leftovers, recovery, producers."""
