"""What a round would do, foretold from a sample."""
