"""The small files of log dirs and partitions, each with its format."""
