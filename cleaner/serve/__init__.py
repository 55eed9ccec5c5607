"""A read-only Kafka endpoint over log dirs: the wire protocol, what it is asked, and the server."""
