"""
Proving a cleaned log right against the log it was made from, by a way of its own.

The cleaner asks a map of digests which record is its key's last. Here every record's digest and offset are written down
and sorted; nothing of the rooms that clean is used, and contracts in `pyproject.toml` keep it so: not `engine`, not
`recopy`, not `policy`, not `offset_map`. What is shared is how bytes are read (`format/`, `storage/`): batches,
checksums, codecs, records. Code that misread those would write a log that no broker reads either, which golden archives
and brokers show; who stays and who goes is what a proof is about.
"""
