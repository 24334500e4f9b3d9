"""From the log to rows: spans of records, decoded and written by Spark tasks."""
