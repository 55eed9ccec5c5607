"""Access to the operating system's files: nothing else in the cleaner opens one."""
