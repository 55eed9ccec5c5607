"""The writable log: append, roll, flush, read, follow, transactions, topics."""
