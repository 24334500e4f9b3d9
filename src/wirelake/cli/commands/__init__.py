"""Implement the commands: one module for each group of related commands."""
