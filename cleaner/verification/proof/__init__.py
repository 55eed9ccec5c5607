"""
Proves that a cleaned log is correct for the log it was made from, with an independent method.

The cleaner finds each key's last record with a map of digests. The proof collects every record's digest and offset, and
sorts them. It uses neither `cleaner.cleaning` nor `cleaner.policy`; a contract in `pyproject.toml` enforces this. Both
share the code that reads bytes (`format/`, `storage/`): batches, checksums, codecs, records. If that code misread them,
no broker could read the cleaned log either, which tests with golden archives and brokers would show. The proof is about
which records are kept and which are removed.
"""
