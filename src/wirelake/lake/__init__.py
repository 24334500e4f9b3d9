"""Define the tables, and read them without Spark."""
