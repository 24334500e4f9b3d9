"""Decide who may connect and log in: admission, logins, keys, resumed sessions."""
