"""sisnet: named requests and answers in JSON or binary, with subscriptions and packed records, for market data."""
