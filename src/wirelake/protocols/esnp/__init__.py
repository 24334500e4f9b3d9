"""esnp: requests to services, as messages made of typed lines."""
