"""Reading a log as it is, without loading it for cleaning: its files, where it ends, its transactions."""
