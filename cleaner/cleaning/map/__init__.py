"""The first pass: fills the offset map."""
