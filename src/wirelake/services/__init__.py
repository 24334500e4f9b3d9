"""Implement the built-in services: redis values, and the records of data sets. No sockets; time is an argument."""
