"""Fill the tables from the log, on Spark. Decoding and reducing are pure: they need no Spark session."""
