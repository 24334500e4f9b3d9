"""Start Spark: find Java, open sessions, warm the Python workers."""
