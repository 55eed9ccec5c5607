"""What is in the files of a log, told piece by piece: `cleaner dump`."""
