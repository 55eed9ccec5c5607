"""The daemon over HTTP: metrics, health and a page, all made from one snapshot; read only."""
