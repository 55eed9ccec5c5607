"""Bytes of record batches: headers, records, keys, compression. Reads and makes them; knows no segments."""
