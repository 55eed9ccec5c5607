"""What the daemon shows over HTTP: metrics, health and a page, all drawn from one snapshot; nothing can be changed."""
