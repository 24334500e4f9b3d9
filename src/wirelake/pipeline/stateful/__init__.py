"""Tables that need memory across batches: one module for each, from events and a bucket's state to rows."""
