"""The commands: one file each, and what they share: arguments, output, progress, signals."""
