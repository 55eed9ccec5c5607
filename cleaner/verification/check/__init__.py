"""Everything in a log dir read and held against each other: `cleaner check`."""
