"""`cleaner check`: reads every file in a log dir and compares them with each other."""
