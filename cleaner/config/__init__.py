"""Settings: each declared once (`*_settings.py`), parsed as Kafka parses them, and passed on as typed values."""
