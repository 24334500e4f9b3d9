"""Read spans of the log, decode their records, and write rows, in Spark tasks."""
