"""Every file operation: file system, files of a log dir, locks, segments, swap, load, removal."""
