"""Real processes on small real disks for an hour, with accidents, beside a model of what they were answered."""
