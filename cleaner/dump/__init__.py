"""Shows the contents of a log's files, item by item: `cleaner dump`."""
