"""Servers behind the gateway that serve some of its services."""
