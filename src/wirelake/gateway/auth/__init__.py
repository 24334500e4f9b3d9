"""Who is let in: logins, admission, keys, resumed sessions."""
