"""Every decision: values in, values out. No file is read here, and no clock."""
