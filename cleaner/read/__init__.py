"""Reads logs without loading them for cleaning: their files, their end, their transactions."""
