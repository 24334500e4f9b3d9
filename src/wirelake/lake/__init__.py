"""The tables: their names and columns, and how to read them without Spark."""
