"""The tables: what they are called, what is in them, and how to read them without Spark."""
