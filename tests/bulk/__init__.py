"""The bulk path as a whole: compared with the engine without Spark, then with it."""
