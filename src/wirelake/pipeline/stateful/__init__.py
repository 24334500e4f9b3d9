"""Compute the tables that need state across batches: one module for each, from events and a bucket's state to rows."""
