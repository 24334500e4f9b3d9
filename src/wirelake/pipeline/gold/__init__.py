"""Small summary tables: pure functions from silver tables to a gold table, as Spark plans."""
