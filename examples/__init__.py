"""Small programs that use the library; each runs by itself: `python -m examples.change_feed`."""
