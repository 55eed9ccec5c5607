"""The bulk path as a whole: beside the engine without Spark, then with it."""
