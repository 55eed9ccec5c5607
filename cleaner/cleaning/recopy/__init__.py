"""The second pass: a group of segments made into one."""
