"""Compute the small summary tables: pure functions from silver tables to a gold table, as Spark plans."""
