"""What to compute: pure descriptions of queries, free of Spark and of storage."""
