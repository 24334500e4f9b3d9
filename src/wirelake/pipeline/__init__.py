"""From the log to tables, on Spark. Decoding and reducing are pure: they need no Spark session."""
