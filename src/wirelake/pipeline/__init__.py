"""From the log to tables, on Spark. What decodes and settles is pure: it needs no Spark session."""
