"""
`cleaner export`: the latest value of each key of a topic as a table in files, and what changed since the export before.

    topic.py      the use case: one export after the other in a directory, the manifest put last
    changes.py    two tables compared, row by row
    forms.py      tables as Parquet and as lines of JSON
    iceberg.py    an Iceberg table, each export a snapshot of it
    manifest.py   which files an export has

What the latest value of a key is, `log/latest.py` says; nothing here decides it.
"""
