"""Code that both passes share: processes chunks of segments in parallel."""
