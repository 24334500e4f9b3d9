"""What needs memory across batches: one module for each noun, from items and a carry to settled and open rows."""
