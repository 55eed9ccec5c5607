"""What both passes share: chunks of segments, worked on side by side."""
