"""The second pass: recopies a group of segments into one."""
