"""What is in the tables already, read and written once more: see `wirelake.pipeline.redecode`."""
