"""Settings: declared once each (`*_rows.py`), read as Kafka reads them, and handed on as typed values."""
