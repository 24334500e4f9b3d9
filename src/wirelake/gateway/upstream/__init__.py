"""Servers that serve some of the gateway's services."""
